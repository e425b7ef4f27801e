"""The protocols between producers or consumers and an audit.

`skylog.audit` implements them. A client takes an audit as `audit=` and knows only these protocols. The audit opens one
tier per client. The client reports each message to its tier, which publishes the counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from confluent_kafka import Message as LibraryMessage

Publish = Callable[[str, bytes, Callable[[bool], None]], None]
"""`publish(topic, value, done)`: send a report of a tier. Calls `done` once with whether it is stored, maybe on another
thread. Creates the topic if it does not exist. Reports are not audited themselves."""


class ProducerTier(Protocol):
    """Counts the messages of a producer. `sent` is called from many threads at once, the others from one at a time."""

    def sent(self, topic: str, sent_ms: int) -> None:
        """Called before a message with the timestamp `sent_ms` is queued. One of the next two follows."""

    def acknowledged(self, topic: str, sent_ms: int, stored_ms: int, size_bytes: int) -> None:
        """Called when it is stored. `stored_ms` differs from `sent_ms` if the topic uses LogAppendTime."""

    def failed(self, topic: str, sent_ms: int, *, may_be_stored: bool) -> None:
        """Called when it has failed; with `may_be_stored` if the outcome is unknown."""

    def tick(self) -> None:
        """Called several times a second, to publish due reports."""

    def close(self) -> None:
        """Called last, when every message has a result, to publish the rest."""


class ProducerTierFactory(Protocol):
    """Opens the tier of a producer; `skylog.audit.ProducerAudit` is one."""

    def open_producer(self, publish: Publish) -> ProducerTier: ...


class ConsumerTier(Protocol):
    """Counts the messages that a group member has processed. Called from one thread.

    Only committed messages count: a message that is read again because it was not committed counts once. The counts are
    stored in the commit's metadata, atomically with the offset, and published after the commit. The next member that
    gets the partition publishes the counts it finds there, in case its predecessor could not.
    """

    def assigned(self, topic: str, partition: int, metadata: str | None) -> None:
        """Called when this member gets the partition; `metadata` is that of its last commit."""

    def consumed(self, messages: Sequence[LibraryMessage]) -> None:
        """Called with processed messages, in the order of their offsets within each partition."""

    def metadata(self, topic: str, partition: int, end_offset: int) -> str:
        """Return the metadata to commit with `end_offset`. `consumed` has been called for all messages before it."""

    def committed(self, topic: str, partition: int, end_offset: int) -> None:
        """Called when that commit is stored."""

    def revoked(self, topic: str, partition: int) -> None:
        """Called when the partition goes to another member: forget uncommitted counts."""

    def moved(self, topic: str, partition: int) -> None:
        """Called when the application seeks: forget uncommitted counts."""

    def tick(self) -> None:
        """Called now and then, to publish due reports."""

    def close(self) -> None:
        """Called last, to publish the rest."""


class ConsumerTierFactory(Protocol):
    """Opens the tier of a group member; `skylog.audit.ConsumerAudit` is one."""

    def open_consumer(self, group: str, publish: Publish) -> ConsumerTier: ...
