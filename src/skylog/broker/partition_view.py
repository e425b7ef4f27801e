"""A partition as Metadata and DescribeTopicPartitions return it."""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from skylog.broker.replicas import Replicas
from skylog.cluster import PartitionImage, TopicImage
from skylog.cluster.image import NO_LEADER
from skylog.errors import ErrorCode
from skylog.model import TopicPartition


class PartitionView(NamedTuple):
    """The state of a partition for clients. A replica is offline if its broker is not live, or cannot open its log."""

    error_code: ErrorCode
    leader: int
    leader_epoch: int
    replicas: list[int]
    in_sync_replicas: list[int]
    offline_replicas: list[int]


def partition_view(partition: PartitionImage, live: Container[int], offline: int | None = None) -> PartitionView:
    """Return the view of a partition, given the ids of `live` brokers. `offline` is one whose log is offline."""
    has_leader = partition.leader in live
    return PartitionView(
        ErrorCode.NONE if has_leader else ErrorCode.LEADER_NOT_AVAILABLE,
        partition.leader if has_leader else NO_LEADER,
        partition.leader_epoch,
        list(partition.replicas),
        list(partition.in_sync_replicas),
        [each for each in partition.replicas if each not in live or each == offline],
    )


def without_offline(view: PartitionView, live: Container[int]) -> PartitionView:
    """Return a view for version 0 of Metadata, which has no offline replicas: those on live brokers only."""
    replicas = [each for each in view.replicas if each in live]
    in_sync = [each for each in view.in_sync_replicas if each in live]
    is_complete = (len(replicas), len(in_sync)) == (len(view.replicas), len(view.in_sync_replicas))
    code = view.error_code or (ErrorCode.NONE if is_complete else ErrorCode.REPLICA_NOT_AVAILABLE)
    return view._replace(error_code=code, replicas=replicas, in_sync_replicas=in_sync)


def offline_here(topic: TopicImage, replicas: Replicas) -> frozenset[int]:
    """Return the partitions of a topic whose logs are offline on this broker."""
    offline = replicas.offline
    if not offline:
        return frozenset()
    return frozenset(index for index in range(len(topic.partitions)) if TopicPartition(topic.name, index) in offline)
