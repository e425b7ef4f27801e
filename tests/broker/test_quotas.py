"""Client quotas: the requests that change them, and clients that are held to them, also if they ignore their waits."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from skylog.broker import Broker
from skylog.broker.quotas.lanes import MeteredLanes
from skylog.errors import ErrorCode
from skylog.protocol.alter_client_quotas import (
    AlterClientQuotasRequest,
    QuotaAlteration,
    QuotaEntity,
    QuotaOperation,
)
from skylog.protocol.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from skylog.protocol.create_topics import CreatableTopic, CreateTopicsRequest
from skylog.protocol.delete_topics import DeleteTopicsRequest
from skylog.protocol.describe_client_quotas import DescribeClientQuotasRequest, QuotaFilterComponent
from skylog.protocol.metadata import MetadataRequest

from .conftest import create_topic
from .local_cluster import LocalCluster
from .process import BrokerThread, until
from .raw import RawClient, batch_of, fetch_request, produce_request

RAW = (("client-id", "raw"),)
WINDOWS = {"quota.window.num": "2", "controller.quota.window.num": "1"}  # a burst of one second
RATE = 100_000
Names = tuple[tuple[str, str | None], ...]


def alter(client: RawClient, entity: Names, **quotas: float | None) -> int:
    """Set quotas, or remove those that are None. Return the error code."""
    return alter_all(client, entity, quotas)


def alter_all(
    client: RawClient, entity: Names, quotas: Mapping[str, float | None], *, validate_only: bool = False
) -> int:
    entry = QuotaAlteration(
        entity=[QuotaEntity(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[QuotaOperation(key=key, value=value or 0.0, remove=value is None) for key, value in quotas.items()],
    )
    (row,) = client.ask(AlterClientQuotasRequest(entries=[entry], validate_only=validate_only), 1).entries
    assert tuple((part.entity_type, part.entity_name) for part in row.entity) == entity
    assert bool(row.error_message) == bool(row.error_code)
    return int(row.error_code)


def described(client: RawClient, *components: tuple[str, int, str | None], strict: bool = False) -> dict[Names, Any]:
    rows = [QuotaFilterComponent(entity_type=kind, match_type=how, match=name) for kind, how, name in components]
    response = client.ask(DescribeClientQuotasRequest(components=rows, strict=strict), 1)
    assert response.error_code == 0
    return {
        tuple((part.entity_type, part.entity_name) for part in row.entity): {
            value.key: value.value for value in row.values
        }
        for row in response.entries
    }


@pytest.fixture(scope="module")
def thread(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    with BrokerThread(tmp_path_factory.mktemp("quotas") / "data", WINDOWS) as thread:
        yield thread


@pytest.fixture
def admin(thread: BrokerThread) -> Iterator[RawClient]:
    """A client that no quota of a test is meant for. All quotas are removed when it ends."""
    with OtherClient(thread.port) as client:
        yield client
        for entity, quotas in described(client).items():
            assert alter(client, entity, **dict.fromkeys(quotas)) == 0
        assert thread.look(lambda broker: broker.quotas.active) is None


class OtherClient(RawClient):
    """A client with another id."""

    def encode(self, request: Any, version: int, client_id: str | None = "other") -> bytes:
        return super().encode(request, version, client_id)


def shortcuts(broker: Broker) -> list[object]:
    """Return what serves the fast lanes of the connections."""
    sessions = [connection.handler for connection in broker.listener.connections]
    return [getattr(each.shortcut, "__self__", None) for each in sessions if each is not None and each.shortcut]


@contextmanager
def at_least(seconds: float) -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began >= seconds


class TestRequests:
    def test_quotas_are_set_described_and_removed(self, admin: RawClient) -> None:
        both: Names = (("user", "alice"), ("client-id", None))
        assert alter(admin, (("user", "alice"),), producer_byte_rate=1024.0, request_percentage=12.5) == 0
        assert alter(admin, both, consumer_byte_rate=5.0) == 0
        assert alter(admin, (("user", None),), controller_mutation_rate=0.5) == 0
        assert alter(admin, (("ip", "127.0.0.9"),), connection_creation_rate=3.0) == 0
        assert alter(admin, (("user", "alice"),), request_percentage=None, consumer_byte_rate=7.0) == 0
        alice = {(("user", "alice"),): {"producer_byte_rate": 1024.0, "consumer_byte_rate": 7.0}}
        assert described(admin, ("user", 0, "alice"), strict=True) == alice
        assert described(admin, ("user", 0, "alice")) == alice | {both: {"consumer_byte_rate": 5.0}}
        assert described(admin, ("user", 1, None)) == {(("user", None),): {"controller_mutation_rate": 0.5}}
        assert described(admin, ("user", 2, None), ("client-id", 2, None)) == {both: {"consumer_byte_rate": 5.0}}
        assert described(admin, ("ip", 2, None)) == {(("ip", "127.0.0.9"),): {"connection_creation_rate": 3.0}}
        assert len(described(admin)) == 4

    @pytest.mark.parametrize(
        ("entity", "key", "value"),
        [
            ((("user", "u"),), "producer_byte_rate", 0.0),
            ((("user", "u"),), "producer_byte_rate", 1.5),
            ((("user", "u"),), "connection_creation_rate", 1.0),
            ((("ip", "127.0.0.1"),), "producer_byte_rate", 1.0),
            ((("group", "u"),), "producer_byte_rate", 1.0),
            ((), "producer_byte_rate", 1.0),
        ],
    )
    def test_what_makes_no_sense_is_refused(self, admin: RawClient, entity: Names, key: str, value: float) -> None:
        assert alter(admin, entity, **{key: value}) == ErrorCode.INVALID_REQUEST
        assert described(admin) == {}

    def test_a_change_that_is_only_validated_changes_nothing(self, admin: RawClient) -> None:
        user: Names = (("user", "u"),)
        assert alter_all(admin, user, {"producer_byte_rate": 1.0}, validate_only=True) == 0
        refused = alter_all(admin, user, {"producer_byte_rate": -1.0}, validate_only=True)
        assert refused == ErrorCode.INVALID_REQUEST
        assert described(admin) == {}

    def test_an_entity_that_is_invalid_or_repeated_does_not_keep_others_from_changing(self, admin: RawClient) -> None:
        def entry(name: str, value: float) -> QuotaAlteration:
            operation = QuotaOperation(key="producer_byte_rate", value=value)
            return QuotaAlteration(entity=[QuotaEntity(entity_type="user", entity_name=name)], ops=[operation])

        entries = [entry("a", 1.0), entry("b", 0.0), entry("c", 1.0), entry("c", 2.0)]
        response = admin.ask(AlterClientQuotasRequest(entries=entries), 1)
        assert [(row.entity[0].entity_name, row.error_code) for row in response.entries] == [
            ("a", ErrorCode.NONE),
            ("b", ErrorCode.INVALID_REQUEST),
            ("c", ErrorCode.INVALID_REQUEST),
        ]
        assert described(admin) == {(("user", "a"),): {"producer_byte_rate": 1.0}}

    @pytest.mark.parametrize(
        ("components", "code"),
        [
            ([("", 2, None)], ErrorCode.INVALID_REQUEST),
            ([("group", 2, None)], ErrorCode.UNSUPPORTED_VERSION),
            ([("user", 0, None)], ErrorCode.INVALID_REQUEST),
            ([("user", 1, "u")], ErrorCode.INVALID_REQUEST),
            ([("user", 2, "u")], ErrorCode.INVALID_REQUEST),
            ([("user", 3, None)], ErrorCode.INVALID_REQUEST),
            ([("user", 2, None), ("user", 2, None)], ErrorCode.INVALID_REQUEST),
            ([("user", 2, None), ("ip", 2, None)], ErrorCode.INVALID_REQUEST),
        ],
    )
    def test_a_filter_that_makes_no_sense_is_refused(
        self, admin: RawClient, components: list[tuple[str, int, str | None]], code: ErrorCode
    ) -> None:
        rows = [QuotaFilterComponent(entity_type=kind, match_type=how, match=name) for kind, how, name in components]
        response = admin.ask(DescribeClientQuotasRequest(components=rows), 1)
        assert (response.error_code, response.entries) == (code, None)
        assert response.error_message


class TestProducers:
    @pytest.mark.parametrize("version", [7, 9])
    def test_one_that_ignores_its_wait_is_held_and_others_are_not(
        self, thread: BrokerThread, admin: RawClient, new_name: str, version: int
    ) -> None:
        """The first request takes the usual way, the second one the fast lane."""
        create_topic(admin, new_name)
        alter(admin, RAW, producer_byte_rate=1000)
        with RawClient(thread.port) as client:
            assert client.ask(produce_request(new_name, batch_of(bytes(500)), acks=1), version).throttle_time_ms == 0
            assert thread.look(lambda broker: {type(each) for each in shortcuts(broker)}) == {MeteredLanes}
            response = client.ask(produce_request(new_name, batch_of(bytes(20_000)), acks=1), version)
            assert 15_000 < response.throttle_time_ms < 25_000
            assert response.responses[0].partition_responses[0].base_offset == 1
            client.send(MetadataRequest(topics=[]), 12)
            assert admin.produce(new_name, batch_of(bytes(200_000))).error_code == 0
            assert not client.has_answer(0.1)
        assert thread.look(lambda broker: broker.quotas.active.holds) == 1  # type: ignore[union-attr]

    @pytest.mark.parametrize("version", [7, 9])
    def test_requests_that_are_stored_together_all_announce_the_wait(
        self, thread: BrokerThread, admin: RawClient, new_name: str, version: int
    ) -> None:
        create_topic(admin, new_name)
        request = produce_request(new_name, batch_of(bytes(5_000)), acks=1)
        with RawClient(thread.port) as client:
            assert client.ask(request, version).throttle_time_ms == 0
            alter(admin, RAW, producer_byte_rate=1000)
            client.send_bytes(b"".join(client.encode(request, version) for _ in range(3)))
            answers = [client.receive() for _ in range(3)]
        assert [answer.responses[0].partition_responses[0].base_offset for answer in answers] == [1, 2, 3]
        waits = {answer.throttle_time_ms for answer in answers}
        assert len(waits) == 1
        assert waits.pop() > 10_000

    def test_without_responses_one_is_held_too(self, thread: BrokerThread, admin: RawClient, new_name: str) -> None:
        create_topic(admin, new_name)
        alter(admin, RAW, producer_byte_rate=RATE)
        with RawClient(thread.port) as client, at_least(0.4):
            for _ in range(4):
                client.send(produce_request(new_name, batch_of(bytes(60_000)), acks=0), 9)
            assert client.end_offset(new_name) == 4

    def test_a_frame_in_pieces_counts(self, thread: BrokerThread, admin: RawClient, new_name: str) -> None:
        create_topic(admin, new_name, configs={"max_message_bytes": "10000000"})
        alter(admin, RAW, producer_byte_rate=RATE * 10)
        with RawClient(thread.port) as client, at_least(1.0):
            client.send(produce_request(new_name, batch_of(bytes(RATE * 21))), 9)
            assert client.receive().throttle_time_ms > 0
            client.metadata()

    def test_a_change_is_in_force_at_once_for_connections_that_exist(
        self, thread: BrokerThread, admin: RawClient, new_name: str
    ) -> None:
        create_topic(admin, new_name)
        request = produce_request(new_name, batch_of(bytes(60_000)), acks=1)
        with RawClient(thread.port) as client:
            for _ in range(4):
                assert client.ask(request, 9).throttle_time_ms == 0
            alter(admin, RAW, producer_byte_rate=RATE // 2)
            assert client.ask(request, 9).throttle_time_ms > 0
            alter(admin, RAW, producer_byte_rate=None)
            for _ in range(4):
                assert client.ask(request, 9).throttle_time_ms == 0

    def test_librdkafka_keeps_to_its_rate(self, thread: BrokerThread, admin: RawClient, new_name: str) -> None:
        create_topic(admin, new_name)
        alter(admin, (("client-id", "paced"),), producer_byte_rate=RATE)
        producer = Producer(
            {"bootstrap.servers": f"127.0.0.1:{thread.port}", "client.id": "paced", "batch.size": 20_000}
        )
        with at_least(0.7):
            for _ in range(30):
                producer.produce(new_name, bytes(10_000))
            assert producer.flush(60) == 0
        assert admin.end_offset(new_name) == 30


class TestConsumers:
    def test_one_above_its_quota_gets_an_empty_response_and_the_records_later(
        self, thread: BrokerThread, admin: RawClient, new_name: str
    ) -> None:
        create_topic(admin, new_name)
        for _ in range(3):
            admin.produce(new_name, batch_of(bytes(60_000)))
        alter(admin, RAW, consumer_byte_rate=RATE)
        request = fetch_request(new_name, 0, partition_max_bytes=1)
        with RawClient(thread.port) as client:
            response = client.ask(request, 12)
            assert (response.throttle_time_ms, len(response.responses)) == (0, 1)
            response = client.ask(request, 12)
            assert response.throttle_time_ms > 0
            assert response.responses == []
            began = time.monotonic()
            client.send(request, 12)
            assert admin.fetch(new_name, 0).records
            assert client.receive().error_code == 0
            assert time.monotonic() - began >= response.throttle_time_ms / 1000 - 0.1
            until(lambda: bool(client.ask(request, 12).responses), "the records")

    def test_a_batch_that_is_larger_than_a_window_is_sent_all_the_same(
        self, thread: BrokerThread, admin: RawClient, new_name: str
    ) -> None:
        create_topic(admin, new_name)
        admin.produce(new_name, batch_of(bytes(150_000)))
        alter(admin, RAW, consumer_byte_rate=RATE)
        with RawClient(thread.port) as client, at_least(0.4):
            response = client.ask(fetch_request(new_name, 0), 12)
            assert response.responses[0].partitions[0].records
            assert response.throttle_time_ms > 0
            client.metadata()

    def test_a_fetch_asks_for_no_more_than_its_quota_allows(
        self, thread: BrokerThread, admin: RawClient, new_name: str
    ) -> None:
        create_topic(admin, new_name)
        for _ in range(10):
            admin.produce(new_name, batch_of(bytes(30_000)))
        alter(admin, RAW, consumer_byte_rate=RATE)
        with RawClient(thread.port) as client:
            response = client.ask(fetch_request(new_name, 0, min_bytes=250_000, max_wait_ms=30_000), 12)
            assert response.throttle_time_ms == 0
            assert 60_000 < len(response.responses[0].partitions[0].records) <= RATE

    def test_a_session_goes_on_after_an_empty_response(
        self, thread: BrokerThread, admin: RawClient, new_name: str
    ) -> None:
        create_topic(admin, new_name)
        for _ in range(2):
            admin.produce(new_name, batch_of(bytes(60_000)))
        alter(admin, RAW, consumer_byte_rate=RATE)
        with RawClient(thread.port) as client:
            first = client.ask(fetch_request(new_name, 0, partition_max_bytes=1, session_epoch=0), 12)
            assert first.session_id > 0
            epoch = 1
            following = {"session_id": first.session_id, "partition_max_bytes": 1}
            second = client.ask(fetch_request(new_name, 1, session_epoch=epoch, **following), 12)
            assert (second.session_id, second.responses, second.throttle_time_ms > 0) == (first.session_id, [], True)
            for epoch in range(2, 100):
                found = client.ask(fetch_request(new_name, 1, session_epoch=epoch, **following), 12)
                assert (found.error_code, found.session_id) == (0, first.session_id)
                if found.responses:
                    break
            assert found.responses[0].partitions[0].records


def test_time_counts_for_every_request(thread: BrokerThread, admin: RawClient) -> None:
    alter(admin, RAW, request_percentage=0.001)
    with RawClient(thread.port) as client, at_least(0.5):
        assert client.ask(MetadataRequest(topics=[]), 12).throttle_time_ms > 0
        client.metadata()
    alter(admin, RAW, request_percentage=None, producer_byte_rate=1.0)
    with RawClient(thread.port) as client:
        assert client.ask(MetadataRequest(topics=[]), 12).throttle_time_ms == 0


class TestMutations:
    def create(self, client: RawClient, version: int, *names: str) -> Any:
        topics = [CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in names]
        return client.ask(CreateTopicsRequest(topics=topics), version)

    def test_changes_beyond_the_quota_are_refused_for_clients_that_know_the_error(
        self, thread: BrokerThread, admin: RawClient, new_name: str
    ) -> None:
        names = [f"{new_name}-{each}" for each in range(3)]
        alter(admin, RAW, controller_mutation_rate=0.2)
        with RawClient(thread.port) as client:
            response = self.create(client, 7, *names)  # the first one overdraws the bucket
            codes = [row.error_code for row in response.topics]
            assert codes == [ErrorCode.NONE, *[ErrorCode.THROTTLING_QUOTA_EXCEEDED] * 2]
            assert 0 < response.throttle_time_ms <= 10_000
            client.send(MetadataRequest(topics=[]), 12)
            assert not client.has_answer(0.1)
        assert admin.topic(names[1]).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        with RawClient(thread.port) as client:
            more = CreatePartitionsTopic(name=names[0], count=5)
            (grown,) = client.ask(CreatePartitionsRequest(topics=[more], timeout_ms=1000), 3).results
            assert grown.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        with RawClient(thread.port) as client:
            (deleted,) = client.ask(DeleteTopicsRequest(topic_names=[names[0]], timeout_ms=1000), 5).responses
            assert deleted.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        with RawClient(thread.port) as client:
            assert client.ask(CreatePartitionsRequest(topics=[more], timeout_ms=1000, validate_only=True), 3).results
        assert len(admin.topic(names[0]).partitions) == 2

    def test_older_clients_are_only_delayed(self, thread: BrokerThread, admin: RawClient, new_name: str) -> None:
        names = [f"{new_name}-{each}" for each in range(2)]
        alter(admin, RAW, controller_mutation_rate=0.2)
        with RawClient(thread.port) as client:
            response = self.create(client, 5, *names)
            assert [row.error_code for row in response.topics] == [ErrorCode.NONE] * 2
            assert response.throttle_time_ms > 0
            client.send(MetadataRequest(topics=[]), 12)
            assert not client.has_answer(0.1)


def test_quotas_survive_a_restart(tmp_path: Path) -> None:
    with BrokerThread(tmp_path) as thread, RawClient(thread.port) as client:
        assert alter(client, (("user", None),), producer_byte_rate=5.0) == 0
    with BrokerThread(tmp_path) as thread, RawClient(thread.port) as client:
        assert described(client) == {(("user", None),): {"producer_byte_rate": 5.0}}
        assert thread.look(lambda broker: broker.quotas.active) is not None


def test_an_address_is_limited_by_its_quota(thread: BrokerThread, admin: RawClient) -> None:
    alter(admin, (("ip", "127.0.0.1"),), connection_creation_rate=1.0)
    with RawClient(thread.port) as one, RawClient(thread.port) as two:
        assert one.metadata().brokers
        assert two.is_closed()


def test_a_change_through_one_broker_holds_on_another_and_replication_is_not_limited(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, 2) as cluster:
        cluster.create("t", [1, 2])
        assert alter(cluster.client(2), RAW, producer_byte_rate=RATE, consumer_byte_rate=1.0) == 0
        assert alter(cluster.client(2), (("user", None),), consumer_byte_rate=1.0) == 0
        found = {
            RAW: {"producer_byte_rate": RATE, "consumer_byte_rate": 1.0},
            (("user", None),): {"consumer_byte_rate": 1.0},
        }
        until(lambda: described(cluster.client(1)) == found, "the quotas on the other broker")
        for _ in range(3):
            response = cluster.client(1).ask(produce_request("t", batch_of(bytes(500_000))), 9)
            assert response.responses[0].partition_responses[0].error_code == 0
        assert response.throttle_time_ms > 0
