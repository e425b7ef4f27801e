"""Transactions on one broker, request by request."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skylog.broker.partition import Partition
from skylog.errors import ErrorCode
from skylog.model import TRANSACTION_STATE_TOPIC, TopicPartition
from skylog.protocol.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from skylog.protocol.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from skylog.protocol.describe_transactions import TransactionTopic
from skylog.protocol.end_txn import EndTxnRequest
from skylog.protocol.find_coordinator import FindCoordinatorRequest
from skylog.protocol.init_producer_id import InitProducerIdRequest
from skylog.protocol.list_transactions import ListTransactionsRequest
from skylog.protocol.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from skylog.transactions import Producer
from tests.groups.client import GroupClient
from tests.transactions.client import TransactionClient

from .conftest import create_topic
from .leaders import OURS, THEIRS, elect
from .process import BrokerThread, until

SETTINGS = {
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
}
NONE = ErrorCode.NONE
_numbers = itertools.count()


@pytest.fixture(scope="module")
def thread(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    with BrokerThread(tmp_path_factory.mktemp("broker") / "data", SETTINGS) as running:
        yield running
        assert running.look(lambda broker: broker.transactions.failures) == 0


@pytest.fixture
def client(thread: BrokerThread) -> Iterator[TransactionClient]:
    with TransactionClient(thread.port) as connection:
        connection.find()
        yield connection


@pytest.fixture
def number() -> int:
    return next(_numbers)


@pytest.fixture
def topic(client: TransactionClient, number: int) -> str:
    return create_topic(client, f"topic-{number}", 2)


@pytest.fixture
def name(number: int) -> str:
    """A transactional id that nothing has used."""
    return f"id-{number}"


class TestOneTransaction:
    def test_committed_records_are_visible_when_it_ends_and_not_before(
        self, client: TransactionClient, topic: str, name: str
    ) -> None:
        producer = client.init(name)
        partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
        assert client.add(producer, *partitions, transactional_id=name) == [NONE, NONE]
        for index in (0, 1):
            code = client.produce_in(producer, topic, b"x", b"y", partition=index, transactional_id=name)
            assert code is NONE
        assert client.committed_values(topic) == []
        assert client.end(producer, True, name) is NONE
        client.wait_for("CompleteCommit", name)
        for index in (0, 1):
            assert client.committed_values(topic, index) == [b"x", b"y"]
            assert client.end_offset(topic, index) == 3

    def test_aborted_records_are_never_visible(self, client: TransactionClient, topic: str, name: str) -> None:
        producer = client.init(name)
        for sequence, commits in enumerate((False, True, False)):
            assert client.add(producer, TopicPartition(topic, 0), transactional_id=name) == [NONE]
            value = b"visible" if commits else b"aborted"
            assert client.produce_in(producer, topic, value, sequence=sequence, transactional_id=name) is NONE
            assert client.end(producer, commits, name) is NONE
        client.wait_for("CompleteAbort", name)
        assert client.committed_values(topic) == [b"visible"]

    def test_its_state_is_described_and_listed(self, client: TransactionClient, topic: str, name: str) -> None:
        producer = client.init(name, 12_345)
        assert client.describe(name).transaction_state == "Empty"
        client.add(producer, TopicPartition(topic, 1), TopicPartition(topic, 0), transactional_id=name)
        found = client.describe(name)
        assert (found.error_code, found.transaction_state) == (NONE, "Ongoing")
        assert (found.transaction_timeout_ms, found.producer_id) == (12_345, producer.producer_id)
        assert found.topics == [TransactionTopic(topic=topic, partitions=[0, 1])]
        assert found.transaction_start_time_ms > 0
        assert name in listed(client, ListTransactionsRequest(state_filters=["Ongoing"]))
        assert name not in listed(client, ListTransactionsRequest(state_filters=["Empty", "Gone"]))
        assert listed(client, ListTransactionsRequest(producer_id_filters=[producer.producer_id])) == {name}
        assert name not in listed(client, ListTransactionsRequest(duration_filter=100_000))
        assert name in listed(client, ListTransactionsRequest(duration_filter=0))
        client.end(producer, False, name)

    def test_an_unknown_id_is_not_found(self, client: TransactionClient, name: str) -> None:
        assert client.describe(name).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        response = client.ask(ListTransactionsRequest(state_filters=["Gone", "Ongoing", "Gone"]), 1)
        assert response.unknown_state_filters == ["Gone"]


def listed(client: TransactionClient, request: ListTransactionsRequest) -> set[str]:
    return {row.transactional_id for row in client.ask(request, 1).transaction_states}


class TestCoordinator:
    @pytest.mark.parametrize("version", [1, 2, 3])
    def test_it_is_found_by_the_transactional_id(self, client: TransactionClient, version: int) -> None:
        response = client.ask(FindCoordinatorRequest(key="t", key_type=1), version)
        assert (response.error_code, response.node_id) == (NONE, 1)

    def test_its_topic_is_compacted_and_internal(self, client: TransactionClient) -> None:
        found = client.topic(TRANSACTION_STATE_TOPIC)
        assert found.is_internal
        assert len(found.partitions) == 4

    def test_an_unknown_type_of_key_is_refused(self, client: TransactionClient) -> None:
        assert client.ask(FindCoordinatorRequest(key="t", key_type=2), 3).error_code == ErrorCode.INVALID_REQUEST


class TestStartingAProducer:
    @pytest.mark.parametrize("version", range(6))
    def test_each_start_raises_the_epoch(self, client: TransactionClient, name: str, version: int) -> None:
        first = client.init(name, version=version)
        assert client.init(name, version=version) == Producer(first.producer_id, first.epoch + 1)

    @pytest.mark.parametrize(("timeout_ms", "code"), [(0, 50), (900_001, 50), (900_000, 0)])
    def test_the_timeout_is_limited(self, client: TransactionClient, name: str, timeout_ms: int, code: int) -> None:
        assert client.init_once(name, timeout_ms).error_code == code

    def test_an_empty_transactional_id_is_refused(self, client: TransactionClient) -> None:
        response = client.ask(InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000), 4)
        assert response.error_code == ErrorCode.INVALID_REQUEST

    def test_an_epoch_without_an_id_is_refused(self, client: TransactionClient, name: str) -> None:
        assert client.init_once(name, expected=Producer(-1, 3)).error_code == ErrorCode.INVALID_REQUEST

    def test_a_second_producer_aborts_the_transaction_of_the_first_and_fences_it(
        self, client: TransactionClient, topic: str, name: str
    ) -> None:
        old = client.init(name)
        client.add(old, TopicPartition(topic, 0), transactional_id=name)
        client.produce_in(old, topic, b"old", transactional_id=name)
        new = client.init(name)
        assert new.epoch > old.epoch
        assert client.add(old, TopicPartition(topic, 0), transactional_id=name) == [ErrorCode.PRODUCER_FENCED]
        assert client.end(old, True, name) is ErrorCode.PRODUCER_FENCED
        code = client.produce_in(old, topic, b"late", sequence=1, transactional_id=name)
        assert code is ErrorCode.INVALID_PRODUCER_EPOCH
        client.add(new, TopicPartition(topic, 0), transactional_id=name)
        assert client.produce_in(new, topic, b"new", transactional_id=name) is NONE
        assert client.end(new, True, name) is NONE
        client.wait_for("CompleteCommit", name)
        assert client.committed_values(topic) == [b"new"]

    def test_older_versions_have_another_code_for_a_fenced_producer(
        self, client: TransactionClient, topic: str, name: str
    ) -> None:
        old = client.init(name)
        client.init(name)
        partition = TopicPartition(topic, 0)
        old_code, new_code = ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED
        for version, code in ((0, old_code), (1, old_code), (2, new_code), (3, new_code)):
            assert client.add(old, partition, transactional_id=name, version=version) == [code]
            assert client.end(old, True, name, version) is code
            assert client.add_offsets(old, transactional_id=name, version=version) is code
        for version, code in ((3, old_code), (4, new_code), (5, new_code)):
            assert client.init_once(name, expected=old, version=version).error_code == code

    def test_a_producer_goes_on_with_the_next_epoch(self, client: TransactionClient, name: str) -> None:
        first = client.init(name)
        for _ in range(2):  # the response to the first request may be lost
            following = client.init(name, expected=first)
            assert following == Producer(first.producer_id, first.epoch + 1)


class TestAddingPartitions:
    def test_if_one_does_not_exist_none_is_added(self, client: TransactionClient, topic: str, name: str) -> None:
        producer = client.init(name)
        codes = client.add(producer, TopicPartition(topic, 0), TopicPartition("none", 0), transactional_id=name)
        assert codes == [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert client.describe(name).transaction_state == "Empty"

    def test_an_unknown_producer_is_refused(self, client: TransactionClient, topic: str, name: str) -> None:
        codes = client.add(Producer(999_999, 0), TopicPartition(topic, 0), transactional_id=name)
        assert codes == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]

    @pytest.mark.parametrize("version", [4, 5])
    def test_a_broker_asks_which_partitions_are_part_of_a_transaction(
        self, client: TransactionClient, topic: str, name: str, version: int
    ) -> None:
        producer = client.init(name)
        client.add(producer, TopicPartition(topic, 0), transactional_id=name)
        row = AddPartitionsToTxnTransaction(
            transactional_id=name,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            verify_only=True,
            topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0, 1])],
        )
        unknown = AddPartitionsToTxnTransaction(
            transactional_id="unknown",
            producer_id=1,
            producer_epoch=0,
            verify_only=True,
            topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
        )
        response = client.ask(AddPartitionsToTxnRequest(transactions=[row, unknown]), version)
        found = {
            result.transactional_id: [
                each.partition_error_code for each in result.topic_results[0].results_by_partition
            ]
            for result in response.results_by_transaction
        }
        missing = ErrorCode.TRANSACTION_ABORTABLE if version >= 5 else ErrorCode.INVALID_TXN_STATE
        assert found == {name: [NONE, missing], "unknown": [ErrorCode.INVALID_PRODUCER_ID_MAPPING]}
        client.end(producer, False, name)


class TestLateBatches:
    """KIP-890: a batch must not begin a transaction that the coordinator does not know, or has ended."""

    @pytest.mark.parametrize(
        ("version", "code"), [(9, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)]
    )
    def test_a_batch_after_the_end_of_its_transaction_is_refused(
        self, client: TransactionClient, topic: str, name: str, version: int, code: ErrorCode
    ) -> None:
        producer = client.init(name)
        client.add(producer, TopicPartition(topic, 0), transactional_id=name)
        assert client.produce_in(producer, topic, b"x", transactional_id=name) is NONE
        client.end(producer, True, name)
        client.wait_for("CompleteCommit", name)
        found = client.produce_in(producer, topic, b"late", sequence=1, transactional_id=name, version=version)
        assert found is code
        assert client.committed_values(topic) == [b"x"]

    def test_a_batch_for_a_partition_that_was_not_added_is_refused(
        self, client: TransactionClient, topic: str, name: str
    ) -> None:
        producer = client.init(name)
        client.add(producer, TopicPartition(topic, 0), transactional_id=name)
        code = client.produce_in(producer, topic, b"x", partition=1, transactional_id=name)
        assert code is ErrorCode.INVALID_TXN_STATE
        client.end(producer, False, name)

    def test_a_transactional_batch_needs_a_transactional_id(
        self, client: TransactionClient, topic: str, name: str
    ) -> None:
        producer = client.init(name)
        client.add(producer, TopicPartition(topic, 0), transactional_id=name)
        code = client.produce_in(producer, topic, b"x", transactional_id=None)
        assert code is ErrorCode.INVALID_TXN_STATE
        client.end(producer, False, name)

    def test_a_late_request_to_end_does_not_decide_the_next_transaction(
        self, thread: BrokerThread, client: TransactionClient, topic: str, name: str
    ) -> None:
        """KAFKA-17754: the producer has repeated it on another connection, and begun the next transaction there."""
        producer = client.init(name)
        client.add(producer, TopicPartition(topic, 0), transactional_id=name)
        with TransactionClient(thread.port) as again:
            assert again.end(producer, True, name) is NONE
            assert again.add(producer, TopicPartition(topic, 0), transactional_id=name) == [NONE]
            assert again.produce_in(producer, topic, b"half", transactional_id=name) is NONE
            assert client.end(producer, True, name) is ErrorCode.CONCURRENT_TRANSACTIONS
            assert again.describe(name).transaction_state == "Ongoing"
            assert again.end(producer, False, name) is NONE
            again.wait_for("CompleteAbort", name)
            assert again.committed_values(topic) == []

    def test_late_offsets_do_not_replace_those_of_the_next_transaction(
        self, thread: BrokerThread, client: TransactionClient, topic: str, name: str
    ) -> None:
        """They were meant for the transaction before, which has committed them by another connection."""
        producer = client.init(name)
        group = f"group-{name}"

        def commit(by: TransactionClient, offset: int) -> ErrorCode:
            return by.commit_in(producer, topic, offset, group, transactional_id=name)

        with TransactionClient(thread.port) as again:
            for offset in (5, 9):
                assert again.add_offsets(producer, group, name) is NONE
                assert commit(again, offset) is NONE
                if offset == 9:
                    assert commit(client, 5) is ErrorCode.NOT_COORDINATOR
                assert again.end(producer, True, name) is NONE
                again.wait_for("CompleteCommit", name)
            assert again.group_offset(topic, group, stable=True) == (9, NONE)


class TestTime:
    def test_a_transaction_that_is_open_for_too_long_is_aborted_and_its_producer_fenced(
        self, client: TransactionClient, topic: str, name: str
    ) -> None:
        producer = client.init(name, 100)
        client.add(producer, TopicPartition(topic, 0), transactional_id=name)
        client.produce_in(producer, topic, b"x", transactional_id=name)
        client.wait_for("CompleteAbort", name)
        assert client.committed_values(topic) == []
        assert client.end(producer, True, name) is ErrorCode.PRODUCER_FENCED

    def test_an_id_that_is_not_used_is_removed(self, tmp_path: Path) -> None:
        settings = {
            **SETTINGS,
            "transactional.id.expiration.ms": "1",
            "transaction.remove.expired.transaction.cleanup.interval.ms": "20",
        }
        with BrokerThread(tmp_path / "data", settings) as thread, TransactionClient(thread.port) as client:
            client.find()
            first = client.init()
            until(lambda: client.describe().error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "the id is removed")
            assert client.end(first, True) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
            assert client.init().producer_id != first.producer_id


class TestMarkers:
    def test_an_administrator_ends_a_transaction_that_hangs(
        self, client: TransactionClient, topic: str, name: str
    ) -> None:
        producer = client.init(name)
        client.add(producer, TopicPartition(topic, 0), transactional_id=name)
        client.produce_in(producer, topic, b"x", transactional_id=name)
        marker = WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[0, 7])],
            coordinator_epoch=0,
        )
        (result,) = client.ask(WriteTxnMarkersRequest(markers=[marker]), 1).markers
        codes = [row.error_code for row in result.topics[0].partitions]
        assert codes == [NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert client.list_offset(topic, -1, isolation=1).offset == 2

    def test_the_partitions_of_a_topic_that_is_deleted_need_none(
        self, thread: BrokerThread, client: TransactionClient, topic: str, name: str, number: int
    ) -> None:
        other = create_topic(client, f"other-{number}")
        producer = client.init(name)
        client.add(producer, TopicPartition(topic, 0), TopicPartition(other, 0), transactional_id=name)
        client.produce_in(producer, topic, b"x", transactional_id=name)
        thread.run(_delete(thread, other))
        assert client.end(producer, True, name) is NONE
        client.wait_for("CompleteCommit", name)
        assert client.committed_values(topic) == [b"x"]


async def _delete(thread: BrokerThread, topic: str) -> None:
    topics = thread.broker.topics
    await topics.delete(topics.get(topic))


class TestOffsets:
    @pytest.mark.parametrize("commits", [True, False])
    def test_they_count_when_the_transaction_commits(
        self, client: TransactionClient, topic: str, name: str, commits: bool
    ) -> None:
        producer = client.init(name)
        group = f"group-of-{name}"
        assert client.add_offsets(producer, group, name) is NONE
        assert client.commit_in(producer, topic, 5, group, transactional_id=name) is NONE
        assert client.group_offset(topic, group) == (-1, NONE)
        assert client.group_offset(topic, group, stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        assert client.end(producer, commits, name) is NONE
        client.wait_for("CompleteCommit" if commits else "CompleteAbort", name)
        assert client.group_offset(topic, group, stable=True) == (5 if commits else -1, NONE)

    def test_they_need_an_open_transaction(self, client: TransactionClient, topic: str, name: str) -> None:
        producer = client.init(name)
        group = f"group-of-{name}"
        code = client.commit_in(producer, topic, 5, group, transactional_id=name)
        assert code is ErrorCode.INVALID_TXN_STATE
        code = client.commit_in(producer, topic, 5, group, transactional_id=name, version=4)
        assert code is ErrorCode.TRANSACTION_ABORTABLE

    def test_a_commit_outside_of_the_transaction_replaces_an_earlier_one_inside_of_it(
        self, thread: BrokerThread, client: TransactionClient, topic: str, name: str
    ) -> None:
        producer = client.init(name)
        group = f"group-of-{name}"
        client.add_offsets(producer, group, name)
        client.commit_in(producer, topic, 5, group, transactional_id=name)
        with GroupClient(thread.port) as outside:
            assert outside.commit(9, group=group, topic=topic) == NONE
        client.end(producer, True, name)
        client.wait_for("CompleteCommit", name)
        assert client.group_offset(topic, group, stable=True) == (9, NONE)

    def test_a_member_of_another_generation_is_fenced(
        self, thread: BrokerThread, client: TransactionClient, topic: str, name: str
    ) -> None:
        group = f"group-of-{name}"
        with GroupClient(thread.port) as member:
            member_id, generation = member.enter(group)
            producer = client.init(name)
            client.add_offsets(producer, group, name)

            def commit(member_id: str, generation: int) -> ErrorCode:
                return client.commit_in(
                    producer, topic, 5, group, member_id=member_id, generation=generation, transactional_id=name
                )

            assert commit(member_id, generation) is NONE
            assert commit(member_id, generation - 1) is ErrorCode.ILLEGAL_GENERATION
            assert commit("stranger", generation) is ErrorCode.UNKNOWN_MEMBER_ID
            assert commit("", -1) is NONE  # older producers name no member
            assert client.end(producer, True, name) is NONE

    def test_a_member_of_the_consumer_protocol_with_another_epoch_is_fenced(
        self, thread: BrokerThread, client: TransactionClient, topic: str, name: str
    ) -> None:
        """Like one of another generation: STALE_MEMBER_EPOCH would end a producer of the Java client."""
        group, member_id = f"group-of-{name}", "m"
        join = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member_id,
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=[topic],
            topic_partitions=[],
        )
        with GroupClient(thread.port) as member:
            member.find()
            epoch = member.ask(join, 1).member_epoch
            producer = client.init(name)
            client.add_offsets(producer, group, name)

            def commit(member_id: str, epoch: int) -> ErrorCode:
                return client.commit_in(
                    producer, topic, 5, group, member_id=member_id, generation=epoch, transactional_id=name
                )

            assert commit(member_id, epoch) is NONE
            assert commit(member_id, epoch - 1) is ErrorCode.ILLEGAL_GENERATION
            assert commit("stranger", epoch) is ErrorCode.UNKNOWN_MEMBER_ID
            assert commit("", -1) is NONE
            assert client.end(producer, True, name) is NONE

    def test_a_fenced_producer_cannot_commit(self, client: TransactionClient, topic: str, name: str) -> None:
        producer = client.init(name)
        group = f"group-of-{name}"
        client.add_offsets(producer, group, name)
        client.commit_in(producer, topic, 5, group, transactional_id=name)
        client.init(name)
        code = client.commit_in(producer, topic, 6, group, transactional_id=name)
        assert code is ErrorCode.INVALID_PRODUCER_EPOCH
        assert client.group_offset(topic, group, stable=True) == (-1, NONE)


class TestFailures:
    def test_a_request_that_is_cancelled_closes_its_connection(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The broker stops while an entry is being stored."""
        with BrokerThread(tmp_path / "data", SETTINGS) as thread, TransactionClient(thread.port) as client:
            client.find()
            appended = threading.Event()

            def append_without_end(*_: Any) -> asyncio.Future[None]:
                appended.set()
                return asyncio.get_running_loop().create_future()

            monkeypatch.setattr(thread.broker.commits, "append_own", append_without_end)
            client.send(InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000), 4)
            assert appended.wait(20)
            thread.run(thread.broker.transactions.shard("t").stop())
            assert client.is_closed()

    def test_markers_that_could_not_be_sent_are_sent_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        with BrokerThread(tmp_path / "data", SETTINGS) as thread, TransactionClient(thread.port) as client:
            create_topic(client, "t")
            client.find()
            markers = thread.broker.transactions.markers
            failures: list[Exception] = [OSError("no memory"), RuntimeError("a bug")]
            send = markers.send

            async def fail_at_first(*args: Any) -> bool:
                if failures:
                    raise failures.pop()
                return await send(*args)

            monkeypatch.setattr(markers, "send", fail_at_first)
            producer = client.init()
            client.add(producer, TopicPartition("t", 0))
            assert client.produce_in(producer, "t", b"x") is NONE
            assert client.end(producer, True) is NONE
            client.wait_for("CompleteCommit")
            assert client.committed_values("t") == [b"x"]
            assert thread.look(lambda broker: broker.transactions.failures) == 2
            assert "cannot complete the transaction of t" in caplog.text


