"""All groups of a coordinator and their committed offsets; converts them to records and back.

Pure, like `group`: the shell writes the records and calls the state machines.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from skylog.errors import ErrorCode, KafkaError, MalformedRequestError
from skylog.groups.config import GroupConfig
from skylog.groups.consumer import (
    NO_BROKER_RACKS,
    BrokerRacks,
    ConsumerGroup,
    ConsumerGroupConfig,
    ConsumerGroupState,
)
from skylog.groups.consumer import storage as consumer_storage
from skylog.groups.consumer.changes import Changes
from skylog.groups.consumer.stored_records import EpochKey
from skylog.groups.consumer.stored_records import Key as ConsumerKey
from skylog.groups.group import Group
from skylog.groups.member import Member
from skylog.groups.state import GroupState
from skylog.groups.stored_records import (
    GroupKey,
    GroupValue,
    MemberValue,
    OffsetKey,
    OffsetValue,
    UnknownRecordError,
    decode_group,
    decode_key,
    decode_offset,
    encode,
)
from skylog.model import TopicPartition

logger = logging.getLogger(__name__)

StoredRecord = tuple[bytes, bytes | None]
"""Key and value for `__consumer_offsets`."""

AnyGroup = Group | ConsumerGroup
"""A group of the classic protocol, or of the consumer protocol."""

ORPHANED_MS: Final = 600_000
"""How long offsets may precede the news that their topic exists. The image of a broker is seconds old at most."""


class CommittedOffset(NamedTuple):
    """The offset at which a group continues reading a partition, with the metadata it committed."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int


