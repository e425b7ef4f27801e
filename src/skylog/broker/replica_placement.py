"""Which brokers get the replicas of new partitions, and whether this one has room for its share."""

from __future__ import annotations

import resource
from collections.abc import Sequence
from random import Random
from typing import Final

from skylog.broker.replicas import Replicas
from skylog.cluster import BrokerImage, ClusterMetadata, TopicImage
from skylog.cluster.placement import place
from skylog.cluster.reassignment import target_of
from skylog.errors import ErrorCode, KafkaError

SHARE_OF_DESCRIPTORS: Final = 0.75  # each log keeps a file open; the rest is for connections and closed segments

Assignment = Sequence[Sequence[int]]
"""The brokers of each partition. The first one is the preferred leader."""


class ReplicaPlacement:
    """Chooses brokers, or checks those that a client has chosen. Raises KafkaError.

    Every method raises INVALID_PARTITIONS if this broker cannot open that many logs. The other brokers know their own
    limits.
    """

    def __init__(self, node_id: int, metadata: ClusterMetadata, replicas: Replicas, rng: Random) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._replicas = replicas
        self._rng = rng

    def place(self, count: int, replication_factor: int) -> list[list[int]]:
        """Choose the brokers of a new topic's partitions."""
        return self._place(count, replication_factor, 0, None)

    def extend(self, topic: TopicImage, count: int) -> list[list[int]]:
        """Choose the brokers of partitions that are added to a topic, in continuation of the present ones."""
        return self._place(count, _replication_factor(topic), len(topic.partitions), target_of(topic.partitions[0])[0])

    def _place(
        self, count: int, replication_factor: int, first_partition: int, first_broker: int | None
    ) -> list[list[int]]:
        brokers = [(each.node_id, each.rack) for each in self._candidates(replication_factor)]
        return self._with_room(place(brokers, count, replication_factor, self._rng, first_partition, first_broker))

    def _candidates(self, replication_factor: int) -> list[BrokerImage]:
        """Return the live brokers, without those that are stopping if there are enough others."""
        live = list(self._metadata.image.brokers.values())
        active = [each for each in live if not each.is_stopping]
        return active if len(active) >= replication_factor else live

    def check(self, assignment: Assignment, topic: TopicImage | None = None) -> list[list[int]]:
        """Check brokers that a client has chosen for new partitions, of an existing `topic` if one is given."""
        count = len(assignment[0]) if topic is None else _replication_factor(topic)
        live = self._metadata.image.brokers
        for ids in assignment:
            if not ids or len(set(ids)) != len(ids) or len(ids) != count:
                raise KafkaError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT, "each partition needs the same number of different brokers"
                )
            missing = [node_id for node_id in ids if node_id not in live]
            if missing:
                raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"there is no broker {missing[0]}")
        return self._with_room([list(ids) for ids in assignment])

    def _with_room(self, assignment: list[list[int]]) -> list[list[int]]:
        """Return an assignment if this broker may open enough files for its share.

        A topic that cannot be opened for lack of descriptors would keep the broker from starting.
        """
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        present = len(self._replicas) + len(self._replicas.offline)
        added = sum(self._node_id in ids for ids in assignment)
        if limit != resource.RLIM_INFINITY and present + added > limit * SHARE_OF_DESCRIPTORS:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"{added} more partitions than the present {present} need more open files than the limit of {limit} "
                "has room for; raise it (ulimit -n) and start the broker again",
            )
        return assignment


def _replication_factor(topic: TopicImage) -> int:
    return len(target_of(topic.partitions[0]))
