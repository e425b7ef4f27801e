"""Plans a reassignment before it starts: which replicas move to which brokers. Pure.

The same cluster gives the same plan, so a dry run shows what the reassignment then does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from skylog.client.cluster import ClusterDescription, Reassignment
from skylog.errors import SkylogError
from skylog.model import TopicPartition

if TYPE_CHECKING:
    from skylog.cluster.image import ClusterImage, PartitionImage
    from skylog.cluster.reassignment_plan import Targets


@dataclass(frozen=True, slots=True)
class PartitionMove:
    """The replicas of a partition before and after a reassignment."""

    partition: TopicPartition
    from_replicas: tuple[int, ...]
    to_replicas: tuple[int, ...]

    @property
    def added(self) -> tuple[int, ...]:
        """The brokers that get a copy."""
        return tuple(each for each in self.to_replicas if each not in self.from_replicas)


@dataclass(frozen=True, slots=True)
class ReassignmentPlan:
    """The moves of a reassignment, sorted by partition. Partitions that stay as they are have none."""

    moves: tuple[PartitionMove, ...]

    @property
    def targets(self) -> dict[TopicPartition, tuple[int, ...]]:
        return {move.partition: move.to_replicas for move in self.moves}

    def including(self, reassignments: Iterable[Reassignment]) -> ReassignmentPlan:
        """Return a plan that has the moves of reassignments under way as well."""
        others = [
            PartitionMove(each.partition, each.original, each.target)
            for each in reassignments
            if each.partition not in self.targets
        ]
        return ReassignmentPlan((*self.moves, *others))

    @property
    def copies(self) -> int:
        """The number of replicas that are copied."""
        return sum(len(move.added) for move in self.moves)


def plan_spread(
    cluster: ClusterDescription, topics: Collection[str], brokers: Collection[int], replication_factor: int | None
) -> ReassignmentPlan:
    """Plan to spread the replicas of topics evenly over `brokers`. Raises KafkaError."""
    from skylog.cluster.reassignment_plan import spread

    return _plan(cluster, spread(_image(cluster), brokers, Random(0), topics, replication_factor))


def plan_drain(cluster: ClusterDescription, node_id: int) -> ReassignmentPlan:
    """Plan to move all replicas off a broker. Raises KafkaError if there are too few others."""
    from skylog.cluster.reassignment_plan import drain

    if node_id not in cluster.loads():
        known = ", ".join(map(str, cluster.loads()))
        raise SkylogError(f"there is no broker {node_id}; the brokers are {known}")
    return _plan(cluster, drain(_image(cluster), node_id, Random(0)))


def _plan(cluster: ClusterDescription, targets: Targets) -> ReassignmentPlan:
    moves = [
        PartitionMove(each.partition, each.replicas, targets[each.partition])
        for each in cluster.partitions
        if each.partition in targets
    ]
    return ReassignmentPlan(tuple(moves))


def _image(cluster: ClusterDescription) -> ClusterImage:
    """Return the cluster as the planner sees it: replicas and racks, without epochs and configurations."""
    from skylog.cluster.image import BrokerImage, ClusterImage, TopicImage
    from skylog.protocol.schema import ZERO_UUID

    brokers = {each.node_id: BrokerImage(each.node_id, each.host, each.port, each.rack) for each in cluster.brokers}
    partitions: defaultdict[str, list[PartitionImage]] = defaultdict(list)
    for key, partition in _partition_images(cluster).items():
        partitions[key.topic].append(partition)
    topics = {name: TopicImage(name, ZERO_UUID, tuple(each), {}, 0) for name, each in partitions.items()}
    return ClusterImage(cluster.cluster_id, cluster.controller_id, brokers, topics)


def _partition_images(cluster: ClusterDescription) -> dict[TopicPartition, PartitionImage]:
    from skylog.cluster.image import PartitionImage

    moving = {each.partition: each for each in cluster.reassignments}
    images = {}
    for each in cluster.partitions:
        removing = moving[each.partition].removing if each.partition in moving else ()
        images[each.partition] = PartitionImage(
            each.leader, 0, each.replicas, each.in_sync_replicas, (), each.adding_replicas, removing
        )
    return images
