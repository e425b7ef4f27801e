"""Debian's Chromium, driven by Playwright. A page with any error fails its test."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright

from skylog import Consumer
from skylog.testing import BrokerProcess, produce, wait_until
from tests.clients.peers.installation import NotAvailable, debian_program
from tests.console.conftest import RunningConsole
from tests.patience import patience

IMAGES: Final = Path(__file__).parents[3] / "docs" / "images"
KEEPS_IMAGES: Final = bool(os.environ.get("SKYLOG_SCREENSHOTS"))
_OPTIONS: Final = [
    "--no-sandbox",  # root, as in a container, may not use it
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]

NewPage = Callable[..., Page]


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    """Ends with this directory, because Playwright's event loop must not run during tests with their own loop."""
    try:
        program = shutil.which(debian_program("chromium"))
    except NotAvailable as reason:
        pytest.skip(str(reason))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=_OPTIONS)
        yield browser
        browser.close()


@pytest.fixture
def new_page(chromium: Browser) -> Iterator[Callable[[RunningConsole], Page]]:
    """Opens pages of a console. At the end there must have been no error, no dialog and no request to other hosts."""
    wrong: list[str] = []
    contexts = []

    def open_page(console: RunningConsole, *, may_be_rejected: bool = False, **settings: object) -> Page:
        context = chromium.new_context(base_url=console.url, **{"viewport": {"width": 1280, "height": 860}, **settings})  # type: ignore[arg-type]
        contexts.append(context)

        def on_console(message: ConsoleMessage) -> None:
            is_rejection = may_be_rejected and "a status of 4" in message.text  # Chromium logs it as an error
            if message.type in ("error", "warning") and not is_rejection:
                wrong.append(f"{message.type}: {message.text}")

        def on_request(request: Request) -> None:
            if not request.url.startswith((console.url, "data:")):
                wrong.append(f"asks elsewhere: {request.url}")

        page = context.new_page()
        page.on("console", on_console)
        page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        page.on("request", on_request)
        limit_ms = patience(20) * 1000  # a snapshot is taken every 5 s, a refresh every 3
        page.set_default_timeout(limit_ms)
        expect.set_options(timeout=limit_ms)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.fixture
def page(new_page: NewPage, console: RunningConsole) -> Page:
    return new_page(console)


@pytest.fixture(scope="session")
def abandoned_group(broker: BrokerProcess) -> str:
    """A group that has just committed, has 500 messages left to read, and no members any more."""
    group = "a-new-group"
    produce(broker.bootstrap, "newly-read", ["x"] * 500, partition=0)
    with Consumer("newly-read", group, broker.bootstrap) as consumer:
        wait_until(lambda: consumer.consume(timeout_s=0.2), "messages")
        consumer.commit()
    produce(broker.bootstrap, "newly-read", ["x"] * 500, partition=0)
    return group


def keep_image(page: Page, name: str) -> None:
    """Keep a screenshot for the docs, if run by `make screenshots`."""
    if KEEPS_IMAGES:
        IMAGES.mkdir(exist_ok=True)
        page.screenshot(path=str(IMAGES / f"console-{name}.png"))
