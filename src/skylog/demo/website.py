"""Simulates the visitors of a website: organisations, their users, and the pages they view.

Pure: the random generator and the time are injected. Organisations and pages follow Zipf's law, as on real sites: a few
get most of the traffic. Users come in sessions and go from page to page, often in one section. One page is almost
unknown at first, and then becomes popular.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from typing import Any, Final

ORGANISATIONS: Final = (
    "harbour-press",
    "north-mill",
    "cedar-clinic",
    "blue-tram",
    "orchard-school",
    "tin-whistle",
    "granite-labs",
    "low-tide-cafe",
    "paper-crane",
    "old-lighthouse",
    "river-union",
    "quiet-engine",
)
SECTIONS: Final = ("news", "jobs", "people", "events", "guides")
PAGES: Final = tuple(f"/{SECTIONS[number % len(SECTIONS)]}/{number:03d}" for number in range(200))
RISING_PAGE: Final = "/news/comet-over-the-harbour"

_USERS: Final = 2000
_VISITORS: Final = 200  # concurrent sessions
_VIEWS_PER_SESSION: Final = 6
_SHARED: Final = 0.03  # fraction of views
_SKEW: Final = 1.05
_SAME_SECTION: Final = 0.6  # fraction of views after the first of a session
_RISING_SHARE: Final = 0.25
_RISING_FOR_S: Final = 15.0  # until the page reaches its full share
_JOINED_S: Final = 1_600_000_000.0


@dataclass(frozen=True, slots=True)
class User:
    """A user as event tracking requires it: with an id and the time of creation."""

    id: int
    created_at: float
    organisation: str


@dataclass(frozen=True, slots=True)
class WebsiteEvent:
    """An event of the website, ready to be fired."""

    event: str
    user: User
    attributes: dict[str, Any]


@dataclass(slots=True)
class _Session:
    id: str
    user: User
    is_new: bool = True
    page: str = ""


class Website:
    """Generates requests. Equal seeds generate equal visitors."""

    def __init__(self, random: Random, *, rises_after_s: float = 20.0) -> None:
        self._random = random
        self._rises_after_s = rises_after_s
        self._page_weights = _zipf(len(PAGES))
        organisations = random.choices(ORGANISATIONS, cum_weights=_zipf(len(ORGANISATIONS)), k=_USERS)
        self.users = [User(1000 + number, _JOINED_S + number * 60, name) for number, name in enumerate(organisations)]
        self._sessions = [self._session() for _ in range(_VISITORS)]

    def request(self, elapsed_s: float) -> Sequence[WebsiteEvent]:
        """Return the events of a random visitor's next request, `elapsed_s` after the start."""
        random = self._random
        index = random.randrange(len(self._sessions))
        session = self._sessions[index]
        referrer, session.page = session.page, self._page(elapsed_s, session.page)
        attributes = {"page": session.page, "org_id": session.user.organisation, "session": session.id}
        events = [WebsiteEvent("page.view", session.user, {**attributes, "referrer": referrer or None})]
        if session.is_new:
            session.is_new = False
            events.insert(0, WebsiteEvent("session.start", session.user, attributes))
        if random.random() < _SHARED:
            events.append(WebsiteEvent("page.share", session.user, attributes))
        if random.random() < 1 / _VIEWS_PER_SESSION:
            self._sessions[index] = self._session()
        return events

    def _session(self) -> _Session:
        return _Session(f"{self._random.getrandbits(64):016x}", self._random.choice(self.users))

    def _page(self, elapsed_s: float, before: str) -> str:
        risen = min(max((elapsed_s - self._rises_after_s) / _RISING_FOR_S, 0.0), 1.0)
        if self._random.random() < 0.001 + risen * _RISING_SHARE:
            return RISING_PAGE
        if before and self._random.random() < _SAME_SECTION:
            pages = PAGES[SECTIONS.index(before.split("/")[1]) :: len(SECTIONS)]
            return self._random.choices(pages, cum_weights=self._page_weights[: len(pages)])[0]
        return self._random.choices(PAGES, cum_weights=self._page_weights)[0]


def _zipf(count: int) -> list[float]:
    """Cumulative weights: the n-th weight is about one n-th of the first."""
    return list(accumulate(1 / rank**_SKEW for rank in range(1, count + 1)))
