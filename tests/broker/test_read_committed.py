"""Transactions as consumers see them: fetches and offsets under read_committed, from the leader and from followers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from skylog.broker import Broker
from skylog.cluster.image import NO_LEADER
from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.describe_producers import DescribeProducersRequest, DescribeProducersTopic
from skylog.protocol.fetch import AbortedTransaction, FetchResponse, PartitionData

from .local_cluster import LocalCluster
from .process import until
from .raw import batch_of, fetch_request, values_in

LONG_MS = 15_000  # a fetch that is not woken takes this long
COMMITTED = {"isolation": 1}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("cluster"), 2) as brokers:
        yield brokers


class Transactions:
    """A topic that a broker leads, and producers whose batches the coordinator has verified."""

    def __init__(
        self, cluster: LocalCluster, topic: str, leader: int = 1, sequences: dict[int, int] | None = None
    ) -> None:
        self.cluster = cluster
        self.topic = topic
        self.leader = leader
        self.sequences: dict[int, int] = sequences or {}

    def write(self, producer_id: int, *values: bytes) -> int:
        """Append a transactional batch. Return its offset."""
        sequence = self.sequences.get(producer_id, 0)
        self.sequences[producer_id] = sequence + len(values)
        batch = batch_of(*values, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True)

        def append(broker: Broker) -> int:
            partition = broker.replicas.leader(self.topic, 0)
            stamp = partition.verification_stamp(producer_id)
            return partition.append(memoryview(batch), broker.clock.now_ms(), 1, stamp).base_offset

        return self.cluster.look(self.leader, append)

    def write_plain(self, *values: bytes) -> None:
        assert self.cluster.client(1).produce(self.topic, batch_of(*values)).error_code == ErrorCode.NONE

    def end(self, producer_id: int, *, commits: bool, coordinator_epoch: int = 0) -> int:
        """Append a marker and return its offset."""

        def append(broker: Broker) -> int:
            partition = broker.replicas.leader(self.topic, 0)
            return partition.append_marker(
                producer_id, 0, commits=commits, coordinator_epoch=coordinator_epoch, now_ms=broker.clock.now_ms()
            ).base_offset

        return self.cluster.look(self.leader, append)

    def replicated(self) -> None:
        """Wait until both brokers know that everything is committed."""
        until(lambda: self.offsets(1)[0] == self.offsets(1)[1], "the commit")
        until(lambda: self.offsets(2) == self.offsets(1), "the watermark")  # follows within 10 ms

    def offsets(self, node_id: int) -> tuple[int, int]:
        log = self.cluster.look(node_id, lambda broker: broker.replicas.readable(self.topic, 0).log)
        return log.high_watermark, log.log_end_offset

    def fetch(self, offset: int = 0, node_id: int = 1, **options: Any) -> PartitionData:
        return self.cluster.client(node_id).fetch(self.topic, offset, **options)


@pytest.fixture
def transactions(cluster: LocalCluster, new_name: str) -> Transactions:
    """The topic has one replica."""
    return Transactions(cluster, cluster.create(new_name, [1]))


@pytest.fixture
def replicated(cluster: LocalCluster, new_name: str) -> Transactions:
    """The topic has two replicas."""
    topic = cluster.create(new_name, [1, 2])
    cluster.until_in_sync(topic, [1, 2])
    return Transactions(cluster, topic)


def aborted(found: PartitionData) -> list[tuple[int, int]] | None:
    rows: list[AbortedTransaction] | None = found.aborted_transactions
    return None if rows is None else [(row.producer_id, row.first_offset) for row in rows]


def values(found: PartitionData) -> list[bytes | None]:
    return [value for _, value in values_in(found.records or b"")]


class TestFetch:
    def test_batches_of_an_open_transaction_are_not_returned(self, transactions: Transactions) -> None:
        transactions.write_plain(b"a")
        transactions.write(7, b"b")
        transactions.write_plain(b"c")
        found = transactions.fetch(**COMMITTED)
        assert (values(found), aborted(found)) == ([b"a"], [])
        assert (found.last_stable_offset, found.high_watermark) == (1, 3)
        everything = transactions.fetch()
        assert (values(everything), aborted(everything)) == ([b"a", b"b", b"c"], None)
        assert everything.last_stable_offset == 1

    @pytest.mark.parametrize("version", [4, 5, 10, 11, 12])
    def test_aborted_transactions_are_listed_for_read_committed_only(
        self, transactions: Transactions, version: int
    ) -> None:
        transactions.write(7, b"a")
        transactions.write(8, b"b")
        transactions.end(8, commits=False)
        transactions.write(7, b"c")
        transactions.end(7, commits=False)
        transactions.write(7, b"d")
        transactions.end(7, commits=True)
        found = transactions.fetch(**COMMITTED, version=version)
        assert aborted(found) == [(7, 0), (8, 1)]
        assert found.last_stable_offset == 7
        assert not transactions.fetch(version=version).aborted_transactions
        assert aborted(transactions.fetch(5, **COMMITTED, version=version)) == []

    def test_only_transactions_of_the_returned_batches_are_listed(self, transactions: Transactions) -> None:
        for _ in range(5):
            transactions.write(7, b"a" * 100)
            transactions.end(7, commits=False)
            transactions.write_plain(b"b" * 100)
        size_bytes = len(transactions.fetch(0, partition_max_bytes=1).records or b"")
        for offset in range(15):
            found = transactions.fetch(offset, **COMMITTED, partition_max_bytes=size_bytes)
            last = values_in(found.records)[-1][0]
            expected = [(7, at) for at in range(0, 15, 3) if at <= last and at + 1 >= offset]
            assert aborted(found) == expected

    def test_an_offset_between_the_last_stable_one_and_the_watermark_waits(self, transactions: Transactions) -> None:
        transactions.write(7, b"a")
        transactions.write(7, b"b")
        found = transactions.fetch(1, **COMMITTED)
        assert (found.error_code, values(found)) == (ErrorCode.NONE, [])
        assert transactions.fetch(3, **COMMITTED).error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    def test_a_parked_fetch_is_woken_by_the_marker_and_not_before(self, transactions: Transactions) -> None:
        client = transactions.cluster.client(1)
        transactions.write(7, b"a")
        began = time.monotonic()
        client.send(fetch_request(transactions.topic, 0, isolation=1, max_wait_ms=LONG_MS), 12)
        transactions.write(7, b"b")
        transactions.write(8, b"c")
        assert not client.has_answer(0.2)
        transactions.end(7, commits=True)
        response: FetchResponse = client.receive()
        assert values(response.responses[0].partitions[0]) == [b"a", b"b"]
        assert time.monotonic() - began < LONG_MS / 1000

    def test_a_parked_fetch_of_a_topic_without_transactions_waits_for_min_bytes(
        self, transactions: Transactions
    ) -> None:
        client = transactions.cluster.client(1)
        other = transactions.cluster.client(2)
        assert other is not client
        request = fetch_request(transactions.topic, 0, isolation=1, max_wait_ms=LONG_MS, min_bytes=150)
        client.send(request, 12)

        def append(broker: Broker) -> None:
            broker.replicas.leader(transactions.topic, 0).append(memoryview(batch_of(b"a")), 0, 1)

        transactions.cluster.look(1, append)
        assert not client.has_answer(0.2)
        transactions.cluster.look(1, append)
        transactions.cluster.look(1, append)
        response: FetchResponse = client.receive()
        assert len(values(response.responses[0].partitions[0])) >= 2

    def test_a_session_returns_what_a_marker_has_made_visible(self, transactions: Transactions) -> None:
        client = transactions.cluster.client(1)
        transactions.write(7, b"a")
        first = client.ask(fetch_request(transactions.topic, 0, **COMMITTED, session_epoch=0), 12)
        assert first.session_id
        assert values(first.responses[0].partitions[0]) == []
        transactions.end(7, commits=False)
        options: dict[str, Any] = {"session_id": first.session_id, **COMMITTED}
        request = fetch_request(transactions.topic, 0, session_epoch=1, **options)
        request.topics = []
        (row,) = client.ask(request, 12).responses
        assert aborted(row.partitions[0]) == [(7, 0)]


class TestReplicas:
    def test_a_marker_counts_when_it_is_replicated(self, replicated: Transactions) -> None:
        replicated.write(7, b"a")
        replicated.end(7, commits=True)
        replicated.replicated()
        assert values(replicated.fetch(**COMMITTED))[:1] == [b"a"]

    def test_a_follower_serves_read_committed_consumers_like_the_leader(self, replicated: Transactions) -> None:
        replicated.write(7, b"a")
        replicated.end(7, commits=False)
        replicated.write(8, b"b")
        replicated.end(8, commits=True)
        replicated.write(9, b"c")
        replicated.replicated()
        for node_id in (1, 2):
            found = replicated.fetch(0, node_id, **COMMITTED)
            assert [offset for offset, _ in values_in(found.records)] == [0, 1, 2, 3]
            assert aborted(found) == [(7, 0)]
            assert (found.last_stable_offset, found.high_watermark) == (4, 5)

    def test_a_fetch_parked_at_a_follower_is_woken_by_the_marker(self, replicated: Transactions) -> None:
        client = replicated.cluster.client(2)
        replicated.write(7, b"a")
        replicated.replicated()
        client.send(fetch_request(replicated.topic, 0, isolation=1, max_wait_ms=LONG_MS), 12)
        assert not client.has_answer(0.1)
        replicated.end(7, commits=True)
        response: FetchResponse = client.receive()
        assert values(response.responses[0].partitions[0])[:1] == [b"a"]

    def test_only_the_leader_appends_markers(self, replicated: Transactions) -> None:
        def append(broker: Broker) -> ErrorCode:
            partition = broker.replicas.readable(replicated.topic, 0)
            with pytest.raises(KafkaError) as caught:
                partition.append_marker(7, 0, commits=True, coordinator_epoch=0, now_ms=0)
            return caught.value.code

        assert replicated.cluster.look(2, append) is ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_a_new_leader_goes_on_with_the_open_transactions(self, tmp_path: Path) -> None:
        with LocalCluster(tmp_path, 3) as cluster:
            topic = cluster.create("t", [1, 2, 3])
            cluster.until_in_sync(topic, [1, 2, 3])
            before = Transactions(cluster, topic)
            before.write(7, b"a")
            before.end(7, commits=False)
            before.write(7, b"b")
            before.write(8, b"c")
            before.replicated()
            cluster.stop(1)
            until(lambda: cluster.partition(topic).leader not in (1, NO_LEADER), "another leader")
            leader = cluster.partition(topic).leader
            after = Transactions(cluster, topic, leader, before.sequences)
            until(lambda: after.fetch(0, leader, **COMMITTED).high_watermark == 4, "the watermark")
            found = after.fetch(0, leader, **COMMITTED)
            assert (found.last_stable_offset, aborted(found)) == (2, [(7, 0)])
            after.write(7, b"d")
            after.end(7, commits=True)
            after.end(8, commits=False)
            until(lambda: after.fetch(0, leader, **COMMITTED).last_stable_offset == 7, "the markers")
            assert aborted(after.fetch(0, leader, **COMMITTED)) == [(7, 0), (8, 3)]


class TestOffsets:
    def test_the_latest_offset_is_the_last_stable_one(self, transactions: Transactions) -> None:
        client = transactions.cluster.client(1)
        transactions.write_plain(b"a")
        transactions.write(7, b"b")
        assert client.list_offset(transactions.topic, -1, isolation=1).offset == 1
        assert client.list_offset(transactions.topic, -1).offset == 2
        transactions.end(7, commits=True)
        assert client.list_offset(transactions.topic, -1, isolation=1).offset == 3

    def test_a_time_in_an_open_transaction_is_not_found(self, transactions: Transactions) -> None:
        client = transactions.cluster.client(1)
        transactions.write_plain(b"a")
        transactions.write(7, b"b", b"c")
        assert client.list_offset(transactions.topic, 1001, isolation=1).offset == -1
        assert client.list_offset(transactions.topic, 1001).offset == 2
        transactions.end(7, commits=True)
        assert client.list_offset(transactions.topic, 1001, isolation=1).offset == 2


class TestProduce:
    def test_a_transactional_batch_outside_of_a_transaction_is_refused(self, transactions: Transactions) -> None:
        client = transactions.cluster.client(1)
        for sequence in (0, 0):  # the second one takes the fast lane, if there is one
            batch = batch_of(b"a", producer_id=7, producer_epoch=0, base_sequence=sequence, transactional=True)
            assert client.produce(transactions.topic, batch).error_code == ErrorCode.INVALID_TXN_STATE

    def test_batches_of_an_open_transaction_are_accepted(self, transactions: Transactions) -> None:
        client = transactions.cluster.client(1)
        transactions.write(7, b"a")
        for sequence in (1, 2, 3):
            batch = batch_of(b"a", producer_id=7, producer_epoch=0, base_sequence=sequence, transactional=True)
            found = client.produce(transactions.topic, batch)
            assert (found.error_code, found.base_offset) == (ErrorCode.NONE, sequence)
        transactions.end(7, commits=False)
        late = batch_of(b"a", producer_id=7, producer_epoch=0, base_sequence=4, transactional=True)
        assert client.produce(transactions.topic, late).error_code == ErrorCode.INVALID_TXN_STATE

    def test_control_batches_of_clients_are_refused(self, transactions: Transactions) -> None:
        batch = batch_of(b"a", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True, control=True)
        found = transactions.cluster.client(1).produce(transactions.topic, batch)
        assert found.error_code == ErrorCode.INVALID_RECORD


def test_producers_are_described_with_their_transaction(transactions: Transactions) -> None:
    transactions.write(7, b"a")
    transactions.end(7, commits=True, coordinator_epoch=5)
    transactions.write_plain(b"b")
    transactions.write(7, b"c")
    transactions.write(8, b"d")
    asked = DescribeProducersRequest(topics=[DescribeProducersTopic(name=transactions.topic, partition_indexes=[0])])
    rows = transactions.cluster.client(1).ask(asked, 0).topics[0].partitions[0].active_producers
    assert [(row.producer_id, row.current_txn_start_offset, row.coordinator_epoch) for row in rows] == [
        (7, 3, 5),
        (8, 4, -1),
    ]


def test_librdkafka_gets_committed_records_only(transactions: Transactions) -> None:
    for number in range(20):
        transactions.write(7, b"a%d" % number)
        transactions.write(8, b"b%d" % number)
        transactions.end(7, commits=number % 2 == 0)
        transactions.write_plain(b"p%d" % number)
        transactions.end(8, commits=number % 3 == 0)
    transactions.write(9, b"undecided")
    expected = [
        value
        for number in range(20)
        for value, is_visible in (
            (b"a%d" % number, number % 2 == 0),
            (b"b%d" % number, number % 3 == 0),
            (b"p%d" % number, True),
        )
        if is_visible
    ]
    port = transactions.cluster.ports[1]
    consumer = Consumer({"bootstrap.servers": f"127.0.0.1:{port}", "group.id": "none", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(transactions.topic, 0, 0)])
        found: list[bytes | None] = []

        def has_all() -> bool:
            found.extend(message.value() for message in consumer.consume(100, 0.1) if message.error() is None)
            return len(found) >= len(expected)

        until(has_all, "all records")
        assert found == expected
        assert consumer.consume(1, 0.3) == []
    finally:
        consumer.close()
