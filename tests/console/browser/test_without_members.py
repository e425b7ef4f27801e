"""A group without members. It counts as stuck after a minute, which passes during the tests of the other files."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.console.browser.conftest import NewPage
from tests.console.conftest import RunningConsole
from tests.patience import patience


def test_the_verdict_on_a_stuck_group_opens_that_group_which_is_marked(
    new_page: NewPage, console: RunningConsole, abandoned_group: str
) -> None:
    page = new_page(console)
    page.goto("/")
    stuck = page.locator(".verdicts li", has_text="Stuck")
    expect(stuck).to_contain_text(
        re.compile(f"{abandoned_group}.* messages to read, but no members"), timeout=patience(90) * 1000
    )
    page.goto(f"/groups?pace=stuck&q={abandoned_group}")
    expect(page.locator("#groups tbody tr.bad")).to_contain_text("stuck")
    page.goto("/")
    stuck.get_by_role("link").click()
    if "/groups" in page.url:  # other tests have left groups behind, too
        page.get_by_role("link", name=abandoned_group).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(abandoned_group)
    expect(page.locator("#group .notice.bad")).to_contain_text("Stuck: the group has 500 messages to read")
