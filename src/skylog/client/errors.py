"""What goes wrong on the way to a cluster, said so that the reader knows what to do next."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from skylog.errors import ErrorCode, KafkaError, SkylogError


class BrokerUnreachableError(SkylogError):
    """No broker answers at the bootstrap address."""

    def __init__(self, bootstrap: str, reason: str) -> None:
        super().__init__(
            f"no broker can be reached at {bootstrap} ({reason}); is one running? start one with: skylog serve"
        )
        self.bootstrap = bootstrap


class TopicNotFoundError(KafkaError):
    """A topic that the cluster does not have. `nearest` are the names that it may have been meant to be."""

    def __init__(self, topic: str, known: Iterable[str]) -> None:
        self.topic = topic
        self.nearest = tuple(difflib.get_close_matches(topic, list(known), n=3))
        hint = f"did you mean {' or '.join(self.nearest)}?" if self.nearest else "see: skylog topics list"
        super().__init__(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic '{topic}'; {hint}")


class SerializeError(SkylogError):
    """A value that cannot be made into bytes."""


class DeserializeError(SkylogError):
    """A message that is not what the application takes it for. `offset + 1` is where to go on without it."""

    def __init__(self, topic: str, partition: int, offset: int, cause: object) -> None:
        super().__init__(
            f"the value of {topic}-{partition} at offset {offset} cannot be read ({cause}); "
            f"look at it with: skylog tail {topic} --partition {partition} --offset {offset} -n 1 --no-follow"
        )
        self.topic, self.partition, self.offset = topic, partition, offset


class DeliveryError(SkylogError):
    """A message that was not stored, or of which nobody can tell.

    `may_be_stored` says which: where it is true, sending again may store it twice.
    """

    def __init__(self, topic: str, partition: int | None, reason: str, *, may_be_stored: bool) -> None:
        where = f"topic '{topic}'" if partition is None else f"{topic}-{partition}"
        super().__init__(f"a message to {where} was not delivered: {reason}")
        self.topic, self.partition, self.may_be_stored = topic, partition, may_be_stored


class BufferFullError(SkylogError):
    """Messages come faster than a cluster takes them, or no broker takes them at all."""


class OffsetOutOfRangeError(KafkaError):
    """The log does not have the offset that is to be read next: retention has taken it, or it was never written."""

    def __init__(self, topic: str, partition: int, offset: int, start_offset: int, end_offset: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{topic}-{partition} has no offset {offset}: it holds {start_offset} up to {end_offset}; "
            f"go on from {start_offset} (the oldest) or {end_offset} (the next to come)",
        )
        self.topic, self.partition, self.offset = topic, partition, offset
        self.start_offset, self.end_offset = start_offset, end_offset
