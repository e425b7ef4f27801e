"""A group as its coordinator describes it, without the offsets of the logs that it reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from skylog.client.group import CLASSIC, ConsumerGroup, GroupMember, GroupPartition
from skylog.client.topic import OffsetRange, Topic
from skylog.model import TopicPartition


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """State, members and commits of a group. `is_simple`: its consumers assign partitions themselves.

    Commits are read before the end offsets of the logs, so that a running consumer never appears to be past the end.
    """

    name: str
    state: str
    protocol: str | None
    members: tuple[GroupMember, ...]
    is_simple: bool
    committed: Mapping[TopicPartition, int] = field(default_factory=dict)
    metadata: Mapping[TopicPartition, str] = field(default_factory=dict)
    type: str = CLASSIC
    epoch: int | None = None
    target_epoch: int | None = None

    def partitions(self, topics: Mapping[str, Topic]) -> set[TopicPartition]:
        """Return the partitions that the group reads: those assigned or committed.

        Members that subscribe share all partitions of a topic, so those without a commit belong to the group too, even
        after the members have left. A group of consumers that assign partitions themselves has only those.
        """
        read = {key for member in self.members for key in member.partitions} | self.committed.keys()
        if self.is_simple:
            return read
        names = {key.topic for key in read} & topics.keys()
        return read.union(*(topics[name].topic_partitions for name in names))

    def group(self, topics: Mapping[str, Topic], ranges: Mapping[TopicPartition, OffsetRange]) -> ConsumerGroup:
        readers = {key: member for member in self.members for key in member.partitions}
        partitions = tuple(
            GroupPartition(key, self.committed.get(key), ranges.get(key), readers.get(key))
            for key in sorted(self.partitions(topics))
        )
        return ConsumerGroup(
            self.name, self.state, self.protocol, self.members, partitions, self.type, self.epoch, self.target_epoch
        )
