"""The figures of the demo, as a line and as a dashboard."""

from __future__ import annotations

import os

import pytest

from skylog.client import Partition
from skylog.demo.failover import ClusterView
from skylog.demo.figures import Deliveries, Figures, GroupProgress, Suspicion
from skylog.demo.layout import GROUPS, NEWSFEED
from skylog.demo.rising_pages import RisingPage
from skylog.demo.summary import cluster_table, dashboard, line, open_summary

RESULTS = ("reader 5003", "address 203.0.113.7", "31")
FIGURES = Figures(
    elapsed_s=31.4,
    stored=15_700,
    stored_per_s=499.6,
    groups={NEWSFEED: GroupProgress(15_690, 500.2, 10), "land": GroupProgress(15_000, 480.0, 700)},
    visits=[("harbour-press", 5012)],
    rising=[RisingPage("/news/\x1b[31mcomet", 378, 9.2, 1)],
    files=12,
    feed=Deliveries(70, [("5003", 9)]),
    suspicions=[Suspicion("address 203.0.113.7", 31, 29)],
)


def test_a_line_has_rates_lag_and_the_first_of_each_ranking() -> None:
    assert line(FIGURES, "running") == (
        "  31 s  running: 15,700 events, 500/s; lag: newsfeed 10, land 700; files landed: 12; "
        "most visits: harbour-press 5,012; rising: /news/\\x1b[31mcomet 378 for 9; "
        "feed: 70 deliveries; suspicious: address 203.0.113.7 31 failed logins"
    )


def test_the_dashboard_has_every_group_and_escapes_control_characters() -> None:
    from rich.console import Console

    console = Console(width=100, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(dashboard(FIGURES, "running", ["north-mill shared /[bold]a"]))
    shown = console.export_text()
    for text in (
        *GROUPS,
        "15,690",
        "700",
        "harbour-press",
        "/news/\\x1b[31mcomet",
        "north-mill shared /[bold]a",
        *RESULTS,
    ):
        assert text in shown


def test_the_dashboard_has_leaders_replicas_and_what_has_happened() -> None:
    from rich.console import Console

    happenings = [f"{number} s  something" for number in range(20)]
    view = ClusterView([Partition(0, 2, (1, 2, 3), (3, 2)), Partition(1, -1, (1, 2, 3), ())], happenings)
    console = Console(width=100, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(cluster_table(view))
    shown = console.export_text()
    for text in ("page_views-0", "broker 2", "2, 3", "page_views-1", "none", "19 s  something"):
        assert text in shown
    assert "2 s  something" not in shown.splitlines()


def test_what_happens_is_printed_once_as_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with open_summary() as summary:
        summary.show_cluster(ClusterView([], ["1 s  a"]))
        summary.show_cluster(ClusterView([], ["1 s  a", "2 s  b"]))
    assert capsys.readouterr().out == "1 s  a\n2 s  b\n"


def test_a_group_without_commits_is_behind_by_everything() -> None:
    whole = dict.fromkeys(GROUPS, GroupProgress(100, 0.0, 0))
    assert Figures(1.0, 100, 0.0, whole, [], [], 0).behind == {}
    assert Figures(1.0, 100, 0.0, {**whole, "land": GroupProgress(99, 0.0, 1)}, [], [], 0).behind == {"land": 1}
    assert Figures(1.0, 100, 0.0, {}, [], [], 0).behind == dict.fromkeys(GROUPS, 100)
