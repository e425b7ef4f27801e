"""Admin against a real broker."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError as LibraryError
from confluent_kafka import KafkaException, Producer

from skylog.client import Admin, BrokerUnreachableError, Connection, OffsetRange, TopicNotFoundError
from skylog.errors import ErrorCode, KafkaError, SkylogError
from skylog.model import TopicPartition
from skylog.testing import BrokerCluster, wait_until
from tests.cli.conftest import running_broker

_numbers = itertools.count()


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory: Path = tmp_path_factory.mktemp("client")
    with running_broker(directory / "data") as address:
        yield address


@pytest.fixture
def admin(bootstrap: str) -> Admin:
    return Admin(Connection(bootstrap))


@pytest.fixture
def topic() -> str:
    return f"topic{next(_numbers)}"


def test_a_created_topic_is_described(admin: Admin, topic: str) -> None:
    admin.create_topic(topic, 2, configs={"retention.ms": "1000"})
    described = admin.describe_topic(topic)
    assert [partition.index for partition in described.partitions] == [0, 1]
    assert described.replication_factor == 1
    assert not described.is_internal
    assert [(each.name, each.value, each.source) for each in admin.describe_configs(topic) if not each.is_default] == [
        ("retention.ms", "1000", "topic")
    ]


def test_asking_for_a_topic_does_not_create_it(admin: Admin, topic: str) -> None:
    with pytest.raises(TopicNotFoundError):
        admin.describe_topic(topic)
    assert topic not in {each.name for each in admin.list_topics()}


def test_a_topic_that_is_not_there_names_the_nearest(admin: Admin) -> None:
    admin.create_topic("page-views")
    with pytest.raises(TopicNotFoundError) as caught:
        admin.add_partitions("page-vews", 3)
    assert caught.value.nearest == ("page-views",)
    assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_that_was_created_meanwhile_is_not_its_own_nearest() -> None:
    assert TopicNotFoundError("orders", ["orders", "order"]).nearest == ("order",)
    assert TopicNotFoundError("orders", ["orders__sent", "order"]).nearest == ("order",)  # a job derives it


def test_refusals_carry_kafkas_code_and_the_brokers_words(admin: Admin, topic: str) -> None:
    admin.create_topic(topic)
    with pytest.raises(KafkaError, match=f"cannot create topic '{topic}'.*already exists") as caught:
        admin.create_topic(topic)
    assert caught.value.code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_offsets_are_found_by_time(admin: Admin, bootstrap: str, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    admin.create_topic(topic)
    producer = Producer({"bootstrap.servers": bootstrap})
    for timestamp in (1000, 2000, 3000):
        producer.produce(topic, b"x", timestamp=timestamp)
    assert producer.flush(20) == 0
    assert admin.offset_ranges([partition]) == {partition: OffsetRange(0, 3)}
    assert admin.offsets_at([partition], 1500) == {partition: 1}
    assert admin.offsets_at([partition], 3001) == {partition: None}


def test_configs_are_set_and_taken_away(admin: Admin, topic: str) -> None:
    admin.create_topic(topic, configs={"retention.ms": "1000"})
    admin.alter_configs(topic, {"retention.ms": None, "segment.bytes": "4096"})
    changed = {each.name: each.value for each in admin.describe_configs(topic) if not each.is_default}
    assert changed == {"segment.bytes": "4096"}


def test_partitions_are_added_and_topics_deleted(admin: Admin, topic: str) -> None:
    admin.create_topic(topic)
    admin.add_partitions(topic, 3)
    assert len(admin.describe_topic(topic).partitions) == 3
    admin.delete_topics([topic])
    assert topic not in {each.name for each in admin.list_topics()}


@pytest.mark.parametrize(
    ("address", "reason"), [("127.0.0.1:1", "Connection refused"), ("no.such.host.invalid:9092", "resolve")]
)
def test_a_broker_that_cannot_be_reached_is_named_with_the_reason(address: str, reason: str) -> None:
    with pytest.raises(BrokerUnreachableError) as caught:
        Admin(Connection(address)).list_topics()
    assert address in str(caught.value)
    assert reason in str(caught.value)


def test_reachable_offset_ranges_leave_out_unavailable_partitions(admin: Admin, topic: str) -> None:
    admin.create_topic(topic, 2)
    there = TopicPartition(topic, 1)
    gone = [TopicPartition(topic, 7), TopicPartition("never-made", 0)]
    assert admin.reachable_offset_ranges([there, *gone]) == {there: OffsetRange(0, 0)}
    assert admin.reachable_offset_ranges(gone) == {}


def test_offset_ranges_raise_for_an_unavailable_partition(admin: Admin, topic: str) -> None:
    admin.create_topic(topic, 2)
    with pytest.raises(SkylogError, match=f"{topic}-7"):
        admin.offset_ranges([TopicPartition(topic, 0), TopicPartition(topic, 7)])


def test_a_topic_deleted_since_it_was_listed_hides_no_other(admin: Admin, topic: str) -> None:
    admin.create_topic(topic, 1)
    admin.create_topic(f"{topic}-deleted", 1)
    listed = [TopicPartition(topic, 0), TopicPartition(f"{topic}-deleted", 0)]
    assert set(admin.reachable_offset_ranges(listed)) == set(listed)
    admin.delete_topics([f"{topic}-deleted"])
    assert set(admin.reachable_offset_ranges(listed)) == {TopicPartition(topic, 0)}


def test_offsets_of_an_unreachable_cluster_are_an_error_and_not_empty() -> None:
    with pytest.raises(BrokerUnreachableError):
        Admin(Connection("127.0.0.1:1", timeout_s=2)).reachable_offset_ranges([TopicPartition("events", 0)])


def test_offsets_of_a_partition_whose_leader_was_killed_are_an_error_or_left_out() -> None:
    settings = {"default.replication.factor": "1", "min.insync.replicas": "1"}
    with BrokerCluster(2, settings, session_timeout_ms=60_000) as cluster:
        admin = Admin(Connection(cluster.bootstrap, timeout_s=2))
        admin.create_topic("letters", 2)
        both = admin.describe_topic("letters").topic_partitions
        wait_until(lambda: len(admin.reachable_offset_ranges(both)) == 2, "both leaders")
        cluster.kill(cluster.leader_of("letters", 0))
        with pytest.raises(SkylogError):
            admin.offset_ranges(both)
        assert admin.reachable_offset_ranges(both) == {TopicPartition("letters", 1): OffsetRange(0, 0)}


def test_offsets_that_a_new_leader_does_not_know_yet_are_asked_for_again(
    admin: Admin, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker's part is in tests/broker/replication/test_new_leader.py, which can hold that moment."""
    admin.create_topic(topic, 2)
    both = admin.describe_topic(topic).topic_partitions
    request, rejections = admin._request_offsets, iter([1, 0])

    def reject(partitions: Sequence[TopicPartition], spec: Any) -> dict[TopicPartition, Future[Any]]:
        futures = request(partitions, spec)
        if (rejected := next(rejections, None)) is not None:
            futures[both[rejected]] = Future()
            futures[both[rejected]].set_exception(KafkaException(LibraryError(ErrorCode.OFFSET_NOT_AVAILABLE)))
        return futures

    monkeypatch.setattr(admin, "_request_offsets", reject)
    assert admin.offset_ranges(both) == dict.fromkeys(both, OffsetRange(0, 0))
    assert next(rejections, None) is None
