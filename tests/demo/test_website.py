"""The simulated visitors of the demo."""

from __future__ import annotations

from collections import Counter
from random import Random

from skylog.demo.website import ORGANISATIONS, RISING_PAGE, Website


def test_few_pages_and_organisations_have_most_of_the_views() -> None:
    website = Website(Random(1))
    views = [each for _ in range(20_000) for each in website.request(0) if each.event == "page.view"]
    pages = Counter(each.attributes["page"] for each in views)
    organisations = Counter(each.attributes["org_id"] for each in views)
    assert sum(count for _, count in pages.most_common(20)) > len(views) / 2
    assert organisations.keys() == set(ORGANISATIONS)
    assert organisations.most_common(1)[0][1] > 2 * len(views) / len(ORGANISATIONS)


def test_a_session_starts_once_and_goes_from_page_to_page() -> None:
    website = Website(Random(1))
    events = [each for _ in range(5000) for each in website.request(0)]
    sessions: dict[str, list[str | None]] = {}
    for each in events:
        seen = sessions.setdefault(each.attributes["session"], [])
        if each.event == "session.start":
            assert seen == []
        elif each.event == "page.view":
            assert each.attributes["referrer"] == (seen[-1] if seen else None)
            seen.append(each.attributes["page"])
    assert max(map(len, sessions.values())) > 6
    assert sum(each.event == "session.start" for each in events) == len(sessions)


def test_visitors_often_stay_in_a_section() -> None:
    website = Website(Random(1))
    views = [each.attributes for _ in range(5000) for each in website.request(0) if each.event == "page.view"]
    stays = [each["page"].split("/")[1] == each["referrer"].split("/")[1] for each in views if each["referrer"]]
    assert 0.6 < sum(stays) / len(stays) < 0.85


def test_a_page_rises_after_its_time() -> None:
    website = Website(Random(1), rises_after_s=20)

    def share(elapsed_s: float) -> float:
        pages = [each.attributes["page"] for _ in range(4000) for each in website.request(elapsed_s)]
        return pages.count(RISING_PAGE) / len(pages)

    assert share(19) < 0.01
    assert 0.05 < share(27) < 0.20
    assert share(60) > 0.20
