"""Reads the topics in a consumer's metadata: the beginning of Kafka's ConsumerProtocolSubscription.

    version int16, topics: array of string, …

Only consumer groups use this format. Other users of the group protocol (Connect, schema registries) have their own.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from skylog.groups.member import Member

CONSUMER: Final = "consumer"
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")


def subscribed_topics(protocol_type: str | None, members: Iterable[Member]) -> set[str] | None:
    """Return the topics that members subscribe to, None if their metadata has another format."""
    if protocol_type != CONSUMER:
        return None
    topics: set[str] = set()
    for member in members:
        for _, metadata in member.protocols:
            read = read_topics(metadata)
            if read is None:
                return None
            topics |= read
    return topics


def same_topics(protocol_type: str | None, one: bytes, other: bytes) -> bool:
    """Return whether two members' metadata have the same topics. Metadata of other formats count as equal.

    The rest of a consumer's metadata may differ, such as the partitions that it owned when it joined.
    """
    return protocol_type != CONSUMER or read_topics(one) == read_topics(other)


def read_topics(metadata: bytes) -> set[str] | None:
    """Return the topics of a subscription, None if the format is different."""
    try:
        (count,) = _INT32.unpack_from(metadata, 2)
        position = 6
        topics = set()
        for _ in range(count):
            (length,) = _INT16.unpack_from(metadata, position)
            position += _INT16.size
            if not 0 <= length <= len(metadata) - position:
                return None
            topics.add(metadata[position : position + length].decode())
            position += length
    except (struct.error, UnicodeDecodeError):
        return None
    return topics
