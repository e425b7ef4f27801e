"""The description of a cluster: brokers, leaders, replicas, reassignments under way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from skylog.errors import KafkaError
from skylog.model import TopicPartition


@dataclass(frozen=True, slots=True)
class ClusterBroker:
    """A live broker and the address that it advertises."""

    node_id: int
    host: str
    port: int
    rack: str | None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The leader and the replicas of a partition. `leader` is -1 while there is none.

    The first of `replicas` is the preferred leader. `offline_replicas` are on brokers that are not live. During a
    reassignment `replicas` has both the old and the new ones; `adding_replicas` are the new ones.

    A partition without a leader waits for one of the replicas that have all committed messages: those in sync, and the
    `eligible_replicas`, which are known only then.
    """

    partition: TopicPartition
    leader: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    eligible_replicas: tuple[int, ...] = ()

    @property
    def is_offline(self) -> bool:
        return self.leader < 0

    @property
    def missing_replicas(self) -> tuple[int, ...]:
        """The replicas that are not in sync, without those that a reassignment adds."""
        known = (*self.in_sync_replicas, *self.adding_replicas)
        return tuple(each for each in self.replicas if each not in known)

    @property
    def is_under_replicated(self) -> bool:
        return bool(self.missing_replicas)

    @property
    def preferred_leader(self) -> int:
        return self.replicas[0]


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A partition that moves to other brokers. `replicas` has the target first, then those that are removed."""

    partition: TopicPartition
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        return tuple(each for each in self.replicas if each not in self.removing)

    @property
    def original(self) -> tuple[int, ...]:
        """The replicas before the reassignment."""
        return tuple(each for each in self.replicas if each not in self.adding)


@dataclass(frozen=True, slots=True)
class BrokerLoad:
    """What a broker holds: the number of partitions it leads, of its replicas, and of those that are not in sync."""

    leaders: int
    replicas: int
    out_of_sync: int


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """A cluster at one moment. `controller_id` is -1 while there is none.

    Brokers and partitions are sorted. `reassignments_problem` is the reason why the reassignments are not known.
    """

    cluster_id: str
    controller_id: int
    brokers: tuple[ClusterBroker, ...]
    partitions: tuple[PartitionState, ...]
    reassignments: tuple[Reassignment, ...] = ()
    reassignments_problem: str | None = None

    @property
    def broker_ids(self) -> list[int]:
        return [broker.node_id for broker in self.brokers]

    @property
    def used_broker_ids(self) -> list[int]:
        """The brokers that have replicas, live or not."""
        return sorted({each for partition in self.partitions for each in partition.replicas})

    @property
    def missing_broker_ids(self) -> list[int]:
        """The brokers that have replicas and are not live."""
        return sorted({each for partition in self.partitions for each in partition.offline_replicas})

    @property
    def offline(self) -> list[PartitionState]:
        """The partitions without a leader."""
        return [partition for partition in self.partitions if partition.is_offline]

    @property
    def under_replicated(self) -> list[PartitionState]:
        """The partitions with replicas that are not in sync, those without a leader included."""
        return [partition for partition in self.partitions if partition.is_under_replicated]

    @property
    def problems(self) -> list[PartitionState]:
        return [partition for partition in self.partitions if partition.is_offline or partition.is_under_replicated]

    def partition(self, key: TopicPartition) -> PartitionState | None:
        return next((partition for partition in self.partitions if partition.partition == key), None)

    def loads(self) -> dict[int, BrokerLoad]:
        """Return the load of each broker, live or missing, by its id."""
        leaders = Counter(partition.leader for partition in self.partitions)
        replicas = Counter(_flatten(partition.replicas for partition in self.partitions))
        out_of_sync = Counter(_flatten(partition.missing_replicas for partition in self.partitions))
        known = sorted({*self.broker_ids, *replicas})
        return {each: BrokerLoad(leaders[each], replicas[each], out_of_sync[each]) for each in known}


def _flatten(lists: Iterable[tuple[int, ...]]) -> Iterable[int]:
    return (each for ids in lists for each in ids)


@dataclass(frozen=True, slots=True)
class Election:
    """The outcome of an election of one partition. `error` is None if it succeeded."""

    partition: TopicPartition
    former_leader: int
    leader: int
    error: KafkaError | None = None
