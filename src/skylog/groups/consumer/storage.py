"""Converts a consumer group to the records of `__consumer_offsets`, and back.

Each part of a group has a record of its own, so that a change writes little. A tombstone deletes a part.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final

from skylog.errors import SkylogError
from skylog.groups.consumer.changes import Changes
from skylog.groups.consumer.group import ConsumerGroup
from skylog.groups.consumer.member import (
    NEW,
    NO_METADATA,
    ClassicProtocols,
    ConsumerMember,
    Current,
    MemberState,
    Metadata,
)
from skylog.groups.consumer.partitions import Partitions, partitions_of
from skylog.groups.consumer.patterns import ResolvedPattern
from skylog.groups.consumer.stored_records import (
    VALUES,
    ClassicMemberValue,
    ClassicProtocolValue,
    CurrentKey,
    CurrentValue,
    EpochKey,
    EpochValue,
    Key,
    MetadataKey,
    MetadataValue,
    PatternKey,
    PatternValue,
    TargetEpochKey,
    TargetEpochValue,
    TargetKey,
    TargetValue,
    TopicPartitionsValue,
    TopicsKey,
)
from skylog.protocol.schema import Message

_VERSION: Final = struct.Struct(">h")
_VALUE_VERSION: Final = 0

Record = tuple[bytes, bytes | None]


class UnknownValueError(SkylogError):
    """A value has an unknown version, or an unknown state."""


def records_of(group: ConsumerGroup, changes: Changes) -> list[Record]:
    """Return the records of what has changed. What is gone has a tombstone."""
    return [_encode(key, value) for key, value in _changed(group, changes)]


def _changed(group: ConsumerGroup, changes: Changes) -> Iterator[tuple[Key, Message | None]]:
    name, members = group.group_id, group.members
    for member_id in sorted(changes.metadata):
        member = members.get(member_id)
        yield (
            MetadataKey(group=name, member_id=member_id),
            None if member is None else _metadata_value(member.metadata),
        )
    for pattern in sorted(changes.patterns):
        resolved = group.patterns.get(pattern)
        yield (
            PatternKey(group=name, regular_expression=pattern),
            None if resolved is None else _pattern_value(resolved),
        )
    if changes.epoch:
        yield EpochKey(group=name), EpochValue(epoch=group.epoch, metadata_hash=group.metadata_hash)
    for member_id in sorted(changes.targets):
        target = group.targets.get(member_id)
        value = None if target is None else TargetValue(topic_partitions=_rows(target))
        yield TargetKey(group=name, member_id=member_id), value
    if changes.target_epoch:
        yield TargetEpochKey(group=name), TargetEpochValue(assignment_epoch=group.target_epoch)
    for member_id in sorted(changes.current):
        member = members.get(member_id)
        yield (
            CurrentKey(group=name, member_id=member_id),
            None if member is None else _current_value(member.current),
        )


def deletion_records(group: ConsumerGroup) -> list[Record]:
    """Return the tombstones of a group: members first, so that a part of them leaves a group without these members."""
    name = group.group_id
    keys: list[Key] = []
    for member_id in group.members.keys() | group.changes.current:
        keys += [
            CurrentKey(group=name, member_id=member_id),
            TargetKey(group=name, member_id=member_id),
            MetadataKey(group=name, member_id=member_id),
        ]
    keys += [PatternKey(group=name, regular_expression=each) for each in group.patterns.keys() | group.changes.patterns]
    keys += [TargetEpochKey(group=name), EpochKey(group=name)]
    return [_encode(key, None) for key in keys]


def everything(group: ConsumerGroup) -> Changes:
    """Return all parts of a group that was a classic group until now."""
    ids = set(group.members)
    return Changes(True, True, True, set(ids), set(ids), set(ids), set(group.patterns))


def _encode(key: Key, value: Message | None) -> Record:
    version = key.versions.low
    data = None if value is None else _VERSION.pack(_VALUE_VERSION) + value.write(_VALUE_VERSION)
    return _VERSION.pack(version) + key.write(version), data


def _metadata_value(metadata: Metadata) -> MetadataValue:
    classic = metadata.classic
    return MetadataValue(
        instance_id=metadata.instance_id,
        rack_id=metadata.rack_id,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        subscribed_topic_names=sorted(metadata.topic_names),
        subscribed_topic_regex=metadata.pattern,
        rebalance_timeout_ms=metadata.rebalance_timeout_ms,
        server_assignor=metadata.assignor,
        classic_member_metadata=None
        if classic is None
        else ClassicMemberValue(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=[
                ClassicProtocolValue(name=name, metadata=protocol) for name, protocol in classic.protocols
            ],
        ),
    )


def _pattern_value(resolved: ResolvedPattern) -> PatternValue:
    return PatternValue(topics=sorted(resolved.topics), version=0, timestamp=resolved.timestamp_ms)


def _current_value(current: Current) -> CurrentValue:
    return CurrentValue(
        member_epoch=current.epoch,
        previous_member_epoch=current.previous_epoch,
        state=current.state,
        assigned_partitions=_rows(current.assigned),
        partitions_pending_revocation=_rows(current.revoking),
    )


def _rows(partitions: Partitions) -> list[TopicPartitionsValue]:
    return [
        TopicPartitionsValue(topic_id=topic_id, partitions=sorted(numbers)) for topic_id, numbers in partitions.items()
    ]


# -- loading


def decode_value(key: Key, data: bytes | None) -> Message | None:
    """Return the value of a record, None for a tombstone. Raises UnknownValueError."""
    if data is None or isinstance(key, TopicsKey):
        return None
    (version,) = _VERSION.unpack_from(data)
    if version != _VALUE_VERSION:
        raise UnknownValueError(f"unknown version {version} of {type(key).__name__}")
    value = VALUES[type(key)].read(data, version, _VERSION.size)[0]
    if isinstance(value, CurrentValue) and value.state not in MemberState._value2member_map_:
        raise UnknownValueError(f"unknown member state {value.state}")
    return value


def apply_record(group: ConsumerGroup, key: Key, value: Message | None) -> None:
    """Apply a record to a group. Records of a member come in any order, because the log is compacted."""
    match key, value:
        case EpochKey(), EpochValue():
            group.epoch, group.metadata_hash = value.epoch, value.metadata_hash
        case TargetEpochKey(), TargetEpochValue():
            group.target_epoch = value.assignment_epoch
        case TargetKey(), TargetValue():
            group.targets[key.member_id] = _partitions(value.topic_partitions)
        case TargetKey(), None:
            group.targets.pop(key.member_id, None)
        case PatternKey(), PatternValue():
            group.patterns[key.regular_expression] = ResolvedPattern(frozenset(value.topics), value.timestamp)
        case PatternKey(), None:
            group.patterns.pop(key.regular_expression, None)
        case MetadataKey(), MetadataValue():
            _put(group, key.member_id, metadata=_metadata(value))
        case CurrentKey(), CurrentValue():
            _put(group, key.member_id, current=_current(value))
        case MetadataKey() | CurrentKey(), None:
            _take_away(group, key)
        case _:
            pass  # tombstones of parts that are replaced as a whole


def _put(
    group: ConsumerGroup, member_id: str, metadata: Metadata | None = None, current: Current | None = None
) -> None:
    member = group.members.get(member_id)
    if member is None:
        member = ConsumerMember(member_id)
    else:
        group.roster.drop(member)
    if metadata is not None:
        member.metadata = metadata
    if current is not None:
        member.current = current
    group.roster.add(member)


def _take_away(group: ConsumerGroup, key: MetadataKey | CurrentKey) -> None:
    """Delete a part of a member. The member is gone with its metadata."""
    member = group.members.get(key.member_id)
    if member is None:
        return
    group.roster.drop(member)
    if isinstance(key, CurrentKey) and member.metadata is not NO_METADATA:
        member.current = NEW
        group.roster.add(member)


def _metadata(value: MetadataValue) -> Metadata:
    classic = value.classic_member_metadata
    return Metadata(
        value.instance_id,
        value.rack_id,
        value.client_id,
        value.client_host,
        frozenset(value.subscribed_topic_names),
        value.subscribed_topic_regex or "",
        value.rebalance_timeout_ms,
        value.server_assignor,
        None
        if classic is None
        else ClassicProtocols(
            classic.session_timeout_ms, tuple((each.name, each.metadata) for each in classic.supported_protocols)
        ),
    )


def _current(value: CurrentValue) -> Current:
    return Current(
        value.member_epoch,
        value.previous_member_epoch,
        MemberState(value.state),
        _partitions(value.assigned_partitions),
        _partitions(value.partitions_pending_revocation),
    )


def _partitions(rows: Iterable[TopicPartitionsValue]) -> Partitions:
    return partitions_of((each.topic_id, each.partitions) for each in rows)
