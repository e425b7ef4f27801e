"""Errors of clients. Each message explains what to do next."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from skylog.errors import ErrorCode, KafkaError, SkylogError


class BrokerUnreachableError(SkylogError):
    """No broker answers at the bootstrap address, or none accepts this client. `hint` says what to do about it."""

    def __init__(self, bootstrap: str, reason: str, hint: str = "is one running? start one with: skylog serve") -> None:
        super().__init__(f"no broker can be reached at {bootstrap} ({reason}); {hint}")
        self.bootstrap = bootstrap


class CoordinatorUnreachableError(BrokerUnreachableError):
    """The coordinator of a group does not answer. The cluster may be about to choose another one."""


class TopicNotFoundError(KafkaError):
    """The cluster has no such topic. `nearest` are existing topics with similar names."""

    def __init__(self, topic: str, known: Iterable[str]) -> None:
        self.topic = topic
        # It may have been created meanwhile, and orders__sent comes from a topic `orders` that is not there.
        others = [name for name in known if name != topic and not name.startswith(f"{topic}__")]
        self.nearest = tuple(difflib.get_close_matches(topic, others, n=3))
        hint = f"did you mean {' or '.join(self.nearest)}?" if self.nearest else "see: skylog topics list"
        super().__init__(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic '{topic}'; {hint}")


class SerializeError(SkylogError):
    """A value that cannot be serialized."""


class DeserializeError(SkylogError):
    """A message that the deserializer cannot read. To skip it, continue at `offset + 1`."""

    def __init__(self, topic: str, partition: int, offset: int, cause: object) -> None:
        super().__init__(
            f"the value of {topic}-{partition} at offset {offset} cannot be read ({cause}); "
            f"show it with: skylog tail {topic} --partition {partition} --offset {offset} -n 1 --no-follow"
        )
        self.topic, self.partition, self.offset = topic, partition, offset


class DeliveryError(SkylogError):
    """A message that was not stored, or whose outcome is unknown.

    If `may_be_stored` is true, the outcome is unknown and sending it again may store it twice.
    """

    def __init__(self, topic: str, partition: int | None, reason: str, *, may_be_stored: bool) -> None:
        where = f"topic '{topic}'" if partition is None else f"{topic}-{partition}"
        super().__init__(f"a message to {where} was not delivered: {reason}")
        self.topic, self.partition, self.may_be_stored = topic, partition, may_be_stored


class BufferFullError(SkylogError):
    """The queue is full: messages are sent faster than the cluster accepts them, or no broker is reachable."""


class TransactionAbortedError(SkylogError):
    """A transaction that could not be committed. Nothing of it counts; do its work again in another one."""

    def __init__(self, transactional_id: str, reason: str) -> None:
        super().__init__(f"the transaction of '{transactional_id}' was aborted: {reason}; do its work again")
        self.transactional_id = transactional_id


class TransactionUnknownError(SkylogError):
    """A transaction of which it is not known whether it was committed. Do not do its work again.

    The next transaction of the same producer gets the result: it begins if this one was committed, and raises
    TransactionAbortedError if it was not. Or create a new producer with the same transactional id, and new consumers.
    """

    def __init__(self, transactional_id: str, reason: str) -> None:
        super().__init__(
            f"it is not known whether the transaction of '{transactional_id}' was committed: {reason}; "
            "the next transaction of this producer finds out; or create a new producer and new consumers"
        )
        self.transactional_id = transactional_id


class ProducerFencedError(SkylogError):
    """Another producer has started with the same transactional id, or a transaction took too long."""

    def __init__(self, transactional_id: str) -> None:
        super().__init__(
            f"another producer has started with the transactional id '{transactional_id}', or its transaction took "
            "longer than transaction.timeout.ms; close this one, and create another one if it is to go on"
        )
        self.transactional_id = transactional_id


class OffsetOutOfRangeError(KafkaError):
    """The log does not hold the next offset to read: retention has deleted it, or it was never written."""

    def __init__(self, topic: str, partition: int, offset: int, start_offset: int, end_offset: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{topic}-{partition} has no offset {offset}: it holds {start_offset} up to {end_offset}; "
            f"continue at {start_offset} (the oldest) or {end_offset} (the next new message)",
        )
        self.topic, self.partition, self.offset = topic, partition, offset
        self.start_offset, self.end_offset = start_offset, end_offset
