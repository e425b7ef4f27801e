"""Copying a topic under another key: nothing is lost or duplicated, and each key keeps its order."""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from pathlib import Path
from threading import Event

import pytest
from pyspark.sql import SparkSession

from skylog import Admin, Message, Producer
from skylog.pipeline.cluster import Cluster
from skylog.pipeline.job_definition import Job
from skylog.pipeline.jobs.rekey import rekey, rekey_job
from skylog.pipeline.runnable import JobRun
from skylog.pipeline.runner import JobError, Progress
from skylog.pipeline.schedule import CONTINUOUS, ONCE, Schedule
from skylog.pipeline.topic import Topic
from skylog.testing import BrokerProcess, consume, produce
from tests.proof import in_proof
from tests.spark.conftest import Commands, Topics

PAGES = ["/", "/a", "/b", "/c", "/d"]


@pytest.fixture
def source(skylog_broker: BrokerProcess) -> str:
    name = f"rekey-{uuid.uuid4().hex[:8]}"
    Admin(skylog_broker.bootstrap).create_topic(name, partitions=2)
    return name


class Copy:
    """The job, with its state in a directory."""

    def __init__(self, bootstrap: str, job: Job, state: Path) -> None:
        self.bootstrap, self.job, self.state, self.target = bootstrap, job, state, job.into.target

    def run(self, spark: SparkSession, schedule: Schedule = ONCE, stop: Event | None = None) -> list[Progress]:
        told: list[Progress] = []
        stop = stop or Event()

        def report(progress: Progress) -> None:
            told.append(progress)
            if schedule is CONTINUOUS:
                stop.set()

        run = JobRun(schedule, stop, report, None, 70, state=self.state)
        self.job.run_with(spark, Cluster(self.bootstrap), run)
        return told


@pytest.fixture
def copy(skylog_broker: BrokerProcess, source: str, tmp_path: Path) -> Copy:
    job = rekey_job([source], Topic(f"{source}-by-page", 3), "attributes.page")
    return Copy(skylog_broker.bootstrap, job, tmp_path / "state")


def produce_views(bootstrap: str, topic: str, start: int, count: int) -> None:
    """Numbered views, by users whose ids are the keys."""
    with Producer(bootstrap) as producer, producer.batch():
        for number in range(start, start + count):
            view = {"event": "page.view", "user": {"id": number % 7}, "attributes": {"page": PAGES[number % 5]}}
            producer.send(
                topic,
                {**view, "number": number},
                str(number % 7),
                headers=[("number", str(number).encode()), ("empty", None)],
                timestamp_ms=1_700_000_000_000 + number,
            )


def number_of(message: Message) -> int:
    found: int = message.json()["number"]
    return found


def test_records_come_once_each_with_their_values_headers_and_times(
    spark: SparkSession, skylog_broker: BrokerProcess, source: str, copy: Copy
) -> None:
    produce_views(skylog_broker.bootstrap, source, 0, 200)
    assert sum(progress.records for progress in copy.run(spark)) == 200
    produce_views(skylog_broker.bootstrap, source, 200, 50)
    assert [progress.records for progress in copy.run(spark)] == [50]
    before = {number_of(message): message for message in consume(skylog_broker.bootstrap, source)}
    after = consume(skylog_broker.bootstrap, copy.target)
    assert sorted(map(number_of, after)) == list(range(250))
    for message in after:
        original = before[number_of(message)]
        assert message.key == PAGES[number_of(message) % 5].encode()
        assert (message.value, message.headers, message.timestamp_ms) == (
            original.value,
            original.headers,
            original.timestamp_ms,
        )


@in_proof
def test_a_key_lies_in_one_partition_and_keeps_the_order_of_each_partition_of_the_source(
    spark: SparkSession, skylog_broker: BrokerProcess, source: str, copy: Copy
) -> None:
    produce_views(skylog_broker.bootstrap, source, 0, 300)
    assert len(copy.run(spark)) > 3  # the order holds from one micro-batch to the next
    came_from = {number_of(message): message.partition for message in consume(skylog_broker.bootstrap, source)}
    assert set(came_from.values()) == {0, 1}
    partitions = defaultdict(set)
    orders = defaultdict(list)
    for message in consume(skylog_broker.bootstrap, copy.target):
        partitions[message.key].add(message.partition)
        orders[message.key, came_from[number_of(message)]].append(number_of(message))
    assert {len(found) for found in partitions.values()} == {1}
    assert len(set.union(*partitions.values())) > 1
    assert len(orders) == 2 * len(PAGES)
    assert all(numbers == sorted(numbers) for numbers in orders.values())


@in_proof
def test_a_job_that_is_stopped_goes_on_where_it_was(
    spark: SparkSession, skylog_broker: BrokerProcess, source: str, copy: Copy
) -> None:
    produce_views(skylog_broker.bootstrap, source, 0, 400)
    copy.run(spark, CONTINUOUS)
    assert len(consume(skylog_broker.bootstrap, copy.target)) < 400
    copy.run(spark)
    assert sorted(map(number_of, consume(skylog_broker.bootstrap, copy.target))) == list(range(400))


def test_what_has_no_such_key_goes_on_without_one(
    spark: SparkSession, skylog_broker: BrokerProcess, source: str, copy: Copy
) -> None:
    produce(skylog_broker.bootstrap, source, [b"no JSON", {"attributes": {}}, None], key="old")
    copy.run(spark)
    found = {(message.key, message.value) for message in consume(skylog_broker.bootstrap, copy.target)}
    assert found == {(None, b"no JSON"), (None, b'{"attributes":{}}'), (None, None)}


def test_keys_can_be_made_of_any_field_and_of_the_record(topics: Topics, source: str) -> None:
    produce(topics.bootstrap, source, [{"user": {"id": 7}, "attributes": {"page": "/"}}], key=b"\xff\x00")

    def key(expression: str) -> object:
        row = rekey(topics.read(source, includeHeaders="true"), expression).first()
        assert row is not None
        return row["key"]

    assert key("user.id") == "7"
    assert key("CAST(user.id AS INT) + 1") == "8"
    assert key("concat_ws('|', user.id, attributes.page)") == "7|/"
    assert key("record.topic") == source
    assert key("record.key") == b"\xff\x00"


def test_an_expression_that_names_no_field_is_refused(spark: SparkSession, copy: Copy) -> None:
    wrong = Copy(copy.bootstrap, rekey_job(copy.job.reads, Topic(copy.target), "attribute.page"), copy.state)
    with pytest.raises(JobError, match=r"rekey: .*`attribute`"):
        wrong.run(spark)


def test_the_command_makes_the_topic_and_ends_when_all_is_done(
    commands: Commands, skylog_broker: BrokerProcess, source: str, tmp_path: Path
) -> None:
    produce_views(skylog_broker.bootstrap, source, 0, 20)
    target = f"{source}-by-user"
    command = [
        *("pipeline", "run", "rekey", source, "--into", target, "--key", "user.id", "--partitions", "3"),
        *("--once", "--json", "--bootstrap", skylog_broker.bootstrap),
    ]
    said = commands.run(*command, directory=tmp_path)
    assert [json.loads(line)["records"] for line in said.splitlines()] == [20]
    assert len(Admin(skylog_broker.bootstrap).describe_topic(target).partitions) == 3
    found = consume(skylog_broker.bootstrap, target)
    assert {(message.key, number_of(message)) for message in found} == {(b"%d" % (n % 7), n) for n in range(20)}
    assert (tmp_path / "skylog-state" / f"rekey-{source}-to-{target}").is_dir()
