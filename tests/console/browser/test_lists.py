"""Lists in a browser: filtered while you type, sorted by any column, reached with the keyboard and on a phone."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from skylog import Admin, ConsumerGroups
from skylog.client import ResetTo
from skylog.testing import produce
from tests.console.browser.conftest import NewPage
from tests.console.conftest import RunningConsole


@pytest.fixture(scope="module", autouse=True)
def listed(console: RunningConsole) -> None:
    for number, name in enumerate(("listed-apples", "listed-pears", "listed-plums"), start=1):
        Admin(console.broker.bootstrap).create_topic(name, number)
        produce(console.broker.bootstrap, name, ["x"] * number * 10, partition=0)


def test_topics_are_filtered_while_you_type_and_sorted_by_a_click(new_page: NewPage, console: RunningConsole) -> None:
    page = new_page(console)
    page.goto("/topics")
    names = page.locator("#topics tbody th")
    page.get_by_label("Name").first.press_sequentially("LISTED-P")
    expect(names).to_have_text(["listed-pears", "listed-plums"])
    expect(page).to_have_url(f"{console.url}/topics?sort=name&q=LISTED-P")
    page.get_by_role("link", name="Partitions", exact=True).press("Enter")
    expect(names).to_have_text(["listed-plums", "listed-pears"])
    expect(page.locator("th[aria-sort=descending]")).to_contain_text("Partitions")
    page.get_by_role("link", name="Partitions", exact=True).click()
    expect(names).to_have_text(["listed-pears", "listed-plums"])


def test_the_order_of_a_table_stays_when_the_page_is_updated(new_page: NewPage, console: RunningConsole) -> None:
    page = new_page(console)
    page.goto("/brokers/1")
    keys = page.locator("#config-rows th")
    page.get_by_role("button", name="Key").click()
    first = keys.first.inner_text()
    page.get_by_role("button", name="Key").press("Enter")
    assert keys.last.inner_text() == first
    page.get_by_label("Filter").fill("log.retention.ms")
    expect(page.locator("#config-rows tr:visible")).to_have_count(1)


def test_a_phone_and_the_keyboard_reach_every_column(new_page: NewPage, console: RunningConsole) -> None:
    page = new_page(console, viewport={"width": 375, "height": 740})
    for path in ("/topics", "/groups", "/cluster", "/brokers/1", "/topics/listed-pears"):
        page.goto(path)
        expect(page.locator(".table:visible").first).to_be_visible()
        for table in page.locator(".table:visible").all():
            table.focus()
            assert table.evaluate("(it) => it === document.activeElement"), path
            overflow = "(it) => it.scrollWidth > it.clientWidth && getComputedStyle(it).overflowX !== 'auto'"
            assert not table.evaluate(overflow), path
        assert page.evaluate("document.documentElement.scrollWidth") <= 375, path


def test_a_row_keeps_its_name_in_sight_on_a_phone(new_page: NewPage, console: RunningConsole) -> None:
    """Whatever column the keyboard has moved to, in the list of groups as in any other."""
    groups = ConsumerGroups(console.broker.bootstrap)
    groups.reset(groups.plan_reset("listed-readers", ResetTo.EARLIEST, wanted={"listed-pears": None}))
    page = new_page(console, viewport={"width": 375, "height": 740})
    for path, name in (("/groups", "listed-readers"), ("/topics", "listed-pears")):
        page.goto(path)
        row = page.locator("tr", has=page.get_by_role("link", name=name, exact=True).first).first
        expect(row).to_be_visible()
        row.locator("td").last.scroll_into_view_if_needed()
        place = row.locator("th").bounding_box()
        last = row.locator("td").last.bounding_box()
        assert place is not None
        assert last is not None
        assert 0 <= place["x"] < place["x"] + place["width"] <= 375, path
        assert place["x"] + place["width"] - 1 <= last["x"] < 375, path
        table = page.locator(".table").first
        table.focus()
        before = table.evaluate("(it) => it.scrollLeft")
        assert before > 0, path
        page.keyboard.press("ArrowLeft")
        page.wait_for_function("(before) => document.querySelector('.table').scrollLeft < before", arg=before)


def test_a_column_is_sorted_by_value_whatever_its_unit(new_page: NewPage, console: RunningConsole) -> None:
    page = new_page(console)
    page.goto("/brokers/1")
    topics = page.locator("table", has_text="Largest topics")
    expect(topics.get_by_role("button", name="Share")).to_be_visible()
    # In one step, because the page is updated every few seconds.
    shown = topics.evaluate(
        """(table) => {
            const row = ([value, text]) => `<tr><td></td><td></td><td data-value="${value}">${text}</td></tr>`;
            table.tBodies[0].innerHTML = [[0.5, "50 %"], ["9.2e-05", "0.0 %"], [0.02, "2.0 %"]].map(row).join("");
            [...table.querySelectorAll("button")].find((it) => it.textContent === "Share").click();
            return [...table.tBodies[0].rows].map((it) => it.textContent);
        }"""
    )
    assert shown == ["50 %", "2.0 %", "0.0 %"]
