"""Proposes targets for reassignments: to empty a broker, or to use a given set of brokers evenly.

A plan moves few replicas, because each one that moves is copied over the network. It puts no more replicas of a
partition on one rack than before, if another broker is available.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from random import Random

from skylog.cluster.image import ClusterImage
from skylog.cluster.placement import racks_of
from skylog.cluster.reassignment import target_of
from skylog.errors import ErrorCode, KafkaError
from skylog.model import TopicPartition

Targets = dict[TopicPartition, tuple[int, ...]]


def drain(image: ClusterImage, node_id: int, rng: Random) -> Targets:
    """Return targets that move every replica off a broker, live or not, to the least loaded others.

    Raises INVALID_REPLICATION_FACTOR if there are too few of them.
    """
    others = [each for each, broker in image.brokers.items() if each != node_id and not broker.is_stopping]
    layout = _Layout(image, others, rng)
    for partition in layout.partitions_on(node_id):
        layout.replace(partition, node_id)
    return layout.changes()


def spread(
    image: ClusterImage,
    brokers: Iterable[int],
    rng: Random,
    topics: Collection[str] | None = None,
    replication_factor: int | None = None,
) -> Targets:
    """Return targets that spread replicas and preferred leaders evenly over `brokers`, and use no others.

    Moves the given topics, by default all. Each partition gets `replication_factor` replicas, by default as many as it
    has. Raises INVALID_REPLICA_ASSIGNMENT for an unknown broker, and INVALID_REPLICATION_FACTOR if there are
    too few.
    """
    brokers = sorted(set(brokers))
    missing = [each for each in brokers if each not in image.brokers]
    if missing:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"there is no broker {missing[0]}")
    layout = _Layout(image, brokers, rng, topics)
    if replication_factor is not None:
        layout.resize(replication_factor)
    for outsider in layout.all_brokers() - set(brokers):
        for partition in layout.partitions_on(outsider):
            layout.replace(partition, outsider)
    layout.level_replicas()
    layout.level_leaders()
    return layout.changes()


class _Layout:
    """The target of each partition, changed step by step. `usable` are the brokers that may get replicas."""

    def __init__(
        self, image: ClusterImage, usable: Collection[int], rng: Random, topics: Collection[str] | None = None
    ) -> None:
        self._rng = rng
        self._usable = usable
        self._racks: Mapping[int, str] = racks_of({each: broker.rack for each, broker in image.brokers.items()})
        self._before = {
            TopicPartition(topic.name, index): target_of(partition)
            for topic in image.topics.values()
            if topics is None or topic.name in topics
            for index, partition in enumerate(topic.partitions)
        }
        self._targets = {partition: list(target) for partition, target in self._before.items()}
        self._load: Counter[int] = Counter()
        self._leaders: Counter[int] = Counter()
        self._hosted: dict[int, dict[TopicPartition, None]] = {each: {} for each in usable}  # ordered sets
        for partition in self._shuffled():
            self._leaders[self._targets[partition][0]] += 1
            for node_id in self._targets[partition]:
                self._load[node_id] += 1
                self._hosted.setdefault(node_id, {})[partition] = None

    def _shuffled(self) -> list[TopicPartition]:
        partitions = sorted(self._before)
        self._rng.shuffle(partitions)
        return partitions

    def all_brokers(self) -> set[int]:
        return set(self._hosted)

    def partitions_on(self, node_id: int) -> list[TopicPartition]:
        return list(self._hosted.get(node_id, ()))

    def changes(self) -> Targets:
        targets = {partition: tuple(target) for partition, target in self._targets.items()}
        return {partition: target for partition, target in targets.items() if target != self._before[partition]}

    # -- replicas

    def resize(self, replication_factor: int) -> None:
        """Add or remove replicas, so that each partition has as many. Removes those on unusable brokers first."""
        for partition in self._shuffled():
            target = self._targets[partition]
            while len(target) > replication_factor:
                self._remove(partition, self._most_dispensable(partition))
            while len(target) < replication_factor:
                self._add(partition, self._best(partition, None, replication_factor))

    def _most_dispensable(self, partition: TopicPartition) -> int:
        target = self._targets[partition]
        return max(
            target,
            key=lambda each: (
                each not in self._usable,
                each != target[0],
                each in self._racks and self._neighbours(partition, each, each),
                self._load[each],
            ),
        )

    def _add(self, partition: TopicPartition, node_id: int) -> None:
        self._targets[partition].append(node_id)
        self._load[node_id] += 1
        self._hosted[node_id][partition] = None

    def _remove(self, partition: TopicPartition, node_id: int) -> None:
        target = self._targets[partition]
        if target[0] == node_id:
            self._count_leader(node_id, target[1])
        target.remove(node_id)
        self._load[node_id] -= 1
        del self._hosted[node_id][partition]

    def replace(self, partition: TopicPartition, node_id: int) -> None:
        """Move the replica on `node_id` to the best other broker."""
        self._move(partition, node_id, self._best(partition, node_id, len(self._targets[partition])))

    def _best(self, partition: TopicPartition, node_id: int | None, wanted: int) -> int:
        """Return the best broker for a further replica, or for the one on `node_id`."""
        target = self._targets[partition]
        candidates = [each for each in self._usable if each not in target]
        if not candidates:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"{partition} needs {wanted} brokers for {wanted} replicas; there are {len(self._usable)}",
            )
        counts = self._leaders if target[0] == node_id else self._load
        return min(
            candidates,
            key=lambda each: (
                self._neighbours(partition, node_id, each),
                self._load[each],
                counts[each],
                self._rng.random(),
            ),
        )

    def level_replicas(self) -> None:
        """Move replicas from brokers with many to brokers with few, until their numbers differ by one at most.

        Only the racks can prevent that: a broker with more replicas than another has some that the other has not.
        """
        while self._move_one():
            pass

    def _move_one(self) -> bool:
        order = sorted(self._usable, key=lambda each: self._load[each])
        for full in reversed(order):
            for empty in order:
                if self._load[full] - self._load[empty] < 2:
                    break
                partition = self._movable(full, empty)
                if partition is not None:
                    self._move(partition, full, empty)
                    return True
        return False

    def _movable(self, full: int, empty: int) -> TopicPartition | None:
        """Find a partition that can move from a broker to another, with no more replicas on one rack than before."""
        for partition in self._hosted[full]:
            is_free = empty not in self._targets[partition]
            if is_free and self._neighbours(partition, full, empty) <= self._neighbours(partition, full, full):
                return partition
        return None

    def _neighbours(self, partition: TopicPartition, leaving: int | None, node_id: int) -> int:
        """Return how many other replicas of a partition are on the rack of a broker."""
        rack = self._racks[node_id]
        return sum(self._racks.get(each) == rack for each in self._targets[partition] if each != leaving)

    def _move(self, partition: TopicPartition, source: int, destination: int) -> None:
        target = self._targets[partition]
        place = target.index(source)
        if place == 0:
            self._count_leader(source, destination)
        target[place] = destination
        self._load[source] -= 1
        self._load[destination] += 1
        del self._hosted[source][partition]
        self._hosted[destination][partition] = None

    # -- preferred leaders

    def level_leaders(self) -> None:
        """Let another replica be the preferred leader where that makes the numbers more even."""
        while sum(self._promote(partition) for partition in self._targets):
            pass

    def _promote(self, partition: TopicPartition) -> bool:
        target = self._targets[partition]
        first, best = target[0], min(target, key=lambda each: self._leaders[each])
        if self._leaders[first] - self._leaders[best] < 2:
            return False
        target.remove(best)
        target.insert(0, best)
        self._count_leader(first, best)
        return True

    def _count_leader(self, source: int, destination: int) -> None:
        self._leaders[source] -= 1
        self._leaders[destination] += 1
