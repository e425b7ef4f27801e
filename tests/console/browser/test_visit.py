"""What an operator does in a browser, against a real broker."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

import pytest
from playwright.sync_api import Page, expect

from skylog import Admin, Consumer, ConsumerGroups, Producer
from skylog.audit import ProducerAudit
from skylog.records import iterate_batches
from skylog.testing import BrokerProcess, produce, wait_until
from tests.console.browser.conftest import NewPage, keep_image
from tests.console.conftest import RunningConsole, running_console
from tests.patience import patience

HOUR_MS: Final = 3_600_000
HOSTILE: Final = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>\"'&amp;{{7*7}}"


def iso(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def test_a_topic_is_created_and_what_is_produced_is_seen_live(
    page: Page, new_page: NewPage, console: RunningConsole
) -> None:
    page.goto("/topics")
    form = page.locator("form", has_text="Configuration, one KEY=VALUE per line")
    form.get_by_label("Name").fill("live-orders")
    form.get_by_label("Partitions").fill("3")
    form.get_by_label("Configuration").fill("retention.ms=86400000")
    form.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("live-orders")
    expect(page.get_by_text("retention.ms", exact=True).first).to_be_visible()
    keep_image(page, "topic")

    watcher = new_page(console)
    watcher.goto("/topics/live-orders/messages/follow")
    expect(watcher.get_by_role("status")).to_have_text("live")

    page.goto("/topics/live-orders/messages")
    produced = page.locator("#produce")
    produced.get_by_label("Key").fill("order-7")
    produced.get_by_label("Value", exact=True).fill('{"total": 12.5, "items": ["tea"]}')
    produced.get_by_label("Headers").fill("source=browser")
    produced.get_by_role("button", name="Produce").click()
    expect(page.get_by_role("status")).to_contain_text("at offset 0")

    row = watcher.locator("#rows tr")
    expect(row).to_have_count(1)
    for text in ("order-7", '"total": 12.5', "source"):
        expect(row).to_contain_text(text)


def test_messages_are_found_by_offset_and_by_time(page: Page, console: RunningConsole) -> None:
    now_ms = int(time.time() * 1000)
    times_ms = [now_ms - (10 - hour) * HOUR_MS for hour in range(10)]
    with Producer(console.broker.bootstrap) as producer:
        for number, time_ms in enumerate(times_ms):
            producer.send("sought", f"message {number}", partition=0, timestamp_ms=time_ms)
    page.goto("/topics/sought/messages")
    page.get_by_label("From offset").fill("7")
    page.get_by_role("button", name="Show").click()
    rows = page.locator(".messages tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.first).to_contain_text("message 7")

    page.get_by_label("From offset").fill("")
    page.get_by_label("or from time").fill(iso(times_ms[4] - 60_000))
    page.get_by_role("button", name="Show").click()
    expect(rows).to_have_count(6)
    expect(rows.first).to_contain_text("message 4")
    keep_image(page, "messages")


def test_a_search_finds_a_needle_in_all_partitions_and_shows_its_progress(page: Page, console: RunningConsole) -> None:
    Admin(console.broker.bootstrap).create_topic("haystack", 3)
    for partition in range(3):
        produce(
            console.broker.bootstrap, "haystack", [f"straw {number}" for number in range(2000)], partition=partition
        )
    produce(console.broker.bootstrap, "haystack", ["a NEEDLE in it"], partition=1)
    page.goto("/topics/haystack/messages/search")
    page.get_by_label("Search for").fill("needle")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("#outcome")).to_contain_text("done: 1 found in 6,001 of 6,001 messages")
    expect(page.locator("#rows tr")).to_have_count(1)
    expect(page.locator("#rows tr")).to_contain_text("a NEEDLE in it")


def test_a_group_is_reset_after_a_preview(page: Page, console: RunningConsole) -> None:
    bootstrap = console.broker.bootstrap
    produce(bootstrap, "read-again", [str(number) for number in range(10)], partition=0)
    with Consumer("read-again", "readers", bootstrap) as consumer:
        read = 0
        while read < 10:
            read += len(consumer.consume(timeout_s=20))
        consumer.commit()
    page.goto("/group?name=readers")
    page.locator("select[name=to]").first.select_option("offset")
    page.get_by_label("Time, offset or number").first.fill("4")
    page.get_by_role("button", name="Preview").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("preview")
    [move] = page.locator("tbody tr").all()
    expect(move).to_contain_text("repeats 6")
    [group] = ConsumerGroups(bootstrap).describe_groups(["readers"])
    assert group.lag == 0
    keep_image(page, "reset")
    page.get_by_role("button", name="Reset the group").click()
    expect(page.get_by_role("status")).to_contain_text("was reset in 1 partition")
    [group] = ConsumerGroups(bootstrap).describe_groups(["readers"])
    assert [each.committed_offset for each in group.partitions] == [4]
    expect(page.locator("#group")).to_contain_text("read-again")


def test_the_audit_goes_red_when_messages_are_lost(new_page: NewPage, tmp_path: Path) -> None:
    """Cuts acknowledged and stored messages from the file behind the broker's back."""
    then_ms = int(time.time() * 1000) - HOUR_MS
    with BrokerProcess(tmp_path / "data", settings={"log.retention.ms": "-1"}) as broker:
        audit = ProducerAudit("shop", journal_dir=tmp_path / "journal")
        with Producer(broker.bootstrap, audit=audit, config={"linger.ms": 60_000}) as producer:
            for part in range(2):
                for number in range(10):
                    producer.send("precious", f"{part}-{number}", partition=0, timestamp_ms=then_ms)
                producer.flush()
        with running_console(broker) as console:
            page = new_page(console)
            wait_until(lambda: audited(console) == [("precious", 20, 20, "complete")], "the books to balance", 60)
            page.goto("/audit?topic=precious")
            expect(page.locator("#audit tbody .tag.good", has_text="complete").first).to_be_visible()

            broker.kill()
            [segment] = (tmp_path / "data" / "precious-0").glob("*.log")
            *_, (_, last_batch) = iterate_batches(segment.read_bytes())  # librdkafka decides how many messages it has
            with segment.open("r+b") as file:
                file.truncate(segment.stat().st_size - 20)
            broker.start()

            wait_until(lambda: [row[3] for row in audited(console)] == ["lost"], "the loss to be seen", 60)
            expect(page.locator("#audit tbody tr.bad").first).to_contain_text("lost", timeout=patience(30) * 1000)
            expect(page.locator("#audit")).to_contain_text(f"{last_batch.record_count} message")
            keep_image(page, "audit")
            page.goto("/")
            expect(page.locator(".verdicts li.bad", has_text="Lost")).to_contain_text(
                "do not balance", timeout=patience(30) * 1000
            )


