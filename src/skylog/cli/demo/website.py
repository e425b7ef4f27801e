"""Visitors of a made-up website: organisations, their users, and what they look at. Pure: chance and time are given.

Organisations and pages are chosen as on real sites, where few have most of it (Zipf's law). Users come in sessions that
go from page to page. One page is hardly known at first, and then everybody wants to see it.
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
_VISITORS: Final = 200  # sessions at the same time
_VIEWS_PER_SESSION: Final = 6
_SHARED: Final = 0.03  # of the views
_SKEW: Final = 1.05
_RISING_SHARE: Final = 0.25
_RISING_FOR_S: Final = 15.0  # until the page has all of its share
_JOINED_S: Final = 1_600_000_000.0


@dataclass(frozen=True, slots=True)
class User:
    """As event tracking wants it: an id and when it was made."""

    id: int
    created_at: float
    organisation: str


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that an application would fire an event for."""

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
    """Gives one request after another. Equal seeds give equal visitors."""

    def __init__(self, random: Random, *, rises_after_s: float = 20.0) -> None:
        self._random = random
        self._rises_after_s = rises_after_s
        self._page_weights = _zipf(len(PAGES))
        organisations = random.choices(ORGANISATIONS, cum_weights=_zipf(len(ORGANISATIONS)), k=_USERS)
        self._users = [User(1000 + number, _JOINED_S + number * 60, name) for number, name in enumerate(organisations)]
        self._sessions = [self._session() for _ in range(_VISITORS)]

    def request(self, elapsed_s: float) -> Sequence[Happening]:
        """What one of the visitors does next, so long after the beginning."""
        random = self._random
        place = random.randrange(len(self._sessions))
        session = self._sessions[place]
        referrer, session.page = session.page, self._page(elapsed_s)
        about = {"page": session.page, "org_id": session.user.organisation, "session": session.id}
        happened = [Happening("page.view", session.user, {**about, "referrer": referrer or None})]
        if session.is_new:
            session.is_new = False
            happened.insert(0, Happening("session.start", session.user, about))
        if random.random() < _SHARED:
            happened.append(Happening("page.share", session.user, about))
        if random.random() < 1 / _VIEWS_PER_SESSION:
            self._sessions[place] = self._session()
        return happened

    def _session(self) -> _Session:
        return _Session(f"{self._random.getrandbits(64):016x}", self._random.choice(self._users))

    def _page(self, elapsed_s: float) -> str:
        risen = min(max((elapsed_s - self._rises_after_s) / _RISING_FOR_S, 0.0), 1.0)
        if self._random.random() < 0.001 + risen * _RISING_SHARE:
            return RISING_PAGE
        return self._random.choices(PAGES, cum_weights=self._page_weights)[0]


def _zipf(count: int) -> list[float]:
    """Cumulative weights: the n-th has about one n-th of the first."""
    return list(accumulate(1 / rank**_SKEW for rank in range(1, count + 1)))
