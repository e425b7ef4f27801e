"""What a page says when it does not know: no false all-clear."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from skylog import Admin, Consumer, Producer
from skylog.testing import BrokerProcess, produce
from tests.console.browser.conftest import NewPage
from tests.console.conftest import RunningConsole
from tests.patience import patience
from tests.proof import IS_FULL


@pytest.fixture
def any_page(chromium: Browser) -> Iterator[Callable[[str], Page]]:
    """Opens a page that may have errors, because what it asks for goes away."""
    contexts = []

    def open_page(url: str) -> Page:
        context = chromium.new_context(base_url=url)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(patience(20) * 1000)
        expect.set_options(timeout=patience(20) * 1000)
        return page

    yield open_page
    for context in contexts:
        context.close()


def test_a_page_without_updates_says_so_and_takes_back_its_verdicts(any_page: Callable[[str], Page]) -> None:
    with BrokerProcess(console=True) as broker:
        page = any_page(broker.console_url)
        page.goto("/")
        health = page.locator(".verdicts li", has_text="Health")
        expect(health).to_contain_text("OK")
        expect(page.locator("#stale")).to_be_hidden()
        broker.kill()
        expect(page.locator("#stale")).to_contain_text("This page is out of date")
        expect(page.locator("#stale")).to_contain_text("No updates since")
        for verdict in page.locator(".verdicts li").all():
            expect(verdict).to_contain_text("out of date")
            expect(verdict).to_have_class("unknown")
        assert page.evaluate("getComputedStyle(document.getElementById('live')).filter") == "grayscale(1)"
        broker.start()
        page.goto(broker.console_url)
        expect(health).to_contain_text("OK")


def test_a_group_is_not_called_fine_before_that_is_known(
    new_page: NewPage, console: RunningConsole, abandoned_group: str
) -> None:
    page = new_page(console)
    page.goto(f"/groups?q={abandoned_group}")
    row = page.locator("#groups tbody tr", has_text=abandoned_group)
    expect(row).to_contain_text("unknown")
    expect(row).to_contain_text("500")
    page.goto("/")
    late = page.locator(".verdicts li", has_text="Late")
    expect(late).not_to_contain_text("and keep up.")  # it may say of several groups that it does not know
    expect(late).to_contain_text(abandoned_group)


@pytest.mark.skipif(not IS_FULL, reason="takes two minutes: with `make proof`; tests/console/monitoring has the rules")
@pytest.mark.timeout(300)
def test_a_slow_reader_is_seen_to_fall_behind(new_page: NewPage) -> None:
    with BrokerProcess(console=True) as broker:
        Admin(broker.bootstrap).create_topic("busy", 1)
        produce(broker.bootstrap, "busy", ["x"] * 200_000, partition=0)
        stop = threading.Event()

        def write() -> None:
            with Producer(broker.bootstrap) as producer:
                while not stop.wait(0.1):
                    for _ in range(20):
                        producer.send("busy", "x", partition=0)

        def read() -> None:
            with Consumer("busy", "slow", broker.bootstrap) as consumer:
                while not stop.wait(0.1):
                    consumer.consume(4, timeout_s=0.1)

        threads = [threading.Thread(target=work) for work in (write, read)]
        for thread in threads:
            thread.start()
        try:
            page = new_page(RunningConsole(broker.console_url, None, broker, None))  # type: ignore[arg-type]
            page.goto("/")
            late = page.locator(".verdicts li", has_text="Late")
            expect(late).to_contain_text("slow falls behind", timeout=120_000)
            expect(late).to_contain_text("behind; it reads")
            page.close()  # it would ask a broker that is gone
        finally:
            stop.set()
            for thread in threads:
                thread.join()
