"""What an operator sees of a cluster in a browser when a broker is lost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from skylog import Admin
from skylog.testing import BrokerCluster, produce
from tests.console.browser.conftest import KEEPS_IMAGES, NewPage, keep_image
from tests.console.conftest import RunningConsole, running_console
from tests.patience import patience


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    racks = {node_id: {"broker.rack": rack} for node_id, rack in enumerate("abc", start=1)}
    with BrokerCluster(3, broker_settings=racks) as cluster:
        Admin(cluster.bootstrap).create_topic("orders", 3, 3)
        produce(cluster.bootstrap, "orders", ["order"] * 100)
        yield cluster


@pytest.fixture(scope="module")
def console(cluster: BrokerCluster) -> Iterator[RunningConsole]:
    with running_console(cluster) as running:
        yield running


def test_a_lost_broker_is_seen_without_a_reload_and_the_overview_leads_to_it(
    new_page: NewPage, console: RunningConsole, cluster: BrokerCluster
) -> None:
    page = new_page(console)
    page.goto("/cluster")
    rows = page.locator("table").first.locator("tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.nth(2)).to_contain_text("OK")
    if KEEPS_IMAGES:
        expect(page.locator(".plot")).to_be_visible(timeout=30_000)
    cluster.kill(3)
    expect(rows.nth(2)).to_contain_text("missing", timeout=60_000)
    expect(page.get_by_role("link", name="orders").first).to_be_visible()
    keep_image(page, "cluster")
    page.goto("/")
    page.get_by_role("link", name="Broker 3 is missing.").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Brokers")
    cluster.start(3)
    expect(rows.nth(2)).to_contain_text("OK", timeout=patience(40) * 1000)
