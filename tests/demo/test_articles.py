"""The contents of the demo's website."""

from __future__ import annotations

from random import Random

from skylog.demo.articles import article, subscription
from skylog.demo.website import PAGES, RISING_PAGE, SECTIONS, Website


def test_every_page_has_a_title_a_section_and_a_text_that_do_not_change() -> None:
    articles = {page: article(page) for page in (*PAGES, RISING_PAGE)}
    assert articles == {page: article(page) for page in articles}
    assert {each["section"] for each in articles.values()} == set(SECTIONS)
    assert all(each["title"] and len(each["text"]) > 80 for each in articles.values())


def test_some_users_subscribe_to_sections() -> None:
    found = [subscription(user) for user in Website(Random(1)).users]
    subscribers = [each for each in found if each["sections"]]
    assert 0.05 < len(subscribers) / len(found) < 0.2
    assert all(set(each["sections"]) < set(SECTIONS) for each in subscribers)
    assert len({each["address"] for each in found}) == len(found)
