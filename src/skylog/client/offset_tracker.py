"""Tracks the processed offsets of a group member and commits them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from confluent_kafka import Consumer as LibraryConsumer
from confluent_kafka import KafkaError as LibraryError
from confluent_kafka import KafkaException
from confluent_kafka import Message as LibraryMessage
from confluent_kafka import TopicPartition as LibraryPartition

from skylog.client.connection import Connection
from skylog.client.inbox import Inbox
from skylog.client.message import Message
from skylog.client.tier import ConsumerTier
from skylog.model import TopicPartition

logger = logging.getLogger(__name__)


class Bookmark(NamedTuple):
    """Where a member was at some time. `revoked_count` is the tracker's at that time."""

    offsets: Mapping[TopicPartition, int]
    revoked_count: int


class OffsetTracker:
    """The processed offsets in each partition that this member owns.

    Of the messages that librdkafka returned, some are still `ready` in the inbox and some are `current`: the
    application is processing them. All others are processed. So the next offset of a partition is that of its first
    ready message, or librdkafka's own position if there is none, and no work per message is needed. If the inbox was
    interrupted, it is the position that `mark` recorded before.
    """

    def __init__(self, group: str, client: LibraryConsumer, connection: Connection, inbox: Inbox[Any]) -> None:
        self.current: Message[object] | Sequence[Message[object]] | None = None
        self.uncounted: list[LibraryMessage] | None = None  # returned, not yet passed to the tier; None without a tier
        self.failed_count = 0
        self.revoked_count = 0  # how often this member has lost partitions
        self.group = group
        self.client = client
        self.connection = connection
        self.inbox = inbox
        self._tier: ConsumerTier | None = None
        self._committed: dict[TopicPartition, int] = {}
        self._starts: dict[TopicPartition, int] = {}
        self._moved: dict[TopicPartition, int] = {}
        self._marked: dict[TopicPartition, int] = {}
        self._revoked_at: dict[TopicPartition, int] = {}  # the `revoked_count` when a partition was last lost

    def set_tier(self, tier: ConsumerTier) -> None:
        self._tier = tier
        self.uncounted = []

    def assigned(self, committed: Iterable[LibraryPartition], starts: Iterable[LibraryPartition]) -> None:
        """Add newly assigned partitions, with their committed offsets and those where reading begins."""
        for each in starts:
            key = TopicPartition(each.topic, each.partition)
            self._starts[key] = each.offset
            self.placed(key, each.offset)
        for each in committed:
            key = TopicPartition(each.topic, each.partition)
            self._committed[key] = each.offset
            if self._tier is not None:
                self._tier.assigned(*key, each.metadata)

    def revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget partitions that this member has lost. The current messages in them are not its own any more."""
        gone = set(partitions)
        self.revoked_count += bool(gone)
        self.current = [each for each in self._current_messages() if each.topic_partition not in gone]
        for key in gone:
            self._revoked_at[key] = self.revoked_count
            self._starts.pop(key, None)
            self._committed.pop(key, None)
            self._moved.pop(key, None)
            self._marked.pop(key, None)
            self._drop_uncounted(key)
            if self._tier is not None:
                self._tier.revoked(*key)

    def moved(self, key: TopicPartition, offset: int) -> None:
        """Called when the application seeks in a partition."""
        self._count(with_current=False)
        self._drop_uncounted(key)
        self.placed(key, offset)
        self._committed.pop(key, None)  # a seek to the committed offset must be committed too
        if self._tier is not None:
            self._tier.moved(*key)

    def placed(self, key: TopicPartition, offset: int) -> None:
        """Called when librdkafka is assigned a new offset and loses its position. It may be OFFSET_BEGINNING."""
        if offset >= 0:
            self._moved[key] = offset
        else:
            self._moved.pop(key, None)

    def next_offsets(self, *, with_current: bool) -> dict[TopicPartition, int]:
        """Return the offset after the last processed message, in every partition that has one.

        `with_current` counts the current messages as processed.
        """
        offsets = dict(self._marked) if self.inbox.is_interrupted else self._positions()
        unfinished = [] if with_current else self._current_messages()
        for message in reversed([*unfinished, *self.inbox.ready]):
            offsets[message.topic_partition] = message.offset
        return offsets

    def bookmark(self) -> Bookmark:
        """Return the offset of the first message in each partition that is not processed."""
        return Bookmark(self.next_offsets(with_current=False), self.revoked_count)

    def places_at(self, bookmark: Bookmark) -> dict[TopicPartition, int]:
        """Return where to read again what was returned after a bookmark.

        A partition that this member has got since, perhaps after it had lost it, is read from where it began there.
        """
        kept = {
            key: offset
            for key, offset in bookmark.offsets.items()
            if self._revoked_at.get(key, 0) <= bookmark.revoked_count
        }
        return {**self._starts, **kept}

    def mark(self) -> None:
        """Record librdkafka's positions before the next fill."""
        self._marked = self._positions()

    def _positions(self) -> dict[TopicPartition, int]:
        positions = {}
        for each in self.client.position(self.client.assignment()):
            key = TopicPartition(each.topic, each.partition)
            if each.offset >= 0:
                positions[key] = each.offset
            elif key in self._moved:  # nothing has been read since
                positions[key] = self._moved[key]
        return positions

    def uncommitted(self, *, with_current: bool) -> list[LibraryPartition]:
        """Return the processed offsets that are not committed yet, with their metadata."""
        offsets = self.next_offsets(with_current=with_current)
        self._count(with_current=with_current)
        return [
            LibraryPartition(*key, offset, "" if self._tier is None else self._tier.metadata(*key, offset))
            for key, offset in offsets.items()
            if self._committed.get(key) != offset
        ]

    def commit(self, *, wait: bool, with_current: bool) -> None:
        """Commit the processed offsets. Raises SkylogError if that fails and `wait` is set."""
        changed = self.uncommitted(with_current=with_current)
        if not changed:
            return
        if wait and self.connection.down_reason is not None:
            self.connection.metadata(self.client)  # raises unless a broker answers again: a commit would hang
        try:
            if wait:
                self.on_commit(None, self.client.commit(offsets=changed, asynchronous=False) or changed, wait=True)
            else:
                self.client.commit(offsets=changed, asynchronous=True)
        except KafkaException as error:
            self.failed_count += 1
            raise self.connection.error(error, f"cannot commit the offsets of group '{self.group}'") from error

    def on_commit(self, error: LibraryError | None, partitions: list[LibraryPartition], *, wait: bool = False) -> None:
        """Handle the result of a commit."""
        for each in partitions:
            key = TopicPartition(each.topic, each.partition)
            failure = error or each.error
            if failure is None:
                self._committed[key] = each.offset
                if self._tier is not None:
                    self._tier.committed(*key, each.offset)
            elif wait:
                raise KafkaException(failure)
            else:
                self.failed_count += 1
                logger.warning("group '%s' could not commit %s at %d: %s", self.group, key, each.offset, failure.str())

    def _drop_uncounted(self, key: TopicPartition) -> None:
        if self.uncounted:
            self.uncounted = [raw for raw in self.uncounted if (raw.topic(), raw.partition()) != key]

    def _current_messages(self) -> Sequence[Message[object]]:
        if self.current is None:
            return ()
        return (self.current,) if isinstance(self.current, Message) else self.current

    def _count(self, *, with_current: bool) -> None:
        """Pass all processed messages to the tier."""
        if self._tier is None or not self.uncounted:
            return
        unfinished = set() if with_current else {id(message.raw) for message in self._current_messages()}
        done = [raw for raw in self.uncounted if id(raw) not in unfinished]
        self.uncounted = [raw for raw in self.uncounted if id(raw) in unfinished]
        self._tier.consumed(done)
