"""`spark.read.format("skylog")`: rows, options, filters and error messages."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from skylog.client import Admin
from skylog.spark.reading.message_reader import read_messages
from skylog.spark.reading.options import read_options
from skylog.spark.reading.range_reader import fetch_settings, read_batches
from skylog.spark.reading.ranges import ReadRange
from skylog.spark.schema import arrow_schema, record_schema
from skylog.testing import BrokerProcess
from tests.spark.conftest import Topics

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
START_MS = 1_700_000_000_000
COUNT = 30  # in each partition of the topic `numbers`


def name(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def numbers(skylog_broker: BrokerProcess, skylog_admin: Admin) -> str:
    """Two partitions; in each the offsets 0 to 29, as values, keys and seconds of the time."""
    topic = name("numbers")
    skylog_admin.create_topic(topic, 2)
    producer = Producer({"bootstrap.servers": skylog_broker.bootstrap, "batch.num.messages": 7})
    for number in range(COUNT):
        for partition in range(2):
            producer.produce(
                topic,
                b"%d" % number,
                b"k%d" % number,
                partition,
                timestamp=START_MS + 1000 * number,
                headers=[("n", b"%d" % number), ("none", None)] if number % 2 else None,
            )
    producer.flush()
    return topic


def offsets(frame: DataFrame) -> dict[int, list[int]]:
    """Offsets by partition, in the order of the rows."""
    found: dict[int, list[int]] = {}
    for row in frame.select("partition", "offset").collect():
        found.setdefault(row.partition, []).append(row.offset)
    return found


def per_partition(topic: str, *values: int) -> str:
    return json.dumps({topic: {str(index): value for index, value in enumerate(values)}})


def test_rows_are_what_was_produced(topics: Topics, numbers: str) -> None:
    rows = topics.read(numbers, includeHeaders="true").collect()
    found = sorted((row.partition, row.offset, row.key, row.value, row.topic, row.timestampType) for row in rows)
    assert found == [
        (partition, number, b"k%d" % number, b"%d" % number, numbers, 0)
        for partition in range(2)
        for number in range(COUNT)
    ]
    for row in rows:
        assert row.timestamp.astimezone(UTC) == EPOCH + timedelta(milliseconds=START_MS + 1000 * row.offset)
        headers = [(each.key, each.value) for each in row.headers or ()]
        assert headers == ([("n", b"%d" % row.offset), ("none", None)] if row.offset % 2 else [])


def test_the_schema_is_that_of_the_kafka_source(topics: Topics, numbers: str) -> None:
    assert topics.read(numbers).dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
    ]
    assert topics.read(numbers, includeHeaders="true").dtypes[-1] == (
        "headers",
        "array<struct<key:string,value:binary>>",
    )


def test_null_keys_and_values_stay_null(topics: Topics, skylog_topic: str) -> None:
    producer = Producer({"bootstrap.servers": topics.bootstrap})
    producer.produce(skylog_topic, None, b"key")
    producer.produce(skylog_topic, b"value", None)
    producer.produce(skylog_topic, b"", b"")
    producer.flush()
    rows = topics.read(skylog_topic).orderBy("offset").collect()
    assert [(row.key, row.value) for row in rows] == [(b"key", None), (None, b"value"), (b"", b"")]


@pytest.mark.parametrize(
    ("options", "first", "last"),
    [
        ({"startingOffsets": (4, 10)}, (4, 10), (29, 29)),
        ({"startingOffsets": (-2, 10), "endingOffsets": (5, -1)}, (0, 10), (4, 29)),
        ({"startingOffsets": (7, 7), "endingOffsets": (8, 9)}, (7, 7), (7, 8)),
        ({"startingOffsetsByTimestamp": (START_MS + 3000, START_MS + 3001)}, (3, 4), (29, 29)),
        ({"endingOffsetsByTimestamp": (START_MS + 3000, START_MS + 99_000)}, (0, 0), (2, 29)),
        ({"startingTimestamp": START_MS + 20_000, "endingTimestamp": START_MS + 22_000}, (20, 20), (21, 21)),
        ({"startingOffsets": "earliest", "endingOffsets": "latest"}, (0, 0), (29, 29)),
    ],
)
def test_positions_bound_what_is_read(
    topics: Topics, numbers: str, options: dict[str, Any], first: tuple[int, int], last: tuple[int, int]
) -> None:
    given = {
        key: per_partition(numbers, *value) if isinstance(value, tuple) else value for key, value in options.items()
    }
    expected = {partition: list(range(first[partition], last[partition] + 1)) for partition in range(2)}
    assert offsets(topics.read(numbers, **given)) == expected


def test_assign_reads_the_named_partitions(topics: Topics, numbers: str) -> None:
    assert offsets(topics.read("", assign=json.dumps({numbers: [1]}))).keys() == {1}


def test_a_pattern_reads_the_topics_whose_whole_names_match(topics: Topics, numbers: str) -> None:
    prefix = numbers[:-3]
    assert topics.read("", subscribePattern=f"{prefix}...").count() == 2 * COUNT
    assert topics.read("", subscribePattern=prefix).count() == 0


def test_option_names_are_taken_in_any_case(topics: Topics, numbers: str) -> None:
    frame = topics.read(numbers, STARTINGOFFSETS=per_partition(numbers, 29, 28), INCLUDEheaders="TRUE")
    assert offsets(frame) == {0: [29], 1: [28, 29]}
    assert "headers" in frame.columns


@pytest.mark.parametrize(
    ("option", "tasks"),
    [({"minPartitions": "6"}, 6), ({"maxRecordsPerPartition": "7"}, 10), ({"minPartitions": "1"}, 2)],
)
def test_ranges_are_split_among_tasks_without_loss(
    topics: Topics, numbers: str, option: dict[str, str], tasks: int
) -> None:
    frame = topics.read(numbers, **option)
    assert frame.rdd.getNumPartitions() == tasks
    assert offsets(frame) == {partition: list(range(COUNT)) for partition in range(2)}


def test_committed_starts_where_a_group_stands(topics: Topics, numbers: str, skylog_broker: BrokerProcess) -> None:
    from confluent_kafka import Consumer, TopicPartition

    group = name("group")
    consumer = Consumer({"bootstrap.servers": skylog_broker.bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(numbers, 1, 25)], asynchronous=False)
    consumer.close()
    frame = topics.read(numbers, startingOffsets="committed", groupId=group)
    assert offsets(frame) == {0: list(range(COUNT)), 1: list(range(25, COUNT))}


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_are_read(topics: Topics, skylog_topic: str, codec: str) -> None:
    producer = Producer({"bootstrap.servers": topics.bootstrap, "compression.type": codec, "linger.ms": 50})
    for number in range(5000):
        producer.produce(skylog_topic, b"value %d " % number * 5)
    producer.flush()
    frame = topics.read(skylog_topic)
    assert frame.count() == 5000
    assert frame.select(F.sum("offset")).first()[0] == sum(range(5000))  # type: ignore[index]  # there is a row


def test_more_than_one_fetch_is_read_in_order(topics: Topics, skylog_topic: str) -> None:
    producer = Producer({"bootstrap.servers": topics.bootstrap})
    for number in range(3000):
        producer.produce(skylog_topic, b"%06d" % number * 200)
    producer.flush()
    rows = (
        topics.read(skylog_topic, **{"kafka.max.partition.fetch.bytes": "100000"}).select("offset", "value").collect()
    )
    assert [row.offset for row in rows] == list(range(3000))
    assert all(row.value == b"%06d" % row.offset * 200 for row in rows)


def test_reading_through_the_library_gives_the_same_rows(topics: Topics, numbers: str) -> None:
    given = {"kafka.bootstrap.servers": topics.bootstrap, "subscribe": numbers, "kafka.max.poll.records": "500"}
    options = read_options(given, is_stream=False)
    part = ReadRange(numbers, 1, 3, 25)
    schema = arrow_schema(record_schema(with_headers=True))
    found = [row for batch in read_messages(options, part, schema) for row in batch.to_pylist()]
    assert [row["offset"] for row in found] == list(range(3, 25))
    assert found == [row for batch in read_batches(fetch_settings(options), part, schema) for row in batch.to_pylist()]


def test_read_committed_reads_what_no_transaction_wrote(topics: Topics, numbers: str) -> None:
    committed = topics.read(numbers, **{"kafka.isolation.level": "read_committed"})
    assert sorted(committed.collect(), key=str) == sorted(topics.read(numbers).collect(), key=str)


@pytest.fixture
def shortened(topics: Topics, skylog_topic: str, skylog_admin: Admin) -> str:
    """A topic of which retention has removed the offsets 0 to 9."""
    producer = Producer({"bootstrap.servers": topics.bootstrap})
    for number in range(20):
        producer.produce(skylog_topic, b"%d" % number)
    producer.flush()
    skylog_admin.delete_records(skylog_topic, {0: 10})
    return skylog_topic


def test_lost_offsets_are_an_error_that_says_what_to_do(topics: Topics, shortened: str) -> None:
    with pytest.raises(
        Exception,
        match=rf"{shortened}-0: offset 4 was requested, but the log starts at offset 10.*failOnDataLoss=false",
    ):
        topics.read(shortened, startingOffsets=per_partition(shortened, 4)).count()


def test_lost_offsets_are_passed_over_if_that_is_asked_for(topics: Topics, shortened: str) -> None:
    frame = topics.read(shortened, startingOffsets=per_partition(shortened, 4), failOnDataLoss="false")
    assert offsets(frame) == {0: list(range(10, 20))}


def test_offsets_that_were_never_written_are_an_error(topics: Topics, shortened: str) -> None:
    with pytest.raises(Exception, match=rf"{shortened}-0: offset 99 was requested, but the log ends at offset 20"):
        topics.read(shortened, endingOffsets=per_partition(shortened, 100)).count()


@pytest.mark.parametrize(
    ("condition", "tasks", "count"),
    [
        ("partition = 1", 1, 30),
        ("partition IN (0, 5)", 1, 30),
        ("offset >= 10 AND offset < 12", 2, 4),
        ("offset = 5 AND partition < 1", 1, 1),
        ("timestamp >= timestamp_millis(1700000027500)", 2, 4),
        ("offset > 1000", 0, 0),
        ("timestamp > timestamp_millis(1800000000000)", 0, 0),
        ("timestamp < timestamp_millis(1700000002000)", 2, 4),
        ("offset < 3 OR partition = 1", 2, 33),
    ],
)
def test_filters_narrow_what_is_read(topics: Topics, numbers: str, condition: str, tasks: int, count: int) -> None:
    frame = topics.read(numbers, pushDownFilters="true").where(condition)
    rows = frame.collect()
    assert len(rows) == count
    assert sorted(rows, key=str) == sorted(topics.read(numbers).where(condition).collect(), key=str)
    assert frame.rdd.getNumPartitions() == max(tasks, 1)


def test_spark_keeps_narrowed_ranges_for_all_queries_on_a_frame(topics: Topics, numbers: str) -> None:
    """Why pushDownFilters is off by default. If this fails, Spark has changed, and it can be on."""
    frame = topics.read(numbers, pushDownFilters="true")
    assert frame.where("partition = 0").count() == COUNT
    assert frame.count() == COUNT  # of 2 * COUNT
    assert (
        frame.where("partition = 0").union(frame.where("partition = 1")).count() == COUNT
    )  # the same rows, read twice


def test_filters_leave_other_queries_on_a_frame_alone(topics: Topics, numbers: str) -> None:
    frame = topics.read(numbers)
    assert frame.where("partition = 0").union(frame.where("partition = 1")).count() == 2 * COUNT
    assert frame.count() == 2 * COUNT


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "set one of the options assign, subscribe, subscribePattern"),
        ({"subscribe": "a", "assign": "{}"}, "set only one of the options assign, subscribe, subscribePattern"),
        ({"subscribe": " "}, "option 'subscribe' is empty"),
        (
            {"subscribe": "a", "startingOfsets": "earliest"},
            "unknown option 'startingofsets'; did you mean 'startingOffsets'?",
        ),
        ({"subscribe": "a", "minPartitions": "0"}, "minPartitions=0: must be at least 1"),
        ({"subscribe": "a", "includeHeaders": "perhaps"}, "includeHeaders=perhaps: expected true or false"),
        ({"subscribe": "a", "kafka.auto.offset.reset": "earliest"}, "'kafka.auto.offset.reset' is not supported"),
        ({"subscribe": "a", "maxTriggerDelay": "soon"}, "maxTriggerDelay=soon: expected a duration"),
    ],
)
def test_wrong_options_are_refused_when_the_frame_is_made(
    topics: Topics, options: dict[str, str], message: str
) -> None:
    with pytest.raises(Exception, match="(?s)" + message.replace("?", r"\?")):
        topics.read("", **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets cannot be latest for a batch"),
        ({"endingOffsets": "earliest"}, "not earliest or committed"),
        ({"startingOffsets": "yesterday"}, "startingOffsets=yesterday: expected earliest, latest, committed or JSON"),
        ({"startingOffsets": '{"%s": {"0": 1}}'}, "startingOffsets has no entry for %s-1"),
        ({"startingOffsets": "committed"}, "startingOffsets=committed requires the option groupId"),
        ({"startingTimestamp": "1800000000000"}, "has no record at or after 1800000000000 ms"),
    ],
)
def test_wrong_positions_are_refused_when_the_query_is_planned(
    topics: Topics, numbers: str, options: dict[str, str], message: str
) -> None:
    given = {key: value.replace("%s", numbers) for key, value in options.items()}
    with pytest.raises(Exception, match=message.replace("%s", numbers)):
        topics.read(numbers, **given).count()


def test_a_missing_topic_is_named(topics: Topics) -> None:
    with pytest.raises(Exception, match="there is no topic 'nowhere'"):
        topics.read("nowhere").count()


def test_a_broker_that_is_not_there_is_named(topics: Topics) -> None:
    frame = topics.read("any", **{"kafka.bootstrap.servers": "127.0.0.1:1"})
    with pytest.raises(Exception, match=r"127\.0\.0\.1:1"):
        frame.count()