class TestRestart:
    def test_everything_goes_on_where_it_was(self, tmp_path: Path) -> None:
        with BrokerThread(tmp_path / "data", SETTINGS) as thread, TransactionClient(thread.port) as client:
            client.find()
            create_topic(client, "topic", 2)
            producers = {name: client.init(name) for name in ("open", "done", "offsets")}
            for name in ("open", "done"):
                client.add(producers[name], TopicPartition("topic", 0), transactional_id=name)
                client.produce_in(producers[name], "topic", name.encode(), transactional_id=name)
            client.add_offsets(producers["offsets"], transactional_id="offsets")
            client.commit_in(producers["offsets"], "topic", 7, transactional_id="offsets")
            client.end(producers["done"], True, "done")
        with BrokerThread(tmp_path / "data", SETTINGS) as thread, TransactionClient(thread.port) as client:
            until(lambda: not thread.look(lambda broker: broker.transactions.is_loading), "transactions are loaded")
            until(lambda: not thread.look(lambda broker: broker.coordinator.is_loading), "groups are loaded")
            client.wait_for("CompleteCommit", "done")
            assert client.describe("open").transaction_state == "Ongoing"
            assert client.group_offset("topic", stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
            assert client.produce_in(producers["open"], "topic", b"more", sequence=1, transactional_id="open") is NONE
            for name in ("open", "offsets"):
                assert client.end(producers[name], True, name) is NONE
                client.wait_for("CompleteCommit", name)
            assert client.committed_values("topic") == [b"open", b"done", b"more"]
            assert client.group_offset("topic", stable=True) == (7, NONE)
        with BrokerThread(tmp_path / "data", SETTINGS) as thread, TransactionClient(thread.port) as client:
            until(lambda: not thread.look(lambda broker: broker.coordinator.is_loading), "groups are loaded")
            assert client.group_offset("topic", stable=True) == (7, NONE)


def test_a_decision_is_carried_out_when_the_replicas_in_sync_have_it(tmp_path: Path) -> None:
    """If the next leader did not have it, it could abort what this one has committed in some partitions."""
    both = (OURS, THEIRS)
    settings = {**SETTINGS, "transaction.state.log.num.partitions": "1"}
    with BrokerThread(tmp_path / "data", settings) as thread, TransactionClient(thread.port) as client:

        def lead(leader: int) -> None:
            broker = thread.broker
            thread.run(elect(broker, leader, 0, in_sync=both, topic_name=TRANSACTION_STATE_TOPIC))

        def replica() -> Partition:
            found = thread.broker.replicas.find(TopicPartition(TRANSACTION_STATE_TOPIC, 0))
            assert found is not None
            return found

        create_topic(client, "topic", 1)
        client.find()
        producer = client.init()
        client.add(producer, TopicPartition("topic", 0))
        assert client.produce_in(producer, "topic", b"x") is NONE
        lead(OURS)
        before = thread.look(lambda _: replica().log.log_end_offset)
        with TransactionClient(thread.port) as other:
            request = EndTxnRequest(
                transactional_id="t", producer_id=producer.producer_id, producer_epoch=producer.epoch, committed=True
            )
            other.send(request, 3)
            until(lambda: thread.look(lambda _: replica().log.log_end_offset) > before, "the decision in the log")
            lead(THEIRS)
            assert other.receive().error_code == ErrorCode.NOT_COORDINATOR
        lead(OURS)
        for _ in range(10):
            assert client.describe().error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert client.committed_values("topic") == []
            time.sleep(0.02)
        thread.look(lambda _: replica().advance_high_watermark(1 << 30))
        until(lambda: client.committed_values("topic") == [b"x"], "the marker")
