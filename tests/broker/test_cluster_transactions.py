"""Transactions in a cluster: the coordinator, the group's coordinator and the partitions are on different brokers."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from skylog.broker import Broker
from skylog.broker.state_topic import partition_of
from skylog.client.transactions import TransactionAdmin
from skylog.cluster import TopicImage
from skylog.errors import ErrorCode, KafkaError
from skylog.model import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from skylog.protocol.end_txn import EndTxnRequest
from skylog.protocol.find_coordinator import FindCoordinatorRequest
from skylog.transactions import Producer, TransactionState
from tests.transactions.client import TransactionClient

from .local_cluster import LocalCluster
from .process import until
from .test_cluster_elections import UNCLEAN, elect

NONE = ErrorCode.NONE
SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
    "min.insync.replicas": "2",
}


class TransactionCluster(LocalCluster):
    """Three brokers, and a client of each."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, 3, SETTINGS)
        self._stack = ExitStack()
        self._transactional: dict[int, TransactionClient] = {}

    def __exit__(self, *error: object) -> None:
        self._stack.close()
        super().__exit__(*error)

    def speak_to(self, node_id: int) -> TransactionClient:
        if node_id not in self._transactional:
            self._transactional[node_id] = self._stack.enter_context(TransactionClient(self.ports[node_id]))
        return self._transactional[node_id]

    def stop(self, *node_ids: int) -> None:
        for node_id in node_ids:
            client = self._transactional.pop(node_id, None)
            if client is not None:
                client.close()
        super().stop(*node_ids)

    def any_client(self) -> TransactionClient:
        return self.speak_to(min(self.brokers))

    def coordinator(self, transactional_id: str = "t") -> TransactionClient:
        """A client of the broker that coordinates an id, when it serves it."""
        return self.speak_to(self._coordinator_of(transactional_id, 1))

    def group_coordinator(self, group: str = "g") -> TransactionClient:
        return self.speak_to(self._coordinator_of(group, 0))

    def _coordinator_of(self, key: str, key_type: int) -> int:
        found: list[int] = []

        def is_served() -> bool:
            request = FindCoordinatorRequest(coordinator_keys=[key], key_type=key_type)
            (row,) = self.any_client().ask(request, 4).coordinators
            found.append(row.node_id)
            if row.error_code or row.node_id not in self.brokers:
                return False

            def has_shard(broker: Broker) -> bool:
                topic = broker.transactions._topic if key_type else broker.coordinator._topic
                return partition_of(key, 3) in topic._served

            return self.look(row.node_id, has_shard)

        until(is_served, f"a coordinator of {key}")
        return found[-1]

    def leader(self, topic: str, partition: int = 0) -> TransactionClient:
        """A client of the leader of a partition."""
        return self.speak_to(self.leader_of(topic, partition))

    def leader_of(self, topic: str, partition: int = 0) -> int:
        def live() -> int:
            image = self.look(min(self.brokers), lambda broker: broker.metadata.image)
            leader = image.topics[topic].partitions[partition].leader
            return leader if leader in self.brokers else 0

        return until(live, f"a leader of {topic}-{partition}")

    def state_of(self, transactional_id: str = "t") -> str:
        return self.coordinator(transactional_id).describe(transactional_id).transaction_state

    def hold_markers(self, node_id: int) -> None:
        """Let a broker send no markers any more, as if it could reach nobody."""

        async def never(*_: object) -> bool:
            await asyncio.Event().wait()
            return False

        def hold(broker: Broker) -> None:
            broker.transactions.markers.send = never  # type: ignore[method-assign, assignment]

        self.look(node_id, hold)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[TransactionCluster]:
    with TransactionCluster(tmp_path) as running:
        running.create("topic", [1, 2, 3], [2, 3, 1], [3, 1, 2])
        yield running


