"""The docs have every metric, and the dashboard uses none that is not there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from skylog.console.monitoring.exported import AUDIT_NAMES
from skylog.metric import Metric
from tests.broker.process import BrokerThread

from .reading import collected

DOCS = Path(__file__).parents[3] / "docs"
NAME = re.compile(r"\b(?:kafka|skylog|process)_[a-z_]+\b")


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> list[Metric]:
    with BrokerThread(tmp_path_factory.mktemp("broker") / "data") as thread:
        return collected(thread)


def samples(metrics: list[Metric]) -> set[str]:
    """The names that a query may use."""
    plain = {metric.name for metric in metrics if metric.kind != "histogram"}
    suffixes = ("_bucket", "_sum", "_count")
    return plain | {metric.name + suffix for metric in metrics if metric.kind == "histogram" for suffix in suffixes}


def test_the_table_has_every_metric_with_its_kind_and_meaning(metrics: list[Metric]) -> None:
    found = re.findall(
        r"^\| `([a-z_]+)` \| (\w+) \| [^|]* \| (.+) \|$", (DOCS / "metrics.md").read_text(), re.MULTILINE
    )
    assert sorted(found) == sorted((metric.name, metric.kind, metric.help) for metric in metrics)


def test_the_alerts_use_metrics_that_exist(metrics: list[Metric]) -> None:
    alerts = (DOCS / "prometheus-alerts.yml").read_text()
    used = set(NAME.findall(alerts))
    assert len(used) >= 15
    assert used <= samples(metrics) | set(AUDIT_NAMES)


def test_a_group_that_has_never_committed_can_be_stuck() -> None:
    """It has no committed offset, so a comparison with one would never be true."""
    _, _, alert = (DOCS / "prometheus-alerts.yml").read_text().partition("alert: SkylogConsumerStuck")
    expression, _, _ = alert.partition("- alert:")
    assert "unless sum by (consumergroup) (delta(kafka_consumergroup_current_offset[10m])) > 0" in expression


def test_the_metrics_of_the_console_are_documented() -> None:
    text = (DOCS / "metrics.md").read_text()
    assert [name for name in AUDIT_NAMES if f"| `{name}` |" not in text] == []


def test_every_panel_of_the_dashboard_asks_for_metrics_that_exist(metrics: list[Metric]) -> None:
    dashboard = json.loads((DOCS / "grafana-dashboard.json").read_text())
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    assert len(panels) > 15
    for panel in panels:
        assert panel["targets"], panel["title"]
        for target in panel["targets"]:
            used = set(NAME.findall(target["expr"]))
            assert used, target["expr"]
            assert used <= samples(metrics), target["expr"]
            assert target["expr"].count("(") == target["expr"].count(")")
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_the_dashboard_can_be_imported_for_any_source_of_data() -> None:
    dashboard = json.loads((DOCS / "grafana-dashboard.json").read_text())
    assert dashboard["title"] == "skylog"
    assert [variable["name"] for variable in dashboard["templating"]["list"]] == ["datasource", "instance", "topic"]
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            assert target["datasource"]["uid"] == "${datasource}"
