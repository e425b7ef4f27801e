"""Copies the committed offsets of groups from a source. They are valid as they are, because offsets are the same.

A broker does this for the groups that it coordinates here. An offset is copied as far as its partition is mirrored,
only forward, and only while the group has no members here: a group that has moved to this cluster commits by itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from skylog.broker.group_shard import MemberId
from skylog.broker.mirroring.comparison import source_error
from skylog.broker.mirroring.source import Source
from skylog.cluster.image import NO_LEADER
from skylog.errors import ErrorCode, KafkaError
from skylog.groups import CommittedOffset
from skylog.model import NO_EPOCH, TopicPartition
from skylog.net.peer import PeerError
from skylog.protocol.list_groups import ListGroupsRequest
from skylog.protocol.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from skylog.protocol.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from skylog.replication.mirror import Mirror

if TYPE_CHECKING:
    from skylog.broker.broker import Broker

_NOBODY: Final = MemberId("", None, -1)
_LATEST: Final = -1
_AT_ONCE: Final = 100

Offsets = dict[TopicPartition, tuple[int, str]]
"""By partition of the target: the offset that is committed at the source, and the metadata of the commit."""


class GroupOffsets:
    """The groups of one mirror that this broker coordinates.

    `copied` counts them as of the last round. `error` says what could not be read then; the next round tries again.
    """

    def __init__(self, broker: Broker, source: Source) -> None:
        self._broker = broker
        self._source = source
        self.copied = 0
        self.error = ""
        self._problems: list[str] = []

    async def run(self, mirror: Mirror) -> None:
        """Copy the offsets of all selected groups. Raises PeerError and KafkaError."""
        targets = mirror.target_names()
        coordinator = self._broker.coordinator
        if not targets or not self._source.image.brokers:
            return
        await coordinator.ensure_topic()
        copied, self._problems = 0, []
        for node_id in list(self._source.image.brokers):
            for group, offsets in (await self._read(node_id, mirror, targets)).items():
                if offsets and coordinator.find(group) == self._broker.identity.node_id:
                    copied += 1
                    await self._commit(group, offsets)
        more = f" (and {len(self._problems) - 1} more)" if len(self._problems) > 1 else ""
        self.copied, self.error = copied, self._problems[0] + more if self._problems else ""

    # -- the source

    async def _read(self, node_id: int, mirror: Mirror, targets: Mapping[str, str]) -> dict[str, Offsets]:
        """Return the offsets of the selected groups that a broker of the source coordinates."""
        try:
            listed = await self._source.ask(node_id, ListGroupsRequest())
        except PeerError as error:  # the groups of a broker that is away have another coordinator soon
            self._problems.append(f"groups of broker {node_id} of the source are not copied: {error}")
            return {}
        own = self._broker.identity.node_id
        groups = [
            each.group_id
            for each in listed.groups
            if mirror.selects_group(each.group_id) and self._broker.coordinator.find(each.group_id) == own
        ]
        found: dict[str, Offsets] = {}
        for at in range(0, len(groups), _AT_ONCE):
            for group, topics in (await self._fetch(node_id, groups[at : at + _AT_ONCE])).items():
                found[group] = {
                    TopicPartition(targets[topic.name], row.partition_index): (row.committed_offset, row.metadata or "")
                    for topic in topics
                    if topic.name in targets
                    for row in topic.partitions
                    if row.committed_offset >= 0 and not row.error_code
                }
        return found

    async def _fetch(self, node_id: int, groups: list[str]) -> dict[str, list[Any]]:
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups], require_stable=False
        )
        answer = await self._source.ask(node_id, request)
        for each in answer.groups:
            if each.error_code:
                self._problems.append(f"group {each.group_id} is not copied: {source_error(each.error_code)}")
        return {each.group_id: each.topics for each in answer.groups if not each.error_code}

    # -- here

    async def _commit(self, group: str, wanted: Offsets) -> None:
        shard = self._broker.coordinator.shard(group)
        before = shard.offsets_of(group)
        ahead = {name: row for name, row in wanted.items() if name not in before or row[0] > before[name].offset}
        ends = await self._end_offsets(ahead) if ahead else {}
        now_ms = self._broker.clock.now_ms()
        offsets = {}
        for name, (offset, metadata) in ahead.items():
            valid = min(offset, ends.get(name, -1))
            if valid >= 0 and (name not in before or valid > before[name].offset):
                offsets[name] = CommittedOffset(valid, NO_EPOCH, metadata if valid == offset else "", now_ms)
        if not offsets:
            return
        try:
            await shard.commit_offsets(group, _NOBODY, offsets)
        except KafkaError as error:
            if error.code not in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.STALE_MEMBER_EPOCH):
                raise  # otherwise the group has members here

    async def _end_offsets(self, names: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the high watermarks of partitions here, without those whose leader does not answer."""
        found: dict[TopicPartition, int] = {}
        elsewhere: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        for name in names:
            partition = self._broker.replicas.find(name)
            if partition is not None and partition.is_leader:
                found[name] = partition.high_watermark
                continue
            topic = self._broker.metadata.image.topics.get(name.topic)
            if topic is not None and name.partition < len(topic.partitions):
                elsewhere[topic.partitions[name.partition].leader].append(name)
        elsewhere.pop(NO_LEADER, None)
        for leader, led in elsewhere.items():
            topics: defaultdict[str, list[ListOffsetsPartition]] = defaultdict(list)
            for name in led:
                topics[name.topic].append(ListOffsetsPartition(partition_index=name.partition, timestamp=_LATEST))
            rows = [ListOffsetsTopic(name=topic, partitions=partitions) for topic, partitions in topics.items()]
            try:
                answer = await self._broker.leader_client.ask(leader, ListOffsetsRequest(topics=rows))
            except KafkaError:
                continue
            found |= {
                TopicPartition(topic.name, row.partition_index): row.offset
                for topic in answer.topics
                for row in topic.partitions
                if not row.error_code
            }
        return found
