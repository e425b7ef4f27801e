"""The topic that the job `rising` publishes to, followed: the newest state of every page."""

from __future__ import annotations

from dataclasses import dataclass

from skylog.cli.demo.places import RISING
from skylog.client import Admin, Connection, PartitionReader, TopicNotFoundError


@dataclass(frozen=True)
class RisingPage:
    """A page that is looked at more often than it used to be: `views` lately, where `expected` were to be expected."""

    page: str
    views: int
    expected: float
    rank: int


class RisingPages:
    """Follows the topic from its beginning; it may come later than this does."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._admin = Admin(connection)
        self._reader: PartitionReader | None = None
        self._pages: dict[bytes | None, RisingPage] = {}

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()

    def top(self, count: int) -> list[RisingPage]:
        """The first pages of the ranking, as far as it has been published."""
        reader = self._open()
        for message in reader.read() if reader is not None else ():
            if message.value is None:
                self._pages.pop(message.key, None)  # it is in the ranking no longer
            else:
                row = message.json()
                self._pages[message.key] = RisingPage(row["page"], row["views"], row["expected"], row["rank"])
        return sorted(self._pages.values(), key=lambda page: page.rank)[:count]

    def _open(self) -> PartitionReader | None:
        if self._reader is None:
            try:
                topic = self._admin.describe_topic(RISING)
            except TopicNotFoundError:
                return None
            self._reader = PartitionReader(self._connection, dict.fromkeys(topic.topic_partitions, 0))
        return self._reader
