"""A snapshot of the cluster: its topics, offsets and groups, and the metrics of the parent broker."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from skylog.client import ConsumerGroup, OffsetRange, Topic
from skylog.console.cluster.client_pool import Clients
from skylog.console.monitoring.metric_reader import MetricReader
from skylog.model import TopicPartition


@dataclass(frozen=True)
class ClusterSnapshot:
    """The cluster at one moment. `metrics` is empty without a parent broker."""

    taken_at_ms: int
    topics: Mapping[str, Topic] = field(default_factory=dict)
    offsets: Mapping[TopicPartition, OffsetRange] = field(default_factory=dict)
    groups: Mapping[str, ConsumerGroup] = field(default_factory=dict)
    metrics: MetricReader = field(default_factory=MetricReader)

    def messages(self, topic: Topic) -> int:
        """Return the number of offsets that the topic holds."""
        return sum(len(self.offsets[key]) for key in topic.topic_partitions if key in self.offsets)

    @cached_property
    def topic_lags(self) -> dict[str, int]:
        """The largest lag that a group has in each topic, of the topics that are read."""
        lags: dict[str, int] = {}
        for group in self.groups.values():
            own: dict[str, int] = {}
            for each in group.partitions:
                own[each.partition.topic] = own.get(each.partition.topic, 0) + (each.lag or 0)
            for topic, lag in own.items():
                lags[topic] = max(lags.get(topic, 0), lag)
        return lags

    def messages_since(self, before: ClusterSnapshot, partitions: Iterable[TopicPartition]) -> int:
        """Return the number of messages since an earlier snapshot, in the partitions that are in both."""
        both = [key for key in partitions if key in self.offsets and key in before.offsets]
        return sum(max(self.offsets[key].end_offset - before.offsets[key].end_offset, 0) for key in both)


def take_snapshot(clients: Clients) -> ClusterSnapshot:
    """Query topics, offsets and groups. Blocks."""
    groups = clients.groups.list_groups()
    topics = {topic.name: topic for topic in clients.admin.list_topics()}
    partitions = [
        TopicPartition(topic.name, partition.index)
        for topic in topics.values()
        for partition in topic.partitions
        if partition.leader >= 0
    ]
    offsets = clients.admin.reachable_offset_ranges(partitions)
    return ClusterSnapshot(int(time.time() * 1000), topics, offsets, {group.name: group for group in groups})