class Groups:
    """Groups of both protocols by id, each with its committed offsets. `racks` are those of the brokers."""

    def __init__(
        self,
        config: GroupConfig,
        consumer_config: ConsumerGroupConfig | None = None,
        racks: BrokerRacks = NO_BROKER_RACKS,
    ) -> None:
        self._config = config
        self._consumer_config = consumer_config or ConsumerGroupConfig()
        self.racks = racks
        self._groups: dict[str, AnyGroup] = {}
        self._offsets: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self._changed_at: dict[str, int] = {}  # wall-clock time of each group's last stored state

    def all(self) -> list[AnyGroup]:
        return list(self._groups.values())

    def find(self, group_id: str) -> AnyGroup | None:
        return self._groups.get(group_id)

    def get_or_create(self, group_id: str) -> Group:
        """Return a classic group, which is created if there is none. The group must not be a consumer group."""
        group = self._groups.get(group_id)
        if group is None:
            group = Group(group_id, self._config.initial_rebalance_delay_ms, self._config.max_size)
            self._groups[group_id] = group
        assert isinstance(group, Group)
        return group

    def put(self, group: AnyGroup) -> None:
        """Add a group, in place of the one with the same id."""
        self._groups[group.group_id] = group

    def offsets_of(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        return self._offsets.get(group_id, {})

    # -- changes: the shell writes the records first, then applies the change

    def offset_record(self, group_id: str, name: TopicPartition, committed: CommittedOffset | None) -> StoredRecord:
        """Return the record of a committed offset, or its tombstone if `committed` is None."""
        key = encode(OffsetKey(group=group_id, topic=name.topic, partition=name.partition))
        if committed is None:
            return key, None
        return key, encode(
            OffsetValue(
                offset=committed.offset,
                leader_epoch=committed.leader_epoch,
                metadata=committed.metadata,
                commit_timestamp=committed.commit_timestamp,
            )
        )

    def group_record(self, group: Group, timestamp: int) -> StoredRecord:
        """Return the record of a group's current state. `timestamp` is the wall-clock time of the last change."""
        self._changed_at[group.group_id] = timestamp
        members = [
            MemberValue(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(group.protocol),
                assignment=member.assignment,
            )
            for member in group.members.values()
        ]
        value = GroupValue(
            protocol_type=group.protocol_type or "",
            generation=group.generation,
            protocol=group.protocol,
            leader=group.leader,
            current_state_timestamp=timestamp,
            members=members,
        )
        return encode(GroupKey(group=group.group_id)), encode(value)

    def change_records(self, group: ConsumerGroup, changes: Changes, timestamp: int) -> list[StoredRecord]:
        """Return the records of the changes of a consumer group."""
        self._changed_at[group.group_id] = timestamp
        former = [(encode(GroupKey(group=group.group_id)), None)] if changes.is_upgrade else []
        return [*former, *consumer_storage.records_of(group, changes)]

    def deletion_records(self, group_id: str) -> list[StoredRecord]:
        """Return the tombstones of a group and its offsets."""
        records = [self.offset_record(group_id, name, None) for name in self.offsets_of(group_id)]
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return [*records, *consumer_storage.deletion_records(group)]
        return [*records, (encode(GroupKey(group=group_id)), None)]

    def commit(self, group_id: str, offsets: Iterable[tuple[TopicPartition, CommittedOffset]]) -> None:
        self._ensure(group_id)
        self._offsets.setdefault(group_id, {}).update(offsets)

    def remove_offsets(self, group_id: str, names: Iterable[TopicPartition]) -> None:
        offsets = self._offsets.get(group_id, {})
        for name in names:
            offsets.pop(name, None)
        if not offsets:
            self._offsets.pop(group_id, None)

    def remove_topics(self, topics: Collection[str]) -> dict[str, list[TopicPartition]]:
        """Remove all groups' offsets in topics that were deleted. Return them by group."""
        removed = {}
        for group_id, offsets in tuple(self._offsets.items()):
            names = [name for name in offsets if name.topic in topics]
            if names:
                self.remove_offsets(group_id, names)
                removed[group_id] = names
        return removed

    def remove(self, group_id: str) -> None:
        self._groups.pop(group_id, None)
        self._offsets.pop(group_id, None)
        self._changed_at.pop(group_id, None)

    def drop_all(self) -> Iterator[None]:
        """Drop groups and offsets, some in each step of the iteration. Offsets that a reader holds stay as they are."""
        for part in (self._groups, self._offsets, self._changed_at):
            while part:
                part.popitem()
                yield

    def _ensure(self, group_id: str) -> None:
        if group_id not in self._groups:
            self.get_or_create(group_id)

    def drop_unused(self, group: Group) -> None:
        """Remove a group that was created for a request that failed, and never stored."""
        if group.is_idle and group.generation == 0 and group.group_id not in self._offsets:
            self.remove(group.group_id)

    def check_deletable(self, group_id: str) -> AnyGroup:
        group = self._groups.get(group_id)
        if group is None or group.state in (GroupState.DEAD, ConsumerGroupState.DEAD):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group '{group_id}'")
        if group.state not in (GroupState.EMPTY, ConsumerGroupState.EMPTY):
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"group '{group_id}' has {len(group.members)} members")
        return group

    # -- expiry

    def is_expired(self, group: AnyGroup) -> bool:
        """Return whether a group has neither members nor offsets."""
        return group.is_idle and group.group_id not in self._offsets

    def expired_offsets(
        self, group: AnyGroup, timestamp: int, names: Collection[TopicPartition]
    ) -> list[TopicPartition]:
        """Return those of the partitions whose offsets have expired.

        An empty group keeps its offsets for the retention time after its last member left. A stable group of consumers
        keeps those of subscribed topics, and the others for the retention time after their commit. So does a group that
        never had members, and a consumer group in any state.
        """
        if isinstance(group, Group) and group.state not in (GroupState.EMPTY, GroupState.STABLE):
            return []
        in_use = group.subscribed_topics()
        if in_use is None:
            return []
        left_ms = 0 if group.members else self._changed_at.get(group.group_id, 0)
        latest_ms = timestamp - self._config.offsets_retention_minutes * 60_000
        return [
            name
            for name, each in self._known(group.group_id, names)
            if name.topic not in in_use and max(each.commit_timestamp, left_ms) <= latest_ms
        ]

    def orphaned_offsets(
        self, group_id: str, topics: Container[str], timestamp: int, names: Collection[TopicPartition]
    ) -> list[TopicPartition]:
        """Return those of the partitions whose topic does not exist although they were committed a while ago.

        These are left if a topic is deleted while the coordinator of the group changes.
        """
        latest_ms = timestamp - ORPHANED_MS
        return [
            name
            for name, each in self._known(group_id, names)
            if name.topic not in topics and each.commit_timestamp <= latest_ms
        ]

    def _known(
        self, group_id: str, names: Collection[TopicPartition]
    ) -> Iterator[tuple[TopicPartition, CommittedOffset]]:
        offsets = self.offsets_of(group_id)
        return ((name, offsets[name]) for name in names if name in offsets)

    # -- loading

    def replay(self, key: bytes, value: bytes | None) -> str | None:
        """Apply a record. Return the id of its group, None for an unreadable record, which is logged and skipped."""
        try:
            decoded = decode_key(key)
            if isinstance(decoded, OffsetKey):
                self._replay_offset(decoded, value)
            elif isinstance(decoded, GroupKey):
                self._replay_group(decoded.group, value)
            else:
                self._replay_consumer_group(decoded, value)
            return decoded.group
        except (UnknownRecordError, consumer_storage.UnknownValueError, MalformedRequestError, struct.error) as error:
            logger.warning("skipping an unreadable record of the offsets topic: %s", error)
            return None

    def _replay_offset(self, key: OffsetKey, value: bytes | None) -> None:
        name = TopicPartition(key.topic, key.partition)
        if value is None:
            self.remove_offsets(key.group, [name])
            group = self._groups.get(key.group)
            if isinstance(group, Group):
                self.drop_unused(group)
            return
        stored = decode_offset(value)
        committed = CommittedOffset(stored.offset, stored.leader_epoch, stored.metadata, stored.commit_timestamp)
        self.commit(key.group, [(name, committed)])

    def _replay_group(self, group_id: str, value: bytes | None) -> None:
        stored = None if value is None else decode_group(value)
        if stored is None:
            if not isinstance(self._groups.get(group_id), ConsumerGroup):
                self._forget(group_id)
            return
        self._forget(group_id)
        group = self.get_or_create(group_id)
        members = [
            Member(
                each.member_id,
                each.group_instance_id,
                each.client_id,
                each.client_host,
                each.session_timeout,
                each.rebalance_timeout if each.rebalance_timeout > 0 else each.session_timeout,
                ((stored.protocol or "", each.subscription),),
                assignment=each.assignment,
                has_synced=True,
            )
            for each in stored.members
        ]
        group.restore(
            members,
            generation=stored.generation,
            protocol_type=stored.protocol_type or None,
            protocol=stored.protocol,
            leader=stored.leader,
        )
        self._changed_at[group_id] = stored.current_state_timestamp

    def _replay_consumer_group(self, key: ConsumerKey, data: bytes | None) -> None:
        value = consumer_storage.decode_value(key, data)
        group = self._groups.get(key.group)
        if not isinstance(group, ConsumerGroup):
            if value is None:
                return
            group = ConsumerGroup(key.group, self._consumer_config, racks=self.racks)
            self._groups[key.group] = group
        if isinstance(key, EpochKey) and value is None:
            self._forget(key.group)
        else:
            consumer_storage.apply_record(group, key, value)

    def _forget(self, group_id: str) -> None:
        """Forget a group, except that it has offsets."""
        self._groups.pop(group_id, None)
        self._changed_at.pop(group_id, None)
        if group_id in self._offsets:
            self.get_or_create(group_id)
