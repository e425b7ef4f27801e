"""Executors read whole batches from the leader: in every version of Fetch, across restarts, and past lost offsets."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from skylog.client import Admin
from skylog.errors import KafkaError
from skylog.model import TopicPartition
from skylog.protocol.fetch import FetchRequest
from skylog.spark.errors import DataLossError, ShortenedLogError
from skylog.spark.reading import fetcher
from skylog.spark.reading.fetcher import FetchSettings, PartitionFetcher
from skylog.spark.reading.range_reader import read_batches
from skylog.spark.reading.ranges import ReadRange
from skylog.spark.schema import arrow_schema, record_schema
from skylog.spark.wire import BrokerConnection, ConnectionLostError
from skylog.testing import BrokerProcess

SCHEMA = arrow_schema(record_schema(with_headers=False))


def offsets(settings: FetchSettings, topic: str, start_offset: int, end_offset: int) -> list[int]:
    part = ReadRange(topic, 0, start_offset, end_offset)
    return [offset for batch in read_batches(settings, part, SCHEMA) for offset in batch["offset"].to_pylist()]


def send_batches(bootstrap: str, topic: str, count: int, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1000})  # a flush makes a batch of what waits
    for _ in range(count):
        for value in values:
            producer.produce(topic, value, partition=0)
        producer.flush()


@pytest.fixture
def settings(skylog_bootstrap: str) -> FetchSettings:
    return FetchSettings(skylog_bootstrap, patience_s=20)


@pytest.fixture
def hundred(skylog_bootstrap: str, skylog_topic: str) -> str:
    """A topic with the offsets 0 to 99, ten in a batch."""
    send_batches(skylog_bootstrap, skylog_topic, 10, [b"x"] * 10)
    return skylog_topic


@pytest.mark.parametrize("version", [4, 7, 11, 12, 13, 15, 17])
def test_every_version_of_fetch_gives_the_records(
    settings: FetchSettings, hundred: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher, "_NAMES_UNTIL", version)
    assert offsets(settings, hundred, 3, 98) == list(range(3, 98))


def test_names_are_preferred_where_the_broker_takes_them(settings: FetchSettings, hundred: str) -> None:
    with contextlib.closing(PartitionFetcher(settings, TopicPartition(hundred, 0))) as reader:
        next(reader.batches(0, 100))
        assert reader._fetch_version == 12


def test_a_short_range_of_a_long_log_is_a_short_read(skylog_bootstrap: str, skylog_topic: str) -> None:
    send_batches(skylog_bootstrap, skylog_topic, 30, [b"x" * 1000] * 100)
    settings = FetchSettings(skylog_bootstrap)
    with contextlib.closing(PartitionFetcher(settings, TopicPartition(skylog_topic, 0))) as reader:
        sizes = [len(fetched.records) for fetched in reader.batches(0, 1300)]
    assert len(sizes) > 1
    assert sum(sizes) < 2_000_000


def test_lost_offsets_are_named_with_the_start_of_the_log(
    settings: FetchSettings, hundred: str, skylog_admin: Admin
) -> None:
    skylog_admin.delete_records(hundred, {0: 35})
    with pytest.raises(DataLossError, match=f"{hundred}-0: offset 20 was requested, but the log starts at offset 35"):
        offsets(settings, hundred, 20, 100)
    assert offsets(settings._replace(fail_on_data_loss=False), hundred, 20, 100) == list(range(35, 100))
    assert offsets(settings._replace(fail_on_data_loss=False), hundred, 20, 30) == []


def test_offsets_past_the_end_are_named_with_the_end_of_the_log(settings: FetchSettings, hundred: str) -> None:
    with pytest.raises(
        ShortenedLogError, match=f"{hundred}-0: offset 150 was requested, but the log ends at offset 100"
    ):
        offsets(settings, hundred, 150, 200)
    with pytest.raises(ShortenedLogError, match="offset 119 was requested"):
        offsets(settings._replace(patience_s=0), hundred, 50, 120)
    assert offsets(settings._replace(patience_s=0, fail_on_data_loss=False), hundred, 50, 120) == list(range(50, 100))


def test_reading_goes_on_when_the_broker_comes_back() -> None:
    with BrokerProcess() as broker:
        Admin(broker.bootstrap).create_topic("events", 1)
        send_batches(broker.bootstrap, "events", 20, [b"x" * 1000] * 200)
        settings = FetchSettings(broker.bootstrap, max_bytes=100_000)
        with contextlib.closing(PartitionFetcher(settings, TopicPartition("events", 0))) as reader:
            ends = []
            for number, fetched in enumerate(reader.batches(0, 4000)):
                ends.append(int(fetched.headers["base_offset"][-1] + fetched.headers["last_offset_delta"][-1]) + 1)
                if number == 1:
                    broker.kill()
                    broker.start()
    assert ends[-1] == 4000
    assert ends == sorted(set(ends))


def test_the_next_bootstrap_server_is_asked_if_the_first_is_away(settings: FetchSettings, hundred: str) -> None:
    servers = f"127.0.0.1:1, {settings.bootstrap}"
    assert offsets(settings._replace(bootstrap=servers), hundred, 0, 100) == list(range(100))


def test_patience_ends_with_the_reason() -> None:
    settings = FetchSettings("127.0.0.1:1", patience_s=0)
    with pytest.raises(ConnectionLostError, match=r"cannot connect to a broker at 127\.0\.0\.1:1"):
        offsets(settings, "any", 0, 10)


def test_a_topic_that_is_not_there_is_an_error(settings: FetchSettings) -> None:
    with pytest.raises(ConnectionLostError, match="nowhere-0 has no leader: UNKNOWN_TOPIC_OR_PARTITION"):
        offsets(settings._replace(patience_s=0), "nowhere", 0, 10)


@pytest.fixture
def silent_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_broker_that_says_nothing_is_given_up(silent_port: int) -> None:
    with pytest.raises(ConnectionLostError, match="timed out"):
        BrokerConnection("127.0.0.1", silent_port, 0.1)


def test_an_api_without_a_common_version_is_an_error(skylog_broker: BrokerProcess) -> None:
    with contextlib.closing(BrokerConnection("127.0.0.1", skylog_broker.port, 5)) as connection:
        connection._versions.clear()
        with pytest.raises(KafkaError, match="supports Fetch versions None"):
            connection.version(FetchRequest, 12)
