"""Administration of a cluster: describe it, elect leaders, move replicas, limit the rate of moves."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from confluent_kafka.admin import AdminClient, ResourceType

from skylog.client.admin import Admin
from skylog.client.cluster import ClusterDescription, Election, PartitionState, Reassignment
from skylog.client.cluster_requests import RETRY_S, SHORT_TIMEOUT_S, ClusterRequests, brokers_of
from skylog.client.connection import Connection
from skylog.client.errors import TopicNotFoundError
from skylog.client.reassignment_plan import ReassignmentPlan, plan_drain, plan_spread
from skylog.client.reassignment_progress import ReassignmentProgress, ReassignmentTracker
from skylog.client.throttle import RATE_KEYS, TOPIC_KEYS, throttled_replicas
from skylog.errors import ErrorCode, KafkaError, SkylogError
from skylog.model import TopicPartition

_NO_LEADER: Final = -1
_HAS_ENDED: Final = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


class ClusterAdmin:
    """Administers the brokers and replicas of one cluster. For topics see `Admin`, for groups `ConsumerGroups`.

    Methods raise what those of Admin raise. librdkafka cannot send the requests for reassignments, so they go over a
    connection of their own, which supports TLS, PLAIN and SCRAM. The brokers learn of a change one after another, so a
    description may be a moment behind.
    """

    def __init__(self, bootstrap: str | Connection | None = None, client: AdminClient | None = None) -> None:
        """`client` is an existing client of the connection to share; by default a new one is created."""
        connection = bootstrap if isinstance(bootstrap, Connection) else Connection(bootstrap)
        client = client or connection.admin_client()
        self._requests = ClusterRequests(connection, client)
        self._admin = Admin(connection, client)

    # -- reading

    def describe(self, topics: Iterable[str] | None = None) -> ClusterDescription:
        """Return the brokers and the partitions of these topics, by default of all.

        If the reassignments cannot be listed, the description says why.
        """
        reassignments, problem = self._requests.try_reassignments()  # first: those that end meanwhile do no harm
        metadata = self._requests.metadata()
        names = sorted(metadata.topics if topics is None else set(topics))
        for name in names:
            if name not in metadata.topics:
                raise TopicNotFoundError(name, metadata.topics)
        brokers = brokers_of(metadata)
        nodes = self._requests.nodes(brokers)
        live = {broker.node_id for broker in brokers}
        adding = {each.partition: each.adding for each in reassignments}
        partitions = [
            _state(TopicPartition(name, index), row, live, adding)
            for name in names
            for index, row in sorted(metadata.topics[name].partitions.items())
        ]
        return ClusterDescription(
            metadata.cluster_id or "",
            metadata.controller_id if nodes is None else nodes.controller_id,
            tuple(replace(broker, rack=nodes and nodes.racks.get(broker.node_id)) for broker in brokers),
            tuple(self._with_eligible(partitions)),
            tuple(each for each in reassignments if topics is None or each.partition.topic in names),
            problem,
        )

    def _with_eligible(self, partitions: list[PartitionState]) -> list[PartitionState]:
        """Add the eligible replicas of partitions without a leader."""
        topics = {each.partition.topic for each in partitions if each.is_offline}
        if not topics:
            return partitions
        eligible = self._requests.eligible_replicas(topics)
        return [
            replace(each, eligible_replicas=eligible.get(each.partition, ())) if each.is_offline else each
            for each in partitions
        ]

    def list_reassignments(self) -> list[Reassignment]:
        """Return the reassignments under way, sorted by partition."""
        return self._requests.reassignments()

    def bytes_left(self, reassignments: Collection[Reassignment]) -> int | None:
        """Return how much the added replicas are smaller than the leaders; None if a broker does not answer."""
        sizes = self._requests.replica_sizes([each.partition for each in reassignments])
        rows = self._requests.rows()
        left = 0
        for each in reassignments:
            leader = rows[each.partition].leader if each.partition in rows else _NO_LEADER
            whole = sizes.get((each.partition, leader))
            if whole is None:
                return None
            left += sum(max(whole - sizes.get((each.partition, node_id), 0), 0) for node_id in each.adding)
        return left

    # -- leaders

    def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, *, unclean: bool = False
    ) -> list[Election]:
        """Make the preferred replicas the leaders, by default of all partitions.

        With `unclean`, elect any live replica of each partition without a leader, even if messages are lost. Returns
        the elections that took place or failed, sorted by partition.
        """
        before = self._requests.rows()
        wanted = None if partitions is None else list(partitions)
        for key in wanted or ():
            _check_partition(key, before)
        outcome = self._requests.elect(wanted, unclean=unclean)
        elected = [key for key, error in outcome.items() if error is None and key in before]
        after = self._wait_for_leaders({key: None if unclean else before[key].replicas[0] for key in elected})
        return [
            Election(key, before[key].leader if key in before else _NO_LEADER, after.get(key, _NO_LEADER), outcome[key])
            for key in sorted(outcome)
        ]

    def make_leader(self, partition: TopicPartition, node_id: int) -> Election:
        """Make a replica in sync the preferred leader of a partition, and elect it.

        This is a reassignment that puts the broker first in the list of replicas, and an election.
        """
        state = self._partition(partition)
        reassignment = next((each for each in self.list_reassignments() if each.partition == partition), None)
        target = state.replicas if reassignment is None else reassignment.target
        _check_candidate(state, target, node_id)
        if target[0] != node_id:
            self.reassign({partition: (node_id, *(each for each in target if each != node_id))})
        if state.leader == node_id:
            return Election(partition, node_id, node_id)
        self._requests.wait_until(lambda: self._elect(partition) == node_id, f"the election of {partition}")
        return Election(partition, state.leader, node_id)

    def _elect(self, key: TopicPartition) -> int:
        """Elect the preferred leader, and return the leader that a broker knows, maybe still the former one."""
        for error in self._requests.elect([key], unclean=False).values():
            if error is not None:
                raise error
        return self._partition(key).leader

    def _partition(self, key: TopicPartition) -> PartitionState:
        rows = self._requests.rows()
        _check_partition(key, rows)
        return _state(key, rows[key])

    def _wait_for_leaders(self, expected: Mapping[TopicPartition, int | None]) -> dict[TopicPartition, int]:
        """Return the leaders, when the expected ones are known or after a while; None expects any.

        The outcome of an election is final in any case.
        """
        deadline = time.monotonic() + SHORT_TIMEOUT_S
        while True:
            leaders = {key: row.leader for key, row in self._requests.rows().items()}
            led = {key: leaders[key] for key in expected if leaders.get(key, _NO_LEADER) != _NO_LEADER}
            is_known = all(key in led and each in (led[key], None) for key, each in expected.items())
            if is_known or time.monotonic() > deadline:
                return leaders
            time.sleep(RETRY_S)

    # -- reassignments

    def plan_reassignment(
        self,
        topics: Iterable[str] | None = None,
        brokers: Collection[int] | None = None,
        replication_factor: int | None = None,
    ) -> ReassignmentPlan:
        """Plan to spread the replicas of topics evenly over brokers, by default all; changes nothing."""
        cluster = self.describe(topics)
        names = {each.partition.topic for each in cluster.partitions}
        return plan_spread(cluster, names, cluster.broker_ids if brokers is None else brokers, replication_factor)

    def plan_drain(self, node_id: int) -> ReassignmentPlan:
        """Plan to move all replicas off a broker, live or not; changes nothing."""
        return plan_drain(self.describe(), node_id)

    def reassign(self, targets: Mapping[TopicPartition, Sequence[int]]) -> None:
        """Begin to move partitions to the given replicas, of which the first is the preferred leader.

        Returns when the cluster has accepted it. `list_reassignments` shows those that are not complete. Raises
        KafkaError if the cluster rejects some of them; the others have begun.
        """
        self._alter(targets, "moved")

    def cancel_reassignments(self, partitions: Iterable[TopicPartition] | None = None) -> list[Reassignment]:
        """Cancel reassignments, by default all, and return them. Partitions that are not reassigned are skipped.

        So are those whose reassignment completes at the same time.
        """
        wanted = None if partitions is None else set(partitions)
        found = [each for each in self.list_reassignments() if wanted is None or each.partition in wanted]
        ended = self._alter({each.partition: None for each in found}, "cancelled", _HAS_ENDED)
        return [each for each in found if each.partition not in ended]

    def follow(
        self, targets: Mapping[TopicPartition, Sequence[int]], interval_s: float = 0.5
    ) -> Iterator[ReassignmentProgress]:
        """Yield the progress of reassignments until all of them have ended. Does not change anything.

        One that has ended without its target was cancelled or replaced, or its topic was deleted.
        """
        tracker = ReassignmentTracker({key: tuple(target) for key, target in targets.items()}, SHORT_TIMEOUT_S)
        while True:
            moving = [each for each in self.list_reassignments() if each.partition in targets]
            present = {key: tuple(row.replicas) for key, row in self._requests.rows().items()}
            progress = tracker.update(moving, present, time.monotonic())
            yield replace(progress, bytes_left=self.bytes_left(moving) if moving else 0)
            if progress.is_over:
                return
            time.sleep(interval_s)

    def _alter(
        self, targets: Mapping[TopicPartition, Sequence[int] | None], done: str, harmless: ErrorCode | None = None
    ) -> set[TopicPartition]:
        """Change reassignments. Return the partitions with a harmless error, and raise KafkaError for another one."""
        rejected = self._requests.alter_reassignments(targets) if targets else {}
        skipped = {key for key, error in rejected.items() if error.code is harmless}
        for key, error in sorted(rejected.items()):
            if key in skipped:
                continue
            count = f"{len(rejected)} of {len(targets)} partitions" if len(targets) > 1 else "the partition"
            raise KafkaError(error.code, f"{count} could not be {done}; {key}: {error.message}")
        return skipped

    # -- throttles

    def set_throttle(self, plan: ReassignmentPlan, bytes_per_s: int) -> None:
        """Limit the rate at which each broker sends and receives the replicas of a plan that are not in sync."""
        used = {each for move in plan.moves for each in (*move.from_replicas, *move.to_replicas)}
        for broker in self._requests.brokers():
            if broker.node_id in used:
                self._set_rate(broker.node_id, str(bytes_per_s))
        for name, values in throttled_replicas(plan.moves).items():
            self._requests.configure(ResourceType.TOPIC, name, values)

    def clear_throttle(self, topics: Collection[str] | None = None) -> None:
        """Remove the throttle of topics, by default of all, except those that are being reassigned.

        The rates of the brokers stay while anything is being reassigned.
        """
        moving = {each.partition.topic for each in self.list_reassignments()}
        names = self._requests.metadata().topics.keys() - moving
        for name in self._throttled(names if topics is None else names & set(topics)):
            self._requests.configure(ResourceType.TOPIC, name, dict.fromkeys(TOPIC_KEYS))
        for broker in () if moving else self._requests.brokers():
            self._set_rate(broker.node_id, None)

    def _set_rate(self, node_id: int, bytes_per_s: str | None) -> None:
        self._requests.configure(ResourceType.BROKER, str(node_id), dict.fromkeys(RATE_KEYS, bytes_per_s))

    def _throttled(self, topics: Collection[str]) -> list[str]:
        """Return the topics that list throttled replicas."""
        configs = self._admin.visible_configs_of(topics)
        return [
            name
            for name, values in configs.items()
            if any(each.name in TOPIC_KEYS and not each.is_default for each in values or ())
        ]


def _state(
    key: TopicPartition,
    row: Any,
    live: Collection[int] | None = None,
    adding: Mapping[TopicPartition, tuple[int, ...]] | None = None,
) -> PartitionState:
    offline = () if live is None else tuple(each for each in row.replicas if each not in live)
    return PartitionState(key, row.leader, tuple(row.replicas), tuple(row.isrs), offline, (adding or {}).get(key, ()))


def _check_partition(key: TopicPartition, known: Collection[TopicPartition]) -> None:
    names = {each.topic for each in known}
    if key.topic not in names:
        raise TopicNotFoundError(key.topic, names)
    if key not in known:
        count = sum(each.topic == key.topic for each in known)
        raise SkylogError(f"topic '{key.topic}' has no partition {key.partition}: it has {count}, numbered from 0")


def _check_candidate(state: PartitionState, target: Sequence[int], node_id: int) -> None:
    """Raise unless a broker can become the leader of a partition."""
    if node_id not in target:
        raise SkylogError(
            f"broker {node_id} has no replica of {state.partition}; they are on {', '.join(map(str, target))}; "
            f"to move one there: skylog cluster reassign --topic {state.partition.topic} --brokers …"
        )
    if node_id not in state.in_sync_replicas:
        raise SkylogError(
            f"the replica of {state.partition} on broker {node_id} is not in sync; start the broker, or wait until it "
            "has caught up: skylog cluster describe"
        )
