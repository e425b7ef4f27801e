"""`spark.readStream.format("skylog")`: micro-batches, their limits, restarts, and partitions that come and go."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from skylog.client import Admin, ConsumerGroups
from skylog.spark.source import SkylogSource
from skylog.testing import BrokerProcess, produce, wait_until
from tests.proof import in_proof
from tests.spark.conftest import Topics


class Collected:
    """What a query has delivered: the offsets of each micro-batch, by partition."""

    def __init__(self, checkpoint: Path) -> None:
        self.checkpoint = checkpoint
        self.batches: list[dict[str, list[int]]] = []

    def take(self, frame: DataFrame, number: int) -> None:
        found: dict[str, list[int]] = {}
        for row in frame.select("topic", "partition", "offset").collect():
            found.setdefault(f"{row.topic}-{row.partition}", []).append(row.offset)
        self.batches.append(found)

    def start(self, frame: DataFrame, **trigger: Any) -> StreamingQuery:
        writer = frame.writeStream.foreachBatch(self.take).option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(**trigger or {"processingTime": "0 seconds"}).start()

    def run(self, frame: DataFrame) -> list[dict[str, list[int]]]:
        """Process the available records, and return the records that this run has delivered."""
        before = len(self.batches)
        query = self.start(frame, availableNow=True)
        try:
            assert query.awaitTermination(60)
        finally:
            query.stop()
        return self.batches[before:]

    def all_of(self, partition: str) -> list[int]:
        return [offset for batch in self.batches for offset in batch.get(partition, [])]


@pytest.fixture
def collected(tmp_path: Path) -> Collected:
    return Collected(tmp_path / "checkpoint")


@pytest.fixture
def two(skylog_admin: Admin) -> Iterator[str]:
    """A topic of two partitions."""
    topic = f"two-{uuid.uuid4().hex[:8]}"
    skylog_admin.create_topic(topic, 2)
    yield topic
    if any(each.name == topic for each in skylog_admin.list_topics()):
        skylog_admin.delete_topics([topic])


@pytest.fixture
def send(topics: Topics) -> Callable[..., None]:
    def send_numbers(topic: str, count: int, partition: int = 0) -> None:
        produce(topics.bootstrap, topic, [b"x"] * count, partition=partition)

    return send_numbers


def offsets_of(path: Path) -> list[Any]:
    """The end offsets in the checkpoint, of each micro-batch."""
    files = sorted((path / "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
    return [json.loads(file.read_text().splitlines()[-1]) for file in files]


def test_what_is_there_is_read_once_across_restarts(
    topics: Topics, two: str, collected: Collected, send: Callable[..., None]
) -> None:
    send(two, 10)
    send(two, 5, partition=1)
    frame = topics.stream(two, startingOffsets="earliest")
    assert collected.run(frame) == [{f"{two}-0": list(range(10)), f"{two}-1": list(range(5))}]
    assert offsets_of(collected.checkpoint) == [{two: {"0": 10, "1": 5}}]
    assert collected.run(frame) == []
    send(two, 3, partition=1)
    assert collected.run(frame) == [{f"{two}-1": [5, 6, 7]}]


@in_proof
def test_a_stream_starts_at_the_end_if_nothing_is_said(
    topics: Topics, two: str, collected: Collected, send: Callable[..., None]
) -> None:
    send(two, 10)
    frame = topics.stream(two)
    collected.run(frame)
    send(two, 2)
    collected.run(frame)
    assert collected.all_of(f"{two}-0") == [10, 11]


def test_the_rate_limit_divides_what_waits_by_size(
    topics: Topics, two: str, collected: Collected, send: Callable[..., None]
) -> None:
    send(two, 30)
    send(two, 10, partition=1)
    batches = collected.run(topics.stream(two, startingOffsets="earliest", maxOffsetsPerTrigger="8"))
    assert [len(offsets) for batch in batches[:4] for offsets in (batch[f"{two}-0"], batch[f"{two}-1"])] == [6, 2] * 4
    assert all(sum(map(len, batch.values())) <= 8 for batch in batches)
    assert collected.all_of(f"{two}-0") == list(range(30))
    assert collected.all_of(f"{two}-1") == list(range(10))


def test_available_now_leaves_what_comes_later(
    topics: Topics, two: str, collected: Collected, send: Callable[..., None]
) -> None:
    send(two, 10)
    take = collected.take

    def take_and_send(frame: DataFrame, number: int) -> None:
        take(frame, number)
        send(two, 5)

    collected.take = take_and_send  # type: ignore[method-assign]  # the next micro-batch would see them
    collected.run(topics.stream(two, startingOffsets="earliest", maxOffsetsPerTrigger="4"))
    assert collected.all_of(f"{two}-0") == list(range(10))


def test_a_query_that_failed_reads_the_same_micro_batch_again(
    topics: Topics, two: str, collected: Collected, send: Callable[..., None]
) -> None:
    send(two, 10)
    frame = topics.stream(two, startingOffsets="earliest", maxOffsetsPerTrigger="4")
    take = collected.take

    def fail(frame: DataFrame, number: int) -> None:
        if number == 1:
            raise RuntimeError("the sink is full")
        take(frame, number)

    collected.take = fail  # type: ignore[method-assign]  # a sink that fails
    with pytest.raises(Exception, match="the sink is full"):
        collected.run(frame)
    collected.take = take  # type: ignore[method-assign]
    send(two, 10)
    collected.run(frame)
    assert collected.batches[:2] == [{f"{two}-0": [0, 1, 2, 3]}, {f"{two}-0": [4, 5, 6, 7]}]
    assert collected.all_of(f"{two}-0") == list(range(20))


def test_new_partitions_and_topics_are_read_from_their_beginning_while_it_runs(
    topics: Topics, skylog_admin: Admin, collected: Collected, send: Callable[..., None]
) -> None:
    prefix = f"grow-{uuid.uuid4().hex[:8]}"
    skylog_admin.create_topic(f"{prefix}-a", 1)
    send(f"{prefix}-a", 3)
    query = collected.start(topics.stream("", subscribePattern=f"{prefix}-.*", startingOffsets="earliest"))
    try:
        wait_until(lambda: collected.all_of(f"{prefix}-a-0") == [0, 1, 2], "the first topic", 60)
        skylog_admin.add_partitions(f"{prefix}-a", 2)
        send(f"{prefix}-a", 4, partition=1)
        wait_until(lambda: collected.all_of(f"{prefix}-a-1") == [0, 1, 2, 3], "the new partition", 60)
        skylog_admin.create_topic(f"{prefix}-b", 1)
        send(f"{prefix}-b", 2)
        wait_until(lambda: collected.all_of(f"{prefix}-b-0") == [0, 1], "the new topic", 60)
    finally:
        query.stop()
    assert collected.all_of(f"{prefix}-a-0") == [0, 1, 2]
    skylog_admin.delete_topics([f"{prefix}-a", f"{prefix}-b"])


@pytest.fixture
def overrun(topics: Topics, two: str, collected: Collected, send: Callable[..., None], skylog_admin: Admin) -> str:
    """A topic where retention has removed the offsets 5 to 7, of which a query has read those before."""
    send(two, 5)
    collected.run(topics.stream(two, startingOffsets="earliest"))
    send(two, 10)
    skylog_admin.delete_records(two, {0: 8})
    return two


def test_a_query_that_retention_has_overtaken_fails_and_says_where(
    topics: Topics, overrun: str, collected: Collected
) -> None:
    with pytest.raises(
        Exception, match=rf"{overrun}-0: offset 5 was requested, but the log starts at offset 8.*3 offsets"
    ):
        collected.run(topics.stream(overrun))


@in_proof
def test_a_query_that_retention_has_overtaken_goes_on_if_told_so(
    topics: Topics, overrun: str, collected: Collected
) -> None:
    assert collected.run(topics.stream(overrun, failOnDataLoss="false")) == [{f"{overrun}-0": list(range(8, 15))}]


def test_a_topic_that_was_made_anew_is_noticed(
    topics: Topics, two: str, collected: Collected, send: Callable[..., None], skylog_admin: Admin
) -> None:
    send(two, 5)
    collected.run(topics.stream(two, startingOffsets="earliest"))
    skylog_admin.delete_topics([two])
    skylog_admin.create_topic(two, 2)
    send(two, 2)
    with pytest.raises(
        Exception, match=rf"{two}-0: offset 4 was read before, but the log ends at offset 2.* continue from offset 2"
    ):
        collected.run(topics.stream(two))


def test_progress_is_committed_to_the_group_and_shows_as_lag(
    topics: Topics, two: str, collected: Collected, send: Callable[..., None]
) -> None:
    group = f"group-{uuid.uuid4().hex[:8]}"
    send(two, 10)
    query = collected.start(topics.stream(two, startingOffsets="earliest", groupId=group))
    groups = ConsumerGroups(topics.bootstrap)

    def committed() -> dict[int, int | None]:
        found = [each for each in groups.list_groups() if each.name == group]
        return {each.partition.partition: each.committed_offset for each in found[0].partitions} if found else {}

    try:
        wait_until(lambda: collected.all_of(f"{two}-0") == list(range(10)), "the rows", 60)
        wait_until(lambda: committed().get(0) == 10, "the commit", 60)
    finally:
        query.stop()
    send(two, 4)
    [found] = groups.describe_groups([group])
    assert {each.partition.partition: each.lag for each in found.partitions} == {0: 4, 1: 0}


@in_proof
def test_a_group_is_up_to_date_when_available_now_has_ended(
    topics: Topics, two: str, collected: Collected, send: Callable[..., None]
) -> None:
    group = f"group-{uuid.uuid4().hex[:8]}"
    send(two, 10)
    collected.run(topics.stream(two, startingOffsets="earliest", groupId=group, maxOffsetsPerTrigger="4"))
    [found] = ConsumerGroups(topics.bootstrap).describe_groups([group])
    assert {each.partition.partition: each.committed_offset for each in found.partitions} == {0: 10, 1: 0}


def test_a_new_query_starts_where_its_group_stands(
    topics: Topics, two: str, collected: Collected, send: Callable[..., None]
) -> None:
    group = f"group-{uuid.uuid4().hex[:8]}"
    send(two, 10)
    consumer = Consumer({"bootstrap.servers": topics.bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(two, 0, 7)], asynchronous=False)
    consumer.close()
    collected.run(topics.stream(two, startingOffsets="committed", groupId=group))
    assert collected.all_of(f"{two}-0") == [7, 8, 9]


@in_proof
def test_a_minimum_holds_micro_batches_back_until_there_is_enough(
    topics: Topics, two: str, collected: Collected, send: Callable[..., None]
) -> None:
    send(two, 3)
    query = collected.start(
        topics.stream(two, startingOffsets="earliest", minOffsetsPerTrigger="6", maxTriggerDelay="1h")
    )
    try:
        wait_until(lambda: query.status["message"] == "Waiting for data to arrive", "a first look", 60)
        send(two, 3)
        wait_until(lambda: collected.all_of(f"{two}-0"), "rows", 60)
    finally:
        query.stop()
    assert [batch for batch in collected.batches if batch] == [{f"{two}-0": [0, 1, 2, 3, 4, 5]}]


def test_ending_offsets_are_refused(topics: Topics, two: str, collected: Collected) -> None:
    with pytest.raises(Exception, match="'endingOffsets' is not supported for streaming queries"):
        collected.run(topics.stream(two, endingOffsets="latest"))


def test_progress_is_reported_without_the_latest_offset_while_the_broker_is_away() -> None:
    source = SkylogSource({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"})
    schema = source.schema()
    assert isinstance(schema, StructType)
    assert source.streamReader(schema).reportLatestOffset() is None


def test_a_query_waits_for_a_broker_that_is_away(topics: Topics, collected: Collected) -> None:
    with BrokerProcess() as broker:
        Admin(broker.bootstrap).create_topic("away", partitions=1)
        produce(broker.bootstrap, "away", ["before"])
        frame = topics.stream("away", startingOffsets="earliest", **{"kafka.bootstrap.servers": broker.bootstrap})
        query = collected.start(frame)
        try:
            wait_until(lambda: collected.all_of("away-0") == [0] or not query.isActive, "the first row", 60)
            broker.kill()
            passed = len(query.recentProgress)
            wait_until(lambda: len(query.recentProgress) > passed or not query.isActive, "a look", 60)
            broker.start()
            produce(broker.bootstrap, "away", ["after"])
            wait_until(lambda: collected.all_of("away-0") == [0, 1] or not query.isActive, "the second row", 60)
            assert query.exception() is None
        finally:
            query.stop()
    assert collected.all_of("away-0") == [0, 1]
