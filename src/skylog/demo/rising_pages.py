"""Follows the topic of the job `rising` and keeps the latest ranking."""

from __future__ import annotations

from dataclasses import dataclass

from skylog.client import Connection
from skylog.demo.layout import RISING
from skylog.demo.topic_follower import TopicFollower


@dataclass(frozen=True)
class RisingPage:
    """A page with more recent `views` than `expected` from the time before."""

    page: str
    views: int
    expected: float
    rank: int


class RisingPages:
    """Follows the topic from its beginning."""

    def __init__(self, connection: Connection) -> None:
        self._topic = TopicFollower(connection, RISING)
        self._pages: dict[bytes | None, RisingPage] = {}

    def close(self) -> None:
        self._topic.close()

    def top(self, count: int) -> list[RisingPage]:
        """Return the first `count` pages of the latest published ranking."""
        for message in self._topic.read():
            if message.value is None:
                self._pages.pop(message.key, None)  # a tombstone: the page left the ranking
            else:
                row = message.json()
                self._pages[message.key] = RisingPage(row["page"], row["views"], row["expected"], row["rank"])
        return sorted(self._pages.values(), key=lambda page: page.rank)[:count]
