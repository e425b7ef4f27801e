"""The records of consumer groups in `__consumer_offsets`, in Kafka's format: key versions 3, 5 to 8 and 16.

Keys of version 4 have the metadata of subscribed topics. Kafka 4.1 replaced them by a hash in the record of version 3.
They are read and ignored.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from skylog.protocol.schema import Int8, Int32, Int64, Message, field, message
from skylog.protocol.schema import struct as structure

_NO_API: Final = -1


@message(api_key=_NO_API, versions="3", flexible="none")
class EpochKey(Message):
    group: str = field("3+")


@message(api_key=_NO_API, versions="0", flexible="0+")
class EpochValue(Message):
    epoch: Int32 = field("0+")
    metadata_hash: Int64 = field("0+", tag=0, default=0)


@message(api_key=_NO_API, versions="4", flexible="none")
class TopicsKey(Message):
    group: str = field("4+")


@message(api_key=_NO_API, versions="5", flexible="none")
class MetadataKey(Message):
    group: str = field("5+")
    member_id: str = field("5+")


@structure
class ClassicProtocolValue:
    name: str = field("0+")
    metadata: bytes = field("0+")


@structure
class ClassicMemberValue:
    session_timeout_ms: Int32 = field("0+")
    supported_protocols: list[ClassicProtocolValue] = field("0+")


@message(api_key=_NO_API, versions="0", flexible="0+")
class MetadataValue(Message):
    instance_id: str | None = field("0+", nullable="0+")
    rack_id: str | None = field("0+", nullable="0+")
    client_id: str = field("0+")
    client_host: str = field("0+")
    subscribed_topic_names: list[str] = field("0+")
    subscribed_topic_regex: str | None = field("0+", nullable="0+")
    rebalance_timeout_ms: Int32 = field("0+", default=-1)
    server_assignor: str | None = field("0+", nullable="0+")
    classic_member_metadata: ClassicMemberValue | None = field("0+", tag=0, nullable="0+", default=None)


@message(api_key=_NO_API, versions="6", flexible="none")
class TargetEpochKey(Message):
    group: str = field("6+")


@message(api_key=_NO_API, versions="0", flexible="0+")
class TargetEpochValue(Message):
    assignment_epoch: Int32 = field("0+")


@message(api_key=_NO_API, versions="7", flexible="none")
class TargetKey(Message):
    group: str = field("7+")
    member_id: str = field("7+")


@structure
class TopicPartitionsValue:
    topic_id: UUID = field("0+")
    partitions: list[Int32] = field("0+")


@message(api_key=_NO_API, versions="0", flexible="0+")
class TargetValue(Message):
    topic_partitions: list[TopicPartitionsValue] = field("0+")


@message(api_key=_NO_API, versions="8", flexible="none")
class CurrentKey(Message):
    group: str = field("8+")
    member_id: str = field("8+")


@message(api_key=_NO_API, versions="0", flexible="0+")
class CurrentValue(Message):
    member_epoch: Int32 = field("0+")
    previous_member_epoch: Int32 = field("0+")
    state: Int8 = field("0+")
    assigned_partitions: list[TopicPartitionsValue] = field("0+")
    partitions_pending_revocation: list[TopicPartitionsValue] = field("0+")


@message(api_key=_NO_API, versions="16", flexible="none")
class PatternKey(Message):
    group: str = field("16+")
    regular_expression: str = field("16+")


@message(api_key=_NO_API, versions="0", flexible="0+")
class PatternValue(Message):
    topics: list[str] = field("0+")
    version: Int64 = field("0+")
    timestamp: Int64 = field("0+")


Key = EpochKey | TopicsKey | MetadataKey | TargetEpochKey | TargetKey | CurrentKey | PatternKey

KEYS: Final[dict[int, type[Key]]] = {
    key.versions.low: key
    for key in (EpochKey, TopicsKey, MetadataKey, TargetEpochKey, TargetKey, CurrentKey, PatternKey)
}
"""The key types by their version."""

VALUES: Final[dict[type[Key], type[Message]]] = {
    EpochKey: EpochValue,
    MetadataKey: MetadataValue,
    TargetEpochKey: TargetEpochValue,
    TargetKey: TargetValue,
    CurrentKey: CurrentValue,
    PatternKey: PatternValue,
}
"""The type of the value for each key. All have version 0."""