def audited(console: RunningConsole) -> list[tuple[object, ...]]:
    windows = console.client.get("/audit.json?topic=precious").json().get("windows", [])
    return [(row["topic"], row["produced"], row["stored"], row["verdict"]) for row in windows]


def test_the_overview_follows_what_happens_without_being_loaded_again(page: Page, console: RunningConsole) -> None:
    page.goto("/")
    page.evaluate("window.same = true")
    held = page.locator("dl.cards div", has_text="Messages held").locator("dd")
    before = held.inner_text()
    produce(console.broker.bootstrap, "fresh-arrivals", ["one"] * 1000)
    expect(held).not_to_have_text(before)
    assert page.evaluate("window.same") is True


SCHEMES: Final[tuple[Literal["dark", "light"], ...]] = ("dark", "light")
PAGES: Final = (
    "/",
    "/topics?internal=1",
    "/topics/hostile",
    "/topics/hostile/messages",
    "/topics/hostile/messages/search?q=script",
    "/topics/hostile/messages/0/0",
    "/groups",
    "/group?name=%3Cscript%3E",
    "/audit",
    "/pipelines",
)


@pytest.fixture(scope="module")
def hostile(console: RunningConsole) -> RunningConsole:
    """A cluster with everything that untrusted clients can put into it."""
    bootstrap = console.broker.bootstrap
    with Producer(bootstrap) as producer:
        for value in (HOSTILE, f'{{"{HOSTILE[:8]}": "</pre><script>window.hacked = 3</script>"}}'):
            producer.send("hostile", value, key=HOSTILE, headers=[(HOSTILE, HOSTILE.encode())], partition=0)
    for group in (HOSTILE, "<script>"):
        with Consumer("hostile", group, bootstrap, config={"client.id": HOSTILE}) as consumer:
            wait_until(lambda: consumer.consume(timeout_s=0.2), "messages")
    return console


def test_hostile_content_is_text(new_page: NewPage, hostile: RunningConsole) -> None:
    page = new_page(hostile)
    for path in PAGES:
        page.goto(path)
        if "search" in path:
            expect(page.locator("#outcome")).to_contain_text("done")
        assert page.evaluate("window.hacked") is None, path
        assert page.locator("main script:not([src]), main img, main [onerror]").count() == 0, path
        if "messages" in path:
            expect(page.locator("main")).to_contain_text("<script>window.hacked = 1</script>")


def test_pages_fit_a_phone_and_name_what_can_be_filled_in(new_page: NewPage, hostile: RunningConsole) -> None:
    page = new_page(hostile, viewport={"width": 375, "height": 740})
    unnamed = """Array.from(document.querySelectorAll("input:not([type=hidden]), select, textarea, button"))
        .filter((field) => !field.labels?.length && !field.ariaLabel && !field.textContent.trim())
        .map((field) => field.outerHTML)"""
    for path in PAGES:
        page.goto(path)
        assert page.get_by_role("heading", level=1).count() == 1, path
        assert page.evaluate(unnamed) == [], path
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate("document.documentElement.scrollWidth") <= 375, path
            background = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (sum(map(int, background.strip("rgb()").split(","))) < 3 * 128) == (scheme == "dark"), path
            if path == "/":
                keep_image(page, f"phone-{scheme}")


def test_the_keyboard_reaches_the_content_and_the_theme(page: Page) -> None:
    page.goto("/topics")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    page.get_by_role("button", name="Light or dark").press("Enter")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_a_topic_is_deleted_after_its_name_was_typed(new_page: NewPage, console: RunningConsole) -> None:
    Admin(console.broker.bootstrap).create_topic("doomed", 1)
    page = new_page(console, may_be_rejected=True)  # its page may be refreshed once more when it is gone
    page.goto("/topics/doomed")
    page.on("dialog", lambda dialog: dialog.accept())
    danger = page.locator("form", has_text="Delete the topic")
    danger.get_by_role("button").click()  # the browser asks for the name
    expect(page).to_have_url(f"{console.url}/topics/doomed")
    danger.locator("input:not([type=hidden])").fill("doomed")
    danger.get_by_role("button").click()
    expect(page).to_have_url(f"{console.url}/topics")
    assert "doomed" not in {topic.name for topic in Admin(console.broker.bootstrap).list_topics()}
