"""Simulates what users of the website do beside viewing pages: they log in, follow authors, post and comment.

Pure: the random generator and the time are injected. A few comments are spam. After a while, somebody tries the
passwords of many users from one address.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, Final

from skylog.demo.website import User, WebsiteEvent

ATTACKER: Final = "203.0.113.7"
AUTHORS: Final = 20

_READERS: Final = 300
_JOINED_S: Final = 1_600_000_000.0
_ACTIVE: Final = 0.06  # the share of requests with an action
_ATTACKED: Final = 0.04
_ACTIONS: Final = ("user.login", "user.follow", "user.unfollow", "post.create", "comment.create")
_WEIGHTS: Final = (30, 25, 3, 12, 30)
_MISTYPED: Final = 0.05
_SPAM: Final = 0.1
_TITLES: Final = ("Notes from the harbour", "On lighthouses", "A comet", "Letters from the mill", "Low tide")
_COMMENTS: Final = ("Well said.", "I did not know that.", "See also the one before.", "Thank you!", "Is that so?")
_SPAM_COMMENTS: Final = ("Free money for everybody", "Click here: http://a.example http://b.example http://c.example")


class Community:
    """Generates the actions of users. Equal seeds generate equal actions."""

    def __init__(self, random: Random, *, attacked_after_s: float = 15.0, attacked_for_s: float = 30.0) -> None:
        self._random = random
        self._attack_s = (attacked_after_s, attacked_after_s + attacked_for_s)
        self._users = [User(5000 + number, _JOINED_S + number * 60, "community") for number in range(_READERS)]
        self._written = 0

    def request(self, elapsed_s: float) -> Sequence[WebsiteEvent]:
        """Return the actions of a request, `elapsed_s` after the start. Most have none."""
        random, found = self._random, []
        if random.random() < _ACTIVE:
            (action,) = random.choices(_ACTIONS, _WEIGHTS)
            found.append(self._action(action))
        if self._attack_s[0] <= elapsed_s < self._attack_s[1] and random.random() < _ATTACKED:
            found.append(_login(random.choice(self._users), ATTACKER, is_right=False))
        return found

    def _action(self, action: str) -> WebsiteEvent:
        random = self._random
        if action == "post.create":
            author = self._author()
            return WebsiteEvent(action, author, {"id": self._number(), "title": random.choice(_TITLES)})
        user = random.choice(self._users)
        if action == "user.login":
            return _login(user, _address(user), is_right=random.random() >= _MISTYPED)
        if action == "comment.create":
            body = random.choice(_SPAM_COMMENTS if random.random() < _SPAM else _COMMENTS)
            return WebsiteEvent(action, user, {"id": self._number(), "body": body})
        return WebsiteEvent(action, user, {"author": str(self._author().id)})

    def _author(self) -> User:
        return self._users[min(int(self._random.expovariate(0.2)), AUTHORS - 1)]

    def _number(self) -> str:
        """Return the id of a post or comment. A second run has others."""
        self._written += 1
        return f"{self._random.getrandbits(24):06x}-{self._written}"


def _login(user: User, address: str, *, is_right: bool) -> WebsiteEvent:
    attributes: dict[str, Any] = {"name": f"user-{user.id}", "address": address}
    return WebsiteEvent("user.login" if is_right else "user.login_failed", user, attributes)


def _address(user: User) -> str:
    return f"198.51.100.{user.id % 250}"
