"""The records of `__consumer_offsets`, in Kafka's format.

The version of a record's key gives its type: 0 and 1 are a committed offset of (group, topic, partition), 2 is a
classic group, and the others are parts of consumer groups (see `consumer.stored_records`).
The value is the current state; a null value deletes it. Key and value begin with their version as an int16. The topic
is compacted by key, so replaying it yields the same state before and after compaction.
"""

from __future__ import annotations

import struct
from typing import Final

from skylog.errors import SkylogError
from skylog.groups.consumer.stored_records import KEYS as CONSUMER_KEYS
from skylog.groups.consumer.stored_records import Key as ConsumerKey
from skylog.protocol.schema import Int32, Int64, Message, field, message
from skylog.protocol.schema import struct as structure

_VERSION: Final = struct.Struct(">h")
_NO_API: Final = -1
OFFSET_KEY_VERSION: Final = 1
OFFSET_VALUE_VERSION: Final = 3
GROUP_KEY_VERSION: Final = 2
GROUP_VALUE_VERSION: Final = 3


@message(api_key=_NO_API, versions="0-1", flexible="none")
class OffsetKey(Message):
    group: str = field("0+")
    topic: str = field("0+")
    partition: Int32 = field("0+")


@message(api_key=_NO_API, versions="0-3", flexible="none")
class OffsetValue(Message):
    offset: Int64 = field("0+")
    leader_epoch: Int32 = field("3+", default=-1)
    metadata: str = field("0+")
    commit_timestamp: Int64 = field("0+")
    expire_timestamp: Int64 = field("1", default=-1)


@message(api_key=_NO_API, versions="2", flexible="none")
class GroupKey(Message):
    group: str = field("2+")


@structure
class MemberValue:
    member_id: str = field("0+")
    group_instance_id: str | None = field("3+", nullable="3+", default=None)
    client_id: str = field("0+")
    client_host: str = field("0+")
    rebalance_timeout: Int32 = field("1+", default=-1)
    session_timeout: Int32 = field("0+")
    subscription: bytes = field("0+")
    assignment: bytes = field("0+")


@message(api_key=_NO_API, versions="0-3", flexible="none")
class GroupValue(Message):
    protocol_type: str = field("0+")
    generation: Int32 = field("0+")
    protocol: str | None = field("0+", nullable="0+")
    leader: str | None = field("0+", nullable="0+")
    current_state_timestamp: Int64 = field("2+", default=-1)
    members: list[MemberValue] = field("0+")


class UnknownRecordError(SkylogError):
    """A key or value has an unknown version."""


def encode(part: OffsetKey | OffsetValue | GroupKey | GroupValue) -> bytes:
    """Encode a key or value, with its version in front."""
    version = _WRITTEN[type(part)]
    return _VERSION.pack(version) + part.write(version)


def decode_key(data: bytes) -> OffsetKey | GroupKey | ConsumerKey:
    (version,) = _VERSION.unpack_from(data)
    consumer_key = CONSUMER_KEYS.get(version)
    if consumer_key is not None:
        return consumer_key.read(data, version, _VERSION.size)[0]
    if version == GROUP_KEY_VERSION:
        return GroupKey.read(data, version, _VERSION.size)[0]
    if version in OffsetKey.versions:
        return OffsetKey.read(data, version, _VERSION.size)[0]
    raise UnknownRecordError(f"unknown key version {version}")


def decode_offset(data: bytes) -> OffsetValue:
    (version,) = _VERSION.unpack_from(data)
    if version not in OffsetValue.versions:
        raise UnknownRecordError(f"unknown version {version} of an offset")
    return OffsetValue.read(data, version, _VERSION.size)[0]


def decode_group(data: bytes) -> GroupValue:
    (version,) = _VERSION.unpack_from(data)
    if version not in GroupValue.versions:
        raise UnknownRecordError(f"unknown version {version} of a group")
    return GroupValue.read(data, version, _VERSION.size)[0]


_WRITTEN: Final = {
    OffsetKey: OFFSET_KEY_VERSION,
    OffsetValue: OFFSET_VALUE_VERSION,
    GroupKey: GROUP_KEY_VERSION,
    GroupValue: GROUP_VALUE_VERSION,
}
