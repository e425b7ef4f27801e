"""All groups of a coordinator and what they have committed, rebuilt from records and turned into them.

Pure, like `group`: the shell writes the records that are handed out and calls the state machines.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from skylog.errors import ErrorCode, KafkaError, MalformedRequestError
from skylog.groups.config import GroupConfig
from skylog.groups.group import Group
from skylog.groups.member import Member
from skylog.groups.state import GroupState
from skylog.groups.stored import (
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


class CommittedOffset(NamedTuple):
    """Where a group goes on reading a partition, and the note it left with that."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int


class Groups:
    """The groups by id, each with its committed offsets."""

    def __init__(self, config: GroupConfig) -> None:
        self._config = config
        self._groups: dict[str, Group] = {}
        self._offsets: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self._changed_at: dict[str, int] = {}  # wall-clock time of each group's last stored state

    def all(self) -> list[Group]:
        return list(self._groups.values())

    def find(self, group_id: str) -> Group | None:
        return self._groups.get(group_id)

    def get_or_create(self, group_id: str) -> Group:
        group = self._groups.get(group_id)
        if group is None:
            config = self._config
            group = Group(group_id, config.initial_rebalance_delay_ms, config.max_size)
            self._groups[group_id] = group
        return group

    def offsets_of(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        return self._offsets.get(group_id, {})

    # -- changes, as records to be written first and applied then

    def offset_record(self, group_id: str, name: TopicPartition, committed: CommittedOffset | None) -> StoredRecord:
        """The record of a commit; of its deletion for None."""
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
        """The record of a group's present state, which it has had since `timestamp` on the wall clock."""
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

    def deletion_records(self, group_id: str) -> list[StoredRecord]:
        """Everything that makes a group and its offsets be forgotten."""
        records = [self.offset_record(group_id, name, None) for name in self.offsets_of(group_id)]
        return [*records, (encode(GroupKey(group=group_id)), None)]

    def commit(self, group_id: str, offsets: Iterable[tuple[TopicPartition, CommittedOffset]]) -> None:
        self.get_or_create(group_id)
        self._offsets.setdefault(group_id, {}).update(offsets)

    def remove_offsets(self, group_id: str, names: Iterable[TopicPartition]) -> None:
        offsets = self._offsets.get(group_id, {})
        for name in names:
            offsets.pop(name, None)
        if not offsets:
            self._offsets.pop(group_id, None)

    def remove(self, group_id: str) -> None:
        self._groups.pop(group_id, None)
        self._offsets.pop(group_id, None)
        self._changed_at.pop(group_id, None)

    def drop_unused(self, group: Group) -> None:
        """Forget a group that a refused request has brought into being: nothing of it was ever stored."""
        if group.is_idle and group.generation == 0 and group.group_id not in self._offsets:
            self.remove(group.group_id)

    def check_deletable(self, group_id: str) -> Group:
        group = self._groups.get(group_id)
        if group is None or group.state is GroupState.DEAD:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group '{group_id}'")
        if group.state is not GroupState.EMPTY:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"group '{group_id}' has {len(group.members)} members")
        return group

    # -- what may be forgotten

    def is_expired(self, group: Group) -> bool:
        """Whether a group has neither members nor offsets."""
        return group.is_idle and group.group_id not in self._offsets

    def expired_offsets(self, group: Group, timestamp: int) -> list[TopicPartition]:
        """Offsets whose time is over.

        An empty group keeps all for the retention after its last member left; a stable one of consumers loses those of
        topics that nobody subscribes to any longer. Offsets of groups that nobody manages count from their commit.
        """
        if group.state not in (GroupState.EMPTY, GroupState.STABLE):
            return []
        in_use = group.subscribed_topics()
        if in_use is None:
            return []
        left_ms = self._changed_at.get(group.group_id, 0) if group.state is GroupState.EMPTY else 0
        latest_ms = timestamp - self._config.offsets_retention_minutes * 60_000
        return [
            name
            for name, each in self.offsets_of(group.group_id).items()
            if name.topic not in in_use and max(each.commit_timestamp, left_ms) <= latest_ms
        ]

    # -- loading

    def replay(self, key: bytes, value: bytes | None) -> str | None:
        """Apply one record of the log; the group it is about. What cannot be understood is logged and left out."""
        try:
            decoded = decode_key(key)
            if isinstance(decoded, OffsetKey):
                self._replay_offset(decoded, value)
            else:
                self._replay_group(decoded.group, value)
            return decoded.group
        except (UnknownRecordError, MalformedRequestError, struct.error) as error:
            logger.warning("a record of the offsets topic is left out: %s", error)
            return None

    def _replay_offset(self, key: OffsetKey, value: bytes | None) -> None:
        name = TopicPartition(key.topic, key.partition)
        if value is None:
            self.remove_offsets(key.group, [name])
            group = self._groups.get(key.group)
            if group is not None:
                self.drop_unused(group)
            return
        stored = decode_offset(value)
        committed = CommittedOffset(stored.offset, stored.leader_epoch, stored.metadata, stored.commit_timestamp)
        self.commit(key.group, [(name, committed)])

    def _replay_group(self, group_id: str, value: bytes | None) -> None:
        stored = None if value is None else decode_group(value)
        self._groups.pop(group_id, None)
        self._changed_at.pop(group_id, None)
        if stored is None:
            if group_id in self._offsets:
                self.get_or_create(group_id)
            return
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
