"""How far a member of a group has come, and the commits that say so."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

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


class Progress:
    """What the application is done with, in each partition that this member owns.

    Of the messages that librdkafka handed out, some are still `ready` in the inbox and some are in the application's
    `hand`; it is done with all others. So the next offset of a partition is that of its first message that is ready, or
    librdkafka's own position where there is none, and nothing need be done per message to know it. If the inbox is
    torn, it is the position as it was `mark`ed before.
    """

    def __init__(self, group: str, client: LibraryConsumer, connection: Connection, inbox: Inbox) -> None:
        self.hand: Message | Sequence[Message] | None = None
        self.taken: list[LibraryMessage] | None = None  # since the tier was last told; None without a tier
        self.failed_count = 0
        self.group = group
        self.client = client
        self.connection = connection
        self.inbox = inbox
        self._tier: ConsumerTier | None = None
        self._committed: dict[TopicPartition, int] = {}
        self._moved: dict[TopicPartition, int] = {}
        self._marked: dict[TopicPartition, int] = {}

    def count_with(self, tier: ConsumerTier) -> None:
        self._tier = tier
        self.taken = []

    def assigned(self, committed: Iterable[LibraryPartition]) -> None:
        """Partitions are this member's from now on; `committed` is what the group has of them."""
        for each in committed:
            key = TopicPartition(each.topic, each.partition)
            self._committed[key] = each.offset
            if self._tier is not None:
                self._tier.assigned(*key, each.metadata)

    def revoked(self, partitions: Iterable[TopicPartition]) -> None:
        for key in partitions:
            self._committed.pop(key, None)
            self._moved.pop(key, None)
            self._marked.pop(key, None)
            self._untake(key)
            if self._tier is not None:
                self._tier.revoked(*key)

    def moved(self, key: TopicPartition, offset: int) -> None:
        """The application went elsewhere in a partition."""
        self._tell(with_hand=False)
        self._untake(key)
        self.placed(key, offset)
        self._committed.pop(key, None)  # coming back to the same offset is worth a commit
        if self._tier is not None:
            self._tier.moved(*key)

    def placed(self, key: TopicPartition, offset: int) -> None:
        """librdkafka has been told to read on from here, and has forgotten where it was."""
        self._moved[key] = offset

    def next_offsets(self, *, with_hand: bool) -> dict[TopicPartition, int]:
        """The offset after the last message that is done with, in every partition that has one."""
        offsets = dict(self._marked) if self.inbox.is_torn else self._positions()
        unfinished = [] if with_hand else self._in_hand()
        for message in reversed([*unfinished, *self.inbox.ready]):
            offsets[message.topic_partition] = message.offset
        return offsets

    def mark(self) -> None:
        """Remember how far librdkafka is, before it is asked for more."""
        self._marked = self._positions()

    def _positions(self) -> dict[TopicPartition, int]:
        positions = {}
        for each in self.client.position(self.client.assignment()):
            key = TopicPartition(each.topic, each.partition)
            if each.offset >= 0:
                positions[key] = each.offset
            elif key in self._moved:  # where nothing has been read since
                positions[key] = self._moved[key]
        return positions

    def commit(self, *, wait: bool, with_hand: bool) -> None:
        """Let the group's offsets be what is done with. Raises SkylogError if `wait` and that fails."""
        offsets = self.next_offsets(with_hand=with_hand)
        self._tell(with_hand=with_hand)
        changed = [
            LibraryPartition(*key, offset, "" if self._tier is None else self._tier.metadata(*key, offset))
            for key, offset in offsets.items()
            if self._committed.get(key) != offset
        ]
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
            raise self.connection.error(error, f"committing the offsets of group '{self.group}'") from error

    def on_commit(self, error: LibraryError | None, partitions: list[LibraryPartition], *, wait: bool = False) -> None:
        """What became of a commit."""
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

    def _untake(self, key: TopicPartition) -> None:
        """The tier is not to hear of what was taken of a partition."""
        if self.taken:
            self.taken = [raw for raw in self.taken if (raw.topic(), raw.partition()) != key]

    def _in_hand(self) -> Sequence[Message]:
        if self.hand is None:
            return ()
        return (self.hand,) if isinstance(self.hand, Message) else self.hand

    def _tell(self, *, with_hand: bool) -> None:
        """Let the tier know of everything that is done with."""
        if self._tier is None or not self.taken:
            return
        unfinished = set() if with_hand else {id(message.raw) for message in self._in_hand()}
        done = [raw for raw in self.taken if id(raw) not in unfinished]
        self.taken = [raw for raw in self.taken if id(raw) in unfinished]
        self._tier.consumed(done)
