"""What producers and consumers tell an audit, and what they do for it.

`skylog.audit` has the audits; a client is handed one as `audit=` and knows it by these protocols alone. An audit opens
a tier per client; the tier is called as messages pass and publishes what it counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from confluent_kafka import Message as LibraryMessage

Publish = Callable[[str, bytes, Callable[[bool], None]], None]
"""`publish(topic, value, done)`: send a tier's report. `done` is told, once, whether it is stored; maybe on another
thread. The topic is created if it is not there. What is published so passes no tier."""


class ProducerTier(Protocol):
    """Counts what a producer sends. `sent` may come from many threads at once, the others from one at a time."""

    def sent(self, topic: str, sent_ms: int) -> None:
        """A message with the time `sent_ms` is about to be handed over. Its fate follows, by one of the next two."""

    def acknowledged(self, topic: str, sent_ms: int, stored_ms: int, size_bytes: int) -> None:
        """It is stored, under the time `stored_ms`, which differs where the topic uses LogAppendTime."""

    def failed(self, topic: str, sent_ms: int, *, may_be_stored: bool) -> None:
        """It was given up; `may_be_stored` where nobody can tell."""

    def tick(self) -> None:
        """Called several times a second: publish what is due."""

    def close(self) -> None:
        """The last call, after everything has met its fate: publish the rest."""


class ProducerAudit(Protocol):
    def open_producer(self, publish: Publish) -> ProducerTier: ...


class ConsumerTier(Protocol):
    """Counts what a member of a group is done with. One thread calls it.

    Counts are of what has been committed: what is read again because nobody committed it was not consumed before. The
    counts go into the commit's metadata, so offset and counts are stored together, and are published after it; a member
    that gets the partition publishes what it finds there, in case that its predecessor could not.
    """

    def assigned(self, topic: str, partition: int, metadata: str | None) -> None:
        """This member owns the partition from now on; `metadata` is of its last commit."""

    def consumed(self, messages: Sequence[LibraryMessage]) -> None:
        """The application is done with these, which are in the order of their offsets within each partition."""

    def metadata(self, topic: str, partition: int, end_offset: int) -> str:
        """What to commit along with `end_offset`. Everything consumed before that offset has been told."""

    def committed(self, topic: str, partition: int, end_offset: int) -> None:
        """That commit is stored."""

    def revoked(self, topic: str, partition: int) -> None:
        """The partition is another member's: forget what was not committed."""

    def moved(self, topic: str, partition: int) -> None:
        """The application went to another offset: forget what was not committed."""

    def tick(self) -> None:
        """Called now and then: publish what is due."""

    def close(self) -> None:
        """The last call: publish the rest."""


class ConsumerAudit(Protocol):
    def open_consumer(self, group: str, publish: Publish) -> ConsumerTier: ...
