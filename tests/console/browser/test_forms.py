"""Forms in a browser: what is rejected stays filled in, times and sizes take units, a topic is emptied."""

from __future__ import annotations

from playwright.sync_api import expect

from skylog import Admin, ConsumerGroups
from skylog.client import ResetTo
from skylog.testing import produce
from tests.console.browser.conftest import NewPage
from tests.console.conftest import RunningConsole


def test_a_rejected_form_keeps_what_was_filled_in(new_page: NewPage, console: RunningConsole) -> None:
    page = new_page(console, may_be_rejected=True)
    page.goto("/topics")
    form = page.locator("form", has_text="Configuration, one KEY=VALUE per line")
    form.get_by_label("Name").fill("kept-orders")
    form.get_by_label("Partitions").fill("3")
    form.get_by_label("Configuration").fill("retention.ms=3d\nsegment.bytes=lots")
    form.get_by_role("button", name="Create").click()
    expect(page.get_by_role("alert").filter(has_text="segment.bytes")).to_be_visible()
    expect(form.get_by_label("Name")).to_have_value("kept-orders")
    expect(form.get_by_label("Partitions")).to_have_value("3")
    expect(form.get_by_label("Configuration")).to_have_value("retention.ms=3d\nsegment.bytes=lots")

    form.get_by_label("Configuration").fill("retention.ms=3d\nsegment.bytes=1GiB")
    form.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("kept-orders")
    configs = {each.name: each.value for each in Admin(console.broker.bootstrap).describe_configs("kept-orders")}
    assert (configs["retention.ms"], configs["segment.bytes"]) == (str(3 * 86_400_000), str(1 << 30))


def test_a_topic_is_emptied_after_its_name_was_typed(new_page: NewPage, console: RunningConsole) -> None:
    bootstrap = console.broker.bootstrap
    produce(bootstrap, "too-full", ["x"] * 50, partition=0)
    page = new_page(console)
    page.on("dialog", lambda dialog: dialog.accept())
    page.goto("/topics/too-full")
    form = page.locator("form", has_text="Empty the topic")
    form.get_by_label("Type the topic's name").fill("too-full")
    form.get_by_role("button").click()
    expect(page.locator("dl.cards div", has_text="Messages").first).to_contain_text("0")
    admin = Admin(bootstrap)
    [held] = admin.offset_ranges(admin.describe_topic("too-full").topic_partitions).values()
    assert (held.start_offset, held.end_offset) == (50, 50)


def test_a_reset_has_one_preview_for_all_and_for_single_partitions(new_page: NewPage, console: RunningConsole) -> None:
    bootstrap = console.broker.bootstrap
    Admin(bootstrap).create_topic("reset-once", 2)
    for partition in range(2):
        produce(bootstrap, "reset-once", ["x"] * 10, partition=partition)
    groups = ConsumerGroups(bootstrap)
    groups.reset(groups.plan_reset("resets", ResetTo.OFFSET, 5, {"reset-once": None}))
    page = new_page(console)
    page.goto("/group?name=resets")
    preview = page.get_by_role("button", name="Preview")
    expect(preview).to_have_count(1)
    page.locator("select[name=to]").select_option("latest")
    page.get_by_text("Selected partitions, or separate targets").click()
    page.get_by_label("Target of reset-once 1").fill("3")
    preview.click()
    expect(page.locator("tbody tr").nth(0)).to_contain_text("skips 5")
    expect(page.locator("tbody tr").nth(1)).to_contain_text("repeats 2")