def begin(cluster: TransactionCluster, value: bytes = b"x", transactional_id: str = "t") -> Producer:
    """Begin a transaction with a record in each partition, and offsets of the group."""
    coordinator = cluster.coordinator(transactional_id)
    producer = coordinator.init(transactional_id)
    names = [TopicPartition("topic", index) for index in range(3)]
    assert coordinator.add(producer, *names, transactional_id=transactional_id) == [NONE] * 3
    for index in range(3):
        leader = cluster.leader("topic", index)
        code = leader.produce_in(producer, "topic", value, partition=index, transactional_id=transactional_id)
        assert code is NONE
    assert coordinator.add_offsets(producer, transactional_id=transactional_id) is NONE
    commit = cluster.group_coordinator().commit_in
    assert commit(producer, "topic", 9, transactional_id=transactional_id) is NONE
    return producer


def check_visible(cluster: TransactionCluster, *values: bytes) -> None:
    for index in range(3):
        found = until(
            lambda: cluster.leader("topic", index).committed_values("topic", index) == list(values),  # noqa: B023
            f"{values} in topic-{index}",
        )
        assert found


@pytest.mark.parametrize("commits", [True, False])
def test_a_transaction_ends_on_every_broker(cluster: TransactionCluster, commits: bool) -> None:
    producer = begin(cluster)
    assert {cluster.leader_of("topic", index) for index in range(3)} == {1, 2, 3}
    assert cluster.coordinator().end(producer, commits) is NONE
    until(lambda: cluster.state_of() == ("CompleteCommit" if commits else "CompleteAbort"), "the end")
    check_visible(cluster, *([b"x"] if commits else []))
    assert cluster.group_coordinator().group_offset("topic", stable=True) == (9 if commits else -1, NONE)


def test_a_late_batch_is_refused_by_every_leader(cluster: TransactionCluster) -> None:
    producer = begin(cluster)
    cluster.coordinator().end(producer, True)
    until(lambda: cluster.state_of() == "CompleteCommit", "the end")
    for index in range(3):
        leader = cluster.leader("topic", index)
        code = leader.produce_in(producer, "topic", b"late", partition=index, sequence=1)
        assert code is ErrorCode.INVALID_TXN_STATE
    check_visible(cluster, b"x")


def test_a_transaction_whose_marker_was_deleted_by_an_unclean_election_is_found_and_ended(
    cluster: TransactionCluster,
) -> None:
    """Consumers hang there, since nobody will end it (KAFKA-20716)."""
    cluster.create("unclean", [1, 2], min_insync_replicas="1")
    producer = cluster.coordinator().init()
    assert cluster.coordinator().add(producer, TopicPartition("unclean", 0)) == [NONE]
    assert cluster.leader("unclean").produce_in(producer, "unclean", b"x") is NONE
    cluster.stop(2)
    assert cluster.coordinator().end(producer, True) is NONE
    until(lambda: cluster.state_of() == "CompleteCommit", "the marker, on broker 1 alone")
    assert cluster.leader("unclean").committed_values("unclean") == [b"x"]
    cluster.stop(1)
    cluster.start(2)
    assert elect(cluster, 3, UNCLEAN, {"unclean": [0]}) == {"unclean": {0: NONE}}
    leader = cluster.leader("unclean")
    until(lambda: leader.list_offset("unclean", -1).offset == 1, "the leader")
    assert leader.list_offset("unclean", -1, isolation=1).offset == 0
    admin = TransactionAdmin(f"127.0.0.1:{cluster.ports[3]}")
    (hanging,) = until(lambda: admin.find_hanging(age_s=0), "the transaction")
    assert (hanging.partition, hanging.producer_id) == (TopicPartition("unclean", 0), producer.producer_id)
    admin.abort(hanging)
    assert leader.list_offset("unclean", -1, isolation=1).offset == 2
    assert leader.committed_values("unclean") == []
    assert admin.find_hanging(age_s=0) == []


