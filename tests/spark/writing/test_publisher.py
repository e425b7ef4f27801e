"""Sending to a real broker, with connections and brokers that fail in the middle."""

from __future__ import annotations

import threading
import uuid
from pathlib import Path
from typing import Any

import pytest

from skylog.client import Admin
from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.produce import ProduceRequest
from skylog.protocol.schema import Message
from skylog.spark.wire import BrokerConnection, ConnectionLostError
from skylog.spark.writing.delivery import deliver
from skylog.spark.writing.publisher import RecordTooLargeError
from skylog.testing import BrokerProcess, consume
from tests.present import present

from .sink_staged import sink_options, stage_values

VALUES = [b"%04d" % number for number in range(300)]


@pytest.fixture
def topic() -> str:
    return f"published-{uuid.uuid4().hex[:8]}"


def after_requests(monkeypatch: pytest.MonkeyPatch, number: int, action: Any) -> None:
    """Do something to the connection after this many produce requests."""
    original = BrokerConnection.send
    counter = iter(range(1, 1_000_000))

    def send(self: BrokerConnection, request: Message, version: int) -> None:
        original(self, request, version)
        if isinstance(request, ProduceRequest) and next(counter) == number:
            action(self)

    monkeypatch.setattr(BrokerConnection, "send", send)


def per_partition(broker: BrokerProcess, topic: str) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {}
    for message in consume(broker.bootstrap, topic):
        found.setdefault(message.partition, []).append(present(message.value))
    return found


def test_partitions_get_their_records_in_order(
    skylog_broker: BrokerProcess, skylog_admin: Admin, topic: str, tmp_path: Path
) -> None:
    skylog_admin.create_topic(topic, 3)
    files = [stage_values(tmp_path, topic, VALUES[start : start + 150], partitions=3) for start in (0, 150)]
    deliver(sink_options(skylog_broker.bootstrap, max_request_size="1000"), files)
    assert per_partition(skylog_broker, topic) == {number: VALUES[number::3] for number in range(3)}


@pytest.mark.parametrize("number", [1, 4, 7])
def test_a_lost_connection_neither_loses_nor_repeats_a_record(
    skylog_broker: BrokerProcess,
    skylog_admin: Admin,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
) -> None:
    skylog_admin.create_topic(topic, 2)
    after_requests(monkeypatch, number, BrokerConnection.close)
    options = sink_options(skylog_broker.bootstrap, max_request_size="1000")
    deliver(options, [stage_values(tmp_path, topic, VALUES, partitions=2)])
    assert per_partition(skylog_broker, topic) == {number: VALUES[number::2] for number in range(2)}


def test_a_broker_that_is_killed_and_comes_back_has_every_record_once(
    topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        Admin(broker.bootstrap).create_topic(topic, 2)
        comeback = threading.Thread(target=broker.restart)

        def kill(_: BrokerConnection) -> None:
            broker.kill()
            comeback.start()

        after_requests(monkeypatch, 5, kill)
        options = sink_options(broker.bootstrap, max_request_size="1000")
        deliver(options, [stage_values(tmp_path / "staged", topic, VALUES, partitions=2)])
        comeback.join()
        assert per_partition(broker, topic) == {number: VALUES[number::2] for number in range(2)}


def test_batches_that_a_topic_finds_too_large_are_cut(
    skylog_broker: BrokerProcess, skylog_admin: Admin, topic: str, tmp_path: Path
) -> None:
    skylog_admin.create_topic(topic, 2, configs={"max.message.bytes": "300"})
    file = stage_values(tmp_path, topic, VALUES, partitions=2, batch_bytes=100_000)
    assert len(file.batches) == 2
    deliver(sink_options(skylog_broker.bootstrap), [file])
    assert per_partition(skylog_broker, topic) == {number: VALUES[number::2] for number in range(2)}


def test_a_record_that_a_topic_finds_too_large_is_an_error_that_names_the_partition(
    skylog_broker: BrokerProcess, skylog_admin: Admin, topic: str, tmp_path: Path
) -> None:
    skylog_admin.create_topic(topic, 1, configs={"max.message.bytes": "300"})
    with pytest.raises(RecordTooLargeError, match=rf"{topic}-0 .*max\.message\.bytes"):
        deliver(sink_options(skylog_broker.bootstrap), [stage_values(tmp_path, topic, [b"x" * 1000])])


def test_a_topic_that_is_gone_is_an_error_that_names_the_partition(
    skylog_broker: BrokerProcess, tmp_path: Path
) -> None:
    options = sink_options(skylog_broker.bootstrap, delivery_timeout_ms="300")
    with pytest.raises(KafkaError, match="no topic!-0") as raised:
        deliver(options, [stage_values(tmp_path, "no topic!", [b"x"])])
    assert raised.value.code is ErrorCode.LEADER_NOT_AVAILABLE


def test_brokers_that_cannot_be_reached_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConnectionLostError, match=r"127\.0\.0\.1:9"):
        deliver(sink_options("127.0.0.1:9", delivery_timeout_ms="1"), [stage_values(tmp_path, "t", [b"x"])])
