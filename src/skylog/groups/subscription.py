"""What a consumer's metadata says of its subscription: the beginning of Kafka's ConsumerProtocolSubscription.

    version int16, topics: array of string, …

Only consumer groups speak this; other users of the group protocol (Connect, schema registries) have their own.
"""

from __future__ import annotations

import struct
from typing import Final

from skylog.groups.group import Group

CONSUMER: Final = "consumer"
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")


def subscribed_topics(group: Group) -> set[str] | None:
    """The topics that a group's members subscribe to; None where nobody but they can tell."""
    if group.protocol_type != CONSUMER:
        return None
    topics: set[str] = set()
    for member in group.members.values():
        for _, metadata in member.protocols:
            read = _topics(metadata)
            if read is None:
                return None
            topics |= read
    return topics


def _topics(metadata: bytes) -> set[str] | None:
    try:
        (count,) = _INT32.unpack_from(metadata, 2)
        position = 6
        topics = set()
        for _ in range(count):
            (length,) = _INT16.unpack_from(metadata, position)
            position += 2
            topics.add(metadata[position : position + length].decode())
            position += length
    except (struct.error, UnicodeDecodeError):
        return None
    return topics