def test_a_transaction_whose_coordinator_is_away_does_not_count_as_hanging(tmp_path: Path) -> None:
    """Aborting it would take away records that its producer may still commit."""
    with TransactionCluster(tmp_path) as cluster:
        cluster.create(TRANSACTION_STATE_TOPIC, [1], [2], [3], min_insync_replicas="1")
        node_id = cluster._coordinator_of("t", 1)
        other = next(each for each in cluster.brokers if each != node_id)
        cluster.create("elsewhere", [other], min_insync_replicas="1")
        producer = cluster.coordinator().init()
        assert cluster.coordinator().add(producer, TopicPartition("elsewhere", 0)) == [NONE]
        assert cluster.leader("elsewhere").produce_in(producer, "elsewhere", b"x") is NONE
        admin = TransactionAdmin(f"127.0.0.1:{cluster.ports[other]}")
        assert admin.find_hanging(age_s=0) == []
        cluster.stop(node_id)
        assert len(admin.open_transactions()) == 1
        with pytest.raises(KafkaError) as refused:
            admin.find_hanging(age_s=0)
        assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_transaction_that_ends_during_the_search_does_not_count_as_hanging(
    cluster: TransactionCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = begin(cluster)
    admin = TransactionAdmin(f"127.0.0.1:{cluster.ports[1]}")
    list_transactions = admin.list_transactions

    def end_first(**options: Any) -> Any:
        assert cluster.coordinator().end(producer, True) is NONE
        check_visible(cluster, b"x")
        until(lambda: cluster.state_of() == "CompleteCommit", "the end")
        return list_transactions(**options)

    monkeypatch.setattr(admin, "list_transactions", end_first)
    topic = [TopicPartition("topic", index) for index in range(3)]
    assert len(admin.open_transactions(topic)) == 3
    assert admin.find_hanging(topic, age_s=0) == []


def test_the_topic_of_transactions_has_three_replicas_of_which_two_must_be_in_sync(cluster: TransactionCluster) -> None:
    cluster.coordinator()
    topic = cluster.look(1, lambda broker: broker.metadata.image.topics[TRANSACTION_STATE_TOPIC])
    assert [len(each.replicas) for each in topic.partitions] == [3, 3, 3]
    assert topic.configs["min.insync.replicas"] == "2"
    assert topic.configs["cleanup.policy"] == "compact"


@pytest.mark.parametrize("commits", [True, False])
def test_a_decision_is_carried_out_by_the_next_coordinator(cluster: TransactionCluster, commits: bool) -> None:
    """The coordinator stops after it has answered, and before any partition has its marker."""
    producer = begin(cluster)
    coordinator = cluster._coordinator_of("t", 1)
    cluster.hold_markers(coordinator)
    assert cluster.coordinator().end(producer, commits) is NONE
    assert cluster.state_of() == ("PrepareCommit" if commits else "PrepareAbort")
    for index in range(3):
        assert cluster.leader("topic", index).committed_values("topic", index) == []
    cluster.stop(coordinator)
    until(lambda: cluster.state_of() == ("CompleteCommit" if commits else "CompleteAbort"), "the end")
    check_visible(cluster, *([b"x"] if commits else []))
    assert cluster.group_coordinator().group_offset("topic", stable=True) == (9 if commits else -1, NONE)


def test_an_open_transaction_moves_with_its_coordinator(cluster: TransactionCluster) -> None:
    """ "Ongoing" that is only in memory is lost with the leader (Redpanda 6018)."""
    producer = begin(cluster)
    cluster.stop(cluster._coordinator_of("t", 1))
    assert cluster.state_of() == "Ongoing"
    coordinator = cluster.coordinator()
    assert coordinator.end(producer, True) is NONE
    until(lambda: cluster.state_of() == "CompleteCommit", "the end")
    check_visible(cluster, b"x")


def test_offsets_of_an_open_transaction_move_with_the_coordinator_of_the_group(cluster: TransactionCluster) -> None:
    producer = begin(cluster)
    cluster.stop(cluster._coordinator_of("g", 0))
    unstable = (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert cluster.group_coordinator().group_offset("topic", stable=True) == unstable
    assert cluster.coordinator().end(producer, True) is NONE
    until(lambda: cluster.group_coordinator().group_offset("topic", stable=True) == (9, NONE), "the offset")


def test_a_timeout_counts_on_after_a_change_of_the_coordinator(cluster: TransactionCluster) -> None:
    coordinator = cluster.coordinator()
    producer = coordinator.init("t", 1000)
    coordinator.add(producer, TopicPartition("topic", 0))
    cluster.stop(cluster._coordinator_of("t", 1))
    until(lambda: cluster.state_of() == "CompleteAbort", "the timeout")
    assert cluster.coordinator().end(producer, True) is ErrorCode.PRODUCER_FENCED


def test_other_brokers_are_not_the_coordinator(cluster: TransactionCluster) -> None:
    node_id = cluster._coordinator_of("t", 1)
    other = cluster.speak_to(next(each for each in cluster.brokers if each != node_id))
    assert other.init_once().error_code == ErrorCode.NOT_COORDINATOR
    assert other.add(Producer(1, 0), TopicPartition("topic", 0)) == [ErrorCode.NOT_COORDINATOR]
    assert other.end(Producer(1, 0), True) is ErrorCode.NOT_COORDINATOR
    assert other.describe().error_code == ErrorCode.NOT_COORDINATOR


def move_coordinator(cluster: TransactionCluster, node_id: int, transactional_id: str = "t") -> None:
    """Let another broker lead the partition of an id, as a controller would."""
    index = partition_of(transactional_id, 3)

    def moved(topic: TopicImage) -> TopicImage:
        partition = topic.partitions[index]
        other = next(each for each in partition.in_sync_replicas if each != node_id)
        now = dataclasses.replace(partition, leader=other, leader_epoch=partition.leader_epoch + 1)
        return dataclasses.replace(topic, partitions=(*topic.partitions[:index], now, *topic.partitions[index + 1 :]))

    broker = cluster.brokers[node_id]
    cluster.until_all_in_sync(TRANSACTION_STATE_TOPIC)
    cluster.run(broker.metadata.change_topic(broker.metadata.image.topics[TRANSACTION_STATE_TOPIC], moved))


def test_a_request_whose_fsync_outlasts_the_leadership_is_answered(
    cluster: TransactionCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = begin(cluster)
    node_id = cluster._coordinator_of("t", 1)
    commits = cluster.brokers[node_id].commits
    append_own, appended = commits.append_own, threading.Event()

    def append_without_end(*args: Any) -> asyncio.Future[None]:
        append_own(*args)
        appended.set()
        return asyncio.get_running_loop().create_future()

    monkeypatch.setattr(commits, "append_own", append_without_end)
    client = cluster.speak_to(node_id)
    request = EndTxnRequest(
        transactional_id="t", producer_id=producer.producer_id, producer_epoch=producer.epoch, committed=True
    )
    client.send(request, 3)
    assert appended.wait(20)
    move_coordinator(cluster, node_id)
    assert client.receive().error_code == ErrorCode.NOT_COORDINATOR
    monkeypatch.undo()
    until(lambda: cluster.coordinator().end(producer, True) is NONE, "the end")
    until(lambda: cluster.state_of() == "CompleteCommit", "the end")
    check_visible(cluster, b"x")


def test_a_decision_needs_enough_replicas(cluster: TransactionCluster) -> None:
    """Without them it is not stored, nobody is told of it, and no marker is written."""
    producer = begin(cluster)
    node_id = cluster._coordinator_of("t", 1)
    others = [each for each in cluster.brokers if each != node_id]

    def entry(broker: Broker) -> TransactionState:
        found = broker.transactions.shard("t").find("t")
        assert found is not None
        return found.state

    cluster.stop(*others)
    code = cluster.speak_to(node_id).end(producer, True)
    assert code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
    if code is ErrorCode.COORDINATOR_NOT_AVAILABLE:
        assert cluster.look(node_id, entry) is TransactionState.ONGOING
    cluster.start(*others)
    until(lambda: cluster.coordinator().end(producer, True) is NONE, "the end")
    until(lambda: cluster.state_of() == "CompleteCommit", "the end")
    check_visible(cluster, b"x")


def test_the_groups_topic_gets_its_marker_like_any_other(cluster: TransactionCluster) -> None:
    producer = begin(cluster)
    found = cluster.coordinator().describe()
    name = TopicPartition(CONSUMER_OFFSETS_TOPIC, partition_of("g", 3))
    assert (name.topic, [name.partition]) in [(row.topic, row.partitions) for row in found.topics]
    assert cluster.coordinator().end(producer, False) is NONE
