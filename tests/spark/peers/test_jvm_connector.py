"""Spark's own Kafka connector beside ours: the same options on the same broker give the same rows."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from skylog.client import Admin
from skylog.model import TopicPartition
from skylog.testing import BrokerProcess, wait_until
from tests.proof import in_proof, some
from tests.spark.peers.conftest import Peer

START_MS = 1_700_000_000_000
COUNT = 100
PARTITIONS = 3
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "20000", "min.cleanable.dirty.ratio": "0.01"}
KEYED = ["cast(id as string) key", "concat('value ', id) value"]
FULL = [
    "case when id % 5 = 0 then null else concat('key-', id) end key",
    "case when id % 7 = 0 then null else cast(repeat(cast(id as string), cast(id % 90 as int)) as binary) end value",
    "case when id % 3 = 0 then null else array(struct('n' as key, cast(cast(id as string) as binary) as value), "
    "struct('none' as key, cast(null as binary) as value)) end headers",
    f"cast(id % {PARTITIONS} as int) partition",
]


@pytest.fixture(scope="session")
def numbers(broker: BrokerProcess, admin: Admin) -> str:
    """A topic with keys, values, headers, their lack, every codec, and a second between messages."""
    topic = f"numbers-{uuid.uuid4().hex[:8]}"
    admin.create_topic(topic, PARTITIONS, configs={"retention.ms": "-1"})  # the times of its messages are long past
    for part, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": codec, "linger.ms": 50})
        for number in range(part * COUNT // 5, (part + 1) * COUNT // 5):
            for partition in range(PARTITIONS):
                producer.produce(
                    topic,
                    None if number % 11 == 0 else b"value %d " % number * (number % 50),
                    None if number % 4 == 0 else b"k%d" % number,
                    partition=partition,
                    timestamp=START_MS + 1000 * number + partition,
                    headers=[("n", b"%d" % number), ("none", None), ("ü", b"")] if number % 3 else None,
                )
        assert producer.flush(20) == 0
    return topic


def options(broker: BrokerProcess, **given: Any) -> dict[str, str]:
    found = {key: json.dumps(value) if isinstance(value, dict) else str(value) for key, value in given.items()}
    return {"kafka.bootstrap.servers": broker.bootstrap, **found}


def both(peer: Peer, given: dict[str, str]) -> Any:
    """What our source reads with these options, and that the other one reads the same."""
    theirs = peer.read(form="kafka", options=given)
    ours = peer.read(form="skylog", options=given)
    assert ours["columns"] == theirs["columns"]
    assert ours["rows"] == theirs["rows"]
    return {"rows": ours["rows"], "tasks": (ours["tasks"], theirs["tasks"])}


def at(topic: str, *places: int) -> dict[str, dict[str, int]]:
    return {topic: {str(number): place for number, place in enumerate(places)}}


@pytest.mark.parametrize(
    ("given", "count"),
    some(
        [
            ({"startingOffsets": (10, -2, 99), "endingOffsets": (20, 7, -1), "includeHeaders": "true"}, 18),
            ({"minPartitions": 7, "includeHeaders": "true"}, 300),
            ({"startingTimestamp": START_MS + 20_000, "endingTimestamp": START_MS + 22_000}, 6),
            ({}, 300),
            ({"startingOffsets": "earliest", "endingOffsets": "latest", "includeHeaders": "true"}, 300),
            ({"startingOffsetsByTimestamp": (START_MS + 5000, START_MS + 5001, START_MS + 5001)}, 285),
            ({"endingOffsetsByTimestamp": (START_MS + 5000, START_MS + 99_001, START_MS + 999_000)}, 204),
            ({"minPartitions": 2}, 300),
            ({"startingOffsets": (0, 0, 90), "minPartitions": 9}, 210),
        ],
        usual=1,
    ),
)
def test_a_batch_reads_the_same_rows(
    peer: Peer, broker: BrokerProcess, numbers: str, given: dict[str, Any], count: int
) -> None:
    named = {key: at(numbers, *value) if isinstance(value, tuple) else value for key, value in given.items()}
    found = both(peer, options(broker, subscribe=numbers, **named))
    assert len(found["rows"]) == count
    ours, theirs = found["tasks"]
    assert ours == theirs


@in_proof
def test_assigned_partitions_give_the_same_rows(peer: Peer, broker: BrokerProcess, numbers: str) -> None:
    found = both(peer, options(broker, assign={numbers: [0, 2]}))
    assert {row["partition"] for row in found["rows"]} == {0, 2}


@in_proof
def test_a_pattern_gives_the_same_rows(peer: Peer, broker: BrokerProcess, admin: Admin, numbers: str) -> None:
    admin.create_topic(numbers + "-more", 1)
    found = both(peer, options(broker, subscribePattern=numbers + ".*"))
    assert len(found["rows"]) == PARTITIONS * COUNT


@in_proof
def test_a_compacted_topic_gives_the_same_rows(peer: Peer, broker: BrokerProcess, admin: Admin) -> None:
    topic = f"compacted-{uuid.uuid4().hex[:8]}"
    admin.create_topic(topic, 1, configs=COMPACTED)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.size": 2000})
    for number in range(3000):
        producer.produce(topic, b"value-%d" % number * 3, b"key-%d" % (number % 40 if number % 500 else number))
    assert producer.flush(20) == 0

    def found() -> list[Any]:
        rows: list[Any] = peer.read(form="skylog", options=options(broker, subscribe=topic))["rows"]
        return rows

    wait_until(lambda: len(found()) < 1500, "the topic to be compacted", 60)
    wait_until(lambda: found() == found(), "the topic to stay as it is", 60)
    assert both(peer, options(broker, subscribe=topic, minPartitions=3))["rows"][-1]["offset"] == 2999
    inside = both(peer, options(broker, subscribe=topic, startingOffsets=at(topic, 7), endingOffsets=at(topic, 2900)))
    assert inside["rows"]
    assert all(7 <= row["offset"] < 2900 for row in inside["rows"])


@in_proof
@pytest.mark.parametrize("limit", [50, 7, 1000])
def test_a_stream_reads_the_same_micro_batches(
    peer: Peer, broker: BrokerProcess, numbers: str, limit: int, tmp_path: Path
) -> None:
    start = at(numbers, 60, -2, 90)
    given = options(broker, subscribe=numbers, startingOffsets=start, maxOffsetsPerTrigger=limit, includeHeaders="true")
    theirs = peer.stream(form="kafka", options=given, checkpoint=str(tmp_path / "kafka"))
    ours = peer.stream(form="skylog", options=given, checkpoint=str(tmp_path / "skylog"))
    assert ours == theirs
    assert sum(map(len, ours)) == 150


@pytest.mark.parametrize("codec", some(["lz4", "none", "gzip", "snappy", "zstd"], usual=1))
def test_what_one_sink_writes_the_other_source_reads(
    peer: Peer, broker: BrokerProcess, admin: Admin, codec: str
) -> None:
    found = {}
    for form in ("kafka", "skylog"):
        topic = f"written-{form}-{codec}-{uuid.uuid4().hex[:8]}"
        admin.create_topic(topic, PARTITIONS)
        given = options(broker, topic=topic, **{"kafka.compression.type": codec})
        peer.write(form=form, options=given, count=500, columns=FULL)
        rows = both(peer, options(broker, subscribe=topic, includeHeaders="true"))["rows"]
        found[form] = sorted(([row["partition"], row["key"], row["value"], row["headers"]] for row in rows), key=str)
    assert len(found["skylog"]) == 500
    assert found["skylog"] == found["kafka"]


@in_proof
def test_keyed_rows_lie_in_the_same_partitions(peer: Peer, broker: BrokerProcess, admin: Admin) -> None:
    places = {}
    for form in ("kafka", "skylog"):
        topic = f"keyed-{form}-{uuid.uuid4().hex[:8]}"
        admin.create_topic(topic, 5)
        peer.write(form=form, options=options(broker, topic=topic), count=1000, columns=KEYED)
        places[form] = {row["key"]: row["partition"] for row in both(peer, options(broker, subscribe=topic))["rows"]}
    assert len(places["skylog"]) == 1000
    assert len(set(places["skylog"].values())) == 5
    assert places["skylog"] == places["kafka"]


@pytest.mark.parametrize("form", some(["skylog", "kafka"], usual=1))
@in_proof
def test_a_stream_that_one_sink_writes_the_other_source_reads(
    peer: Peer, broker: BrokerProcess, admin: Admin, numbers: str, form: str, tmp_path: Path
) -> None:
    topic = f"streamed-{form}-{uuid.uuid4().hex[:8]}"
    admin.create_topic(topic, PARTITIONS)
    given = options(broker, topic=topic, checkpointLocation=tmp_path)
    source = options(broker, subscribe=numbers, startingOffsets="earliest", includeHeaders="true")
    columns = ["key", "value", "headers", "partition"]
    peer.write_stream(form=form, options=given, source=source, columns=columns)
    written = both(peer, options(broker, subscribe=topic, includeHeaders="true"))["rows"]
    read = both(peer, options(broker, subscribe=numbers, includeHeaders="true"))["rows"]
    fields = ("partition", "offset", "key", "value", "headers")
    assert [[row[name] for name in fields] for row in written] == [[row[name] for name in fields] for row in read]
    ends = admin.offset_ranges([TopicPartition(topic, number) for number in range(PARTITIONS)])
    assert all(found.end_offset == COUNT for found in ends.values())
