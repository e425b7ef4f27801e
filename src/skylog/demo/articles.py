"""The contents of the website: its pages, with titles and texts, and its users, with addresses and subscriptions.

Both are changelogs: compacted topics with the page or the user as key. Pure, except for `Publisher`.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, Final

from skylog.demo.layout import PAGES_TOPIC, USERS_TOPIC
from skylog.demo.website import PAGES, RISING_PAGE, User

if TYPE_CHECKING:
    from collections.abc import Iterable

    from skylog.client import Producer

_SUBJECTS: Final = (
    "the night ferry",
    "a new bakery",
    "the old lighthouse",
    "the rowing club",
    "the school orchestra",
    "a lost lantern",
    "the tram depot",
    "the paper mill",
    "a visiting astronomer",
    "the harbour council",
    "the clinic on the hill",
    "a quiet engine",
)
_VERBS: Final = (
    "opens again",
    "moves",
    "celebrates",
    "looks for help",
    "changes its hours",
    "wins a prize",
    "is saved",
)
_PLACES: Final = ("by the river", "in the old town", "near the station", "at low tide", "behind the market", "at noon")
_DETAILS: Final = (
    "Neighbours had waited for this since the winter.",
    "Nobody expected so many visitors on a weekday.",
    "Tickets are free, and soup is served afterwards.",
    "The council will decide about the costs next month.",
    "Volunteers repaired the roof in a single weekend.",
    "A photograph from 1931 shows the same view.",
    "The first boat leaves an hour earlier than before.",
)
_COMET: Final = {
    "title": "A comet over the harbour",
    "section": "news",
    "text": "A comet stands over the harbour tonight. Watch it from the pier after ten, when the lights are out. "
    "A visiting astronomer brings her telescope, and the night ferry waits for latecomers.",
}
_SUBSCRIBED: Final = 0.1
RETIRED_PAGE: Final = PAGES[-1]


def article(page: str) -> dict[str, Any]:
    """Return the contents of a page: always the same."""
    if page == RISING_PAGE:
        return dict(_COMET)
    random = Random(page)
    subject, place = random.choice(_SUBJECTS), random.choice(_PLACES)
    title = f"{subject} {random.choice(_VERBS)}"
    text = f"{subject} {place}: {' '.join(random.sample(_DETAILS, 3))}"
    return {"title": _capital(title), "section": page.split("/")[1], "text": _capital(text)}


def subscription(user: User) -> dict[str, Any]:
    """Return a user's address, and the sections that they get by mail: none, for most."""
    random = Random(user.id)
    sections = random.sample(("news", "jobs", "people", "events", "guides"), 2) if random.random() < _SUBSCRIBED else []
    return {"address": f"user{user.id}@{user.organisation}.example", "name": f"User {user.id}", "sections": sections}


class Publisher:
    """Writes the contents to their topics. `publish` at the start, `revise` at the end."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def publish(self, users: Iterable[User]) -> None:
        with self._producer.batch():
            for page in (*PAGES, RISING_PAGE):
                self._producer.send(PAGES_TOPIC, article(page), page)
            for user in users:
                self._producer.send(USERS_TOPIC, subscription(user), str(user.id))

    def revise(self) -> None:
        """Change one page and delete another, so that the index has to follow."""
        comet = article(RISING_PAGE)
        comet["text"] += " Update: the comet was seen by everybody in the harbour, and comes back in 76 years."
        with self._producer.batch():
            self._producer.send(PAGES_TOPIC, comet, RISING_PAGE)
            self._producer.send(PAGES_TOPIC, None, RETIRED_PAGE)


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
