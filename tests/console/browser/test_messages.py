"""Messages in a browser: what is stored is what is shown, found and produced again."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from skylog import Producer, SimpleConsumer
from tests.console.browser.conftest import NewPage
from tests.console.conftest import RunningConsole

STORED = '{"price": 1.10, "price": 1e2}'
START_MS = 1_777_636_800_000  # 2026-05-01T12:00Z


@pytest.fixture(scope="module", autouse=True)
def messages(console: RunningConsole) -> None:
    with Producer(console.broker.bootstrap) as producer:
        for number, value in enumerate((STORED, '{"user": {"id": 7}}', '{"user": {"id": 70}}', "line\n" * 500)):
            headers: dict[str, str | bytes | None] = {"source": b"web shop"}
            time_ms = START_MS + number * 1000
            producer.send("seen", value, key=f"k{number}", headers=headers, partition=0, timestamp_ms=time_ms)


def test_stored_json_is_shown_as_it_is_stored_raw_pretty_and_as_bytes(
    new_page: NewPage, console: RunningConsole
) -> None:
    page = new_page(console)
    page.goto("/topics/seen/messages?offset=0&limit=1")
    value = page.locator("td.value pre").first
    expect(value).to_have_text('{ "price": 1.10, "price": 1e2 }')
    page.get_by_role("link", name="raw").first.click()
    expect(value).to_have_text(STORED)
    page.get_by_role("link", name="hex").first.click()
    expect(value).to_contain_text("000000  7b 22 70 72 69 63 65")


def test_a_long_value_is_folded_and_can_be_copied_whole(new_page: NewPage, console: RunningConsole) -> None:
    page = new_page(console, permissions=["clipboard-read", "clipboard-write"])
    page.goto("/topics/seen/messages?offset=3")
    whole = page.locator("td.value details.folded > pre")
    expect(whole).to_be_hidden()
    page.get_by_text("Show all").first.click()
    expect(whole).to_be_visible()
    page.get_by_role("button", name="Copy the value of 0:3").click()
    expect(page.get_by_role("button", name="Copy the value of 0:3")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == "line\n" * 500


def test_a_filter_joins_conditions_and_what_is_no_filter_is_an_error(
    new_page: NewPage, console: RunningConsole
) -> None:
    page = new_page(console)
    page.goto("/topics/seen/messages/search")
    page.get_by_label("Filter").fill("$.user.id > 7 AND headers.source contains shop AND key != k1")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("#outcome")).to_contain_text("done: 1 found")
    expect(page.locator("#rows tr")).to_contain_text("70")


def test_an_invalid_filter_is_kept_with_the_reason(console: RunningConsole) -> None:
    response = console.get("/topics/seen/messages/search", params={"filter": "user.id ~ 7"})
    assert response.status_code == 400
    assert "is not a condition" in response.text
    assert 'value="user.id ~ 7"' in response.text


def test_times_are_relative_and_local_if_you_like(new_page: NewPage, console: RunningConsole) -> None:
    page = new_page(console, timezone_id="Asia/Tokyo")
    page.goto("/topics/seen/messages?offset=0&limit=1")
    when = page.locator("td.when").first
    expect(when).to_have_text("2026-05-01 12:00:00.000")
    page.get_by_role("button", name="Local time").click()
    expect(when).to_have_text("2026-05-01 21:00:00.000")
    page.get_by_label("From offset").fill("")
    page.get_by_label("or from time").fill("2026-05-01T21:00:02")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("th[scope=row]").first).to_have_text("0:2")
    expect(when).to_have_text("2026-05-01 21:00:02.000")
    expect(page.get_by_label("or from time")).to_have_value("2026-05-01 21:00:02.000")
    page.goto("/topics/seen/messages?time=-1h")
    expect(page.locator("main")).to_contain_text("There are no messages here.")


def test_a_message_is_produced_again_as_it_was(new_page: NewPage, console: RunningConsole) -> None:
    page = new_page(console)
    page.goto("/topics/seen/messages?offset=0&limit=1")
    page.get_by_role("link", name="Produce 0:0 again").click()
    page.get_by_role("button", name="Produce again").click()
    expect(page.get_by_role("status")).to_contain_text("Stored in partition 0 at offset 4")
    with SimpleConsumer("seen", 0, 4, console.broker.bootstrap) as consumer:
        [copy] = consumer.consume(1, timeout_s=20)
    assert (copy.key, copy.value, copy.headers) == (b"k0", STORED.encode(), (("source", b"web shop"),))
