"""What consumers put into the classic protocol: their subscription, and the assignment that they get.

These are Kafka's ConsumerProtocolSubscription and ConsumerProtocolAssignment. Subscription 1 added owned partitions,
2 the generation, 3 the rack. A reader skips what a later version adds at the end.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final, NamedTuple
from uuid import UUID

from skylog.errors import MalformedRequestError
from skylog.groups.consumer.partitions import Partitions, partitions_of
from skylog.groups.consumer.topics import Topics
from skylog.protocol.schema import Int32, Message, field, message
from skylog.protocol.schema import struct as structure

_NO_API: Final = -1
_LATEST: Final = 3
_VERSION: Final = struct.Struct(">h")


@structure
class EmbeddedTopicPartitions:
    topic: str = field("0+")
    partitions: list[Int32] = field("0+")


@message(api_key=_NO_API, versions="0-3", flexible="none")
class EmbeddedSubscription(Message):
    topics: list[str] = field("0+")
    user_data: bytes | None = field("0+", nullable="0+", default=None)
    owned_partitions: list[EmbeddedTopicPartitions] = field("1+", default_factory=list)
    generation_id: Int32 = field("2+", default=-1)
    rack_id: str | None = field("3+", nullable="3+", default=None)


@message(api_key=_NO_API, versions="0-3", flexible="none")
class EmbeddedAssignment(Message):
    assigned_partitions: list[EmbeddedTopicPartitions] = field("0+")
    user_data: bytes | None = field("0+", nullable="0+", default=None)


class Subscription(NamedTuple):
    """What a consumer of the classic protocol subscribes to, and owns."""

    version: int
    topics: frozenset[str]
    owned: Mapping[str, frozenset[int]]
    rack_id: str | None


def read_subscription(data: bytes) -> Subscription | None:
    """Return a subscription, None if the data has another format."""
    try:
        version = _version(data)
        found, _ = EmbeddedSubscription.read(data, version, _VERSION.size)
    except (struct.error, MalformedRequestError):
        return None
    owned = {each.topic: frozenset(each.partitions) for each in found.owned_partitions}
    return Subscription(version, frozenset(found.topics), owned, found.rack_id)


def read_assigned(data: bytes) -> dict[str, frozenset[int]] | None:
    """Return the partitions of an assignment by topic, None if the data has another format. No data is no partition."""
    if not data:
        return {}
    try:
        found, _ = EmbeddedAssignment.read(data, _version(data), _VERSION.size)
    except (struct.error, MalformedRequestError):
        return None
    return {each.topic: frozenset(each.partitions) for each in found.assigned_partitions}


def read_assignment(data: bytes, topics: Topics) -> Partitions | None:
    """Return the partitions of an assignment that exist, None if the data has another format.

    A topic is looked up by its name: the classic protocol does not know topic ids.
    """
    assigned = read_assigned(data)
    return None if assigned is None else to_partitions(assigned, topics)


def write_assignment(partitions: Partitions, names: Mapping[UUID, str], version: int) -> bytes:
    """Return the assignment of a classic member. Topics that are gone are left out."""
    rows = [
        EmbeddedTopicPartitions(topic=names[topic_id], partitions=sorted(numbers))
        for topic_id, numbers in partitions.items()
        if topic_id in names
    ]
    return _VERSION.pack(version) + EmbeddedAssignment(assigned_partitions=rows).write(version)


def to_partitions(named: Mapping[str, frozenset[int]], topics: Topics) -> Partitions:
    """Replace topic names by ids. Topics that do not exist are left out."""
    return partitions_of((topics[name].topic_id, numbers) for name, numbers in named.items() if name in topics)


def _version(data: bytes) -> int:
    (version,) = _VERSION.unpack_from(data)
    if version < 0:
        raise MalformedRequestError(f"negative version {version}")
    return min(int(version), _LATEST)
