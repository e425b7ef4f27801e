"""Increments: each record is in exactly one, whatever offsets the job has stored."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from unittest.mock import MagicMock

import pytest
from py4j.clientserver import ClientServerConnection, JavaParameters, PythonParameters
from pyspark.sql import DataFrame, SparkSession

from skylog import Admin
from skylog.client import BrokerUnreachableError, ConsumerGroups
from skylog.model import TopicPartition
from skylog.pipeline.increments import Increment, Increments
from skylog.pipeline.one_task import FEW_OFFSETS
from skylog.pipeline.runner import JobError, Progress, plain_errors, run_increments, with_restarts
from skylog.pipeline.schedule import CONTINUOUS, ONCE
from skylog.spark.errors import StreamAheadError
from skylog.testing import BrokerProcess, produce, wait_until


@pytest.fixture
def topic(skylog_broker: BrokerProcess) -> str:
    name = f"increments-{uuid.uuid4().hex[:8]}"
    Admin(skylog_broker.bootstrap).create_topic(name, partitions=2)
    return name


def values(spark: SparkSession, increments: Increments, increment: Increment) -> list[str]:
    rows = increments.frame(spark, increment).selectExpr("CAST(value AS STRING) AS value").collect()
    return sorted(row.value for row in rows)


def test_an_increment_follows_the_one_before(spark: SparkSession, skylog_broker: BrokerProcess, topic: str) -> None:
    increments = Increments(skylog_broker.bootstrap, [topic], group=f"{topic}-group")
    assert increments.next(None) is None
    produce(skylog_broker.bootstrap, topic, ["a", "b"], partition=0)
    first = increments.next(None)
    assert first is not None
    assert first.offsets == 2
    assert values(spark, increments, first) == ["a", "b"]
    produce(skylog_broker.bootstrap, topic, ["c"], partition=1)
    second = increments.next(first.end)
    assert second is not None
    assert second.start == {TopicPartition(topic, 1): 0}
    assert second.end == {TopicPartition(topic, 0): 2, TopicPartition(topic, 1): 1}
    assert values(spark, increments, second) == ["c"]
    assert increments.next(second.end) is None
    assert increments.lag(first.end) == 1


def test_an_increment_without_records_goes_back_to_the_end_of_a_log_that_was_made_anew(
    spark: SparkSession, skylog_broker: BrokerProcess, topic: str
) -> None:
    produce(skylog_broker.bootstrap, topic, ["a"], partition=0)
    done = {TopicPartition(topic, 0): 3, TopicPartition(topic, 1): 0}
    with pytest.raises(StreamAheadError, match=f"{topic}-0: offset 2 was read before, but the log ends at offset 1"):
        Increments(skylog_broker.bootstrap, [topic]).next(done)
    increments = Increments(skylog_broker.bootstrap, [topic], options={"failOnDataLoss": "false"})
    cut = increments.next(done)
    assert cut is not None
    assert (cut.start, cut.end, cut.offsets) == ({}, {TopicPartition(topic, 0): 1, TopicPartition(topic, 1): 0}, 0)
    assert values(spark, increments, cut) == []
    assert increments.next(cut.end) is None


def test_limits_of_the_source_hold_for_increments(
    spark: SparkSession, skylog_broker: BrokerProcess, topic: str
) -> None:
    produce(skylog_broker.bootstrap, topic, ["x"] * 10, partition=0)
    increments = Increments(skylog_broker.bootstrap, [topic], options={"maxOffsetsPerTrigger": "4"})
    increments.until_now(None)
    sizes, done = [], None
    while (increment := increments.next(done)) is not None:
        sizes.append(increment.offsets)
        done = increment.end
    assert sizes == [4, 4, 2]


def test_partitions_that_come_later_are_read_from_their_beginning(
    spark: SparkSession, skylog_broker: BrokerProcess, topic: str
) -> None:
    increments = Increments(skylog_broker.bootstrap, [topic])
    produce(skylog_broker.bootstrap, topic, ["a"], partition=0)
    first = increments.next(None)
    assert first is not None
    Admin(skylog_broker.bootstrap).add_partitions(topic, 3)
    produce(skylog_broker.bootstrap, topic, ["late"], partition=2)
    second = increments.next(first.end)
    assert second is not None
    assert values(spark, increments, second) == ["late"]


def test_a_topic_that_is_added_is_read_from_where_its_log_begins(
    spark: SparkSession, skylog_broker: BrokerProcess, topic: str
) -> None:
    added = f"{topic}-added"
    admin = Admin(skylog_broker.bootstrap)
    admin.create_topic(added, partitions=1)
    produce(skylog_broker.bootstrap, topic, ["a"], partition=0)
    produce(skylog_broker.bootstrap, added, ["gone", "b"])
    admin.delete_records(added, {0: 1})
    first = Increments(skylog_broker.bootstrap, [topic]).next(None)
    assert first is not None
    both = Increments(skylog_broker.bootstrap, [topic, added])
    second = both.next(first.end)
    assert second is not None
    assert second.start == {TopicPartition(added, 0): 1}
    assert values(spark, both, second) == ["b"]


def test_one_task_reads_a_small_increment_unless_told_otherwise(
    spark: SparkSession, skylog_broker: BrokerProcess, topic: str
) -> None:
    for partition in (0, 1):
        produce(skylog_broker.bootstrap, topic, [f"{partition}"] * 5, partition=partition)

    def tasks(**options: str) -> int:
        increments = Increments(skylog_broker.bootstrap, [topic], options=options)
        increment = increments.next(None)
        assert increment is not None
        assert values(spark, increments, increment) == ["0"] * 5 + ["1"] * 5
        return int(increments.frame(spark, increment).rdd.getNumPartitions())

    assert [tasks(), tasks(minPartitions="2"), tasks(maxRecordsPerPartition="2")] == [1, 2, 6]
    produce(skylog_broker.bootstrap, topic, ["more"] * FEW_OFFSETS, partition=0)
    increments = Increments(skylog_broker.bootstrap, [topic])
    increment = increments.next(None)
    assert increment is not None
    assert increments.frame(spark, increment).rdd.getNumPartitions() == 2


def test_where_to_start_is_said_once(spark: SparkSession, skylog_broker: BrokerProcess, topic: str) -> None:
    produce(skylog_broker.bootstrap, topic, ["old"], partition=0)
    increments = Increments(skylog_broker.bootstrap, [topic], options={"startingOffsets": "latest"})
    increments.until_now(None)
    produce(skylog_broker.bootstrap, topic, ["a"], partition=0)
    assert increments.next(None) is None
    increments.until_now(None)
    first = increments.next(None)
    assert first is not None
    assert values(spark, increments, first) == ["a"]
    timed = Increments(skylog_broker.bootstrap, [topic], options={"startingTimestamp": "0"})
    second = timed.next({**first.start, TopicPartition(topic, 1): 0})
    assert second is not None
    assert values(spark, timed, second) == ["a"]


class Collect:
    """A job whose results are a list; it fails while `broken` is set."""

    name = "collect"

    def __init__(self) -> None:
        self.results: list[str] = []
        self.end: Mapping[TopicPartition, int] | None = None
        self.broken = False

    def done(self) -> Mapping[TopicPartition, int] | None:
        return self.end

    def apply(self, records: DataFrame, increment: Increment) -> None:
        check = "assert_true(offset < 0, 'the job is broken')" if self.broken else "NULL"
        rows = records.selectExpr("CAST(value AS STRING) AS value", f"{check} AS checked").collect()
        self.results += [row.value for row in rows]
        self.end = increment.end


def test_a_job_works_in_portions_and_goes_on_where_its_results_end(
    spark: SparkSession, skylog_broker: BrokerProcess, topic: str
) -> None:
    produce(skylog_broker.bootstrap, topic, [str(number) for number in range(10)], partition=0)
    job, told = Collect(), list[Progress]()

    def run() -> None:
        increments = Increments(skylog_broker.bootstrap, [topic], max_offsets=4)
        run_increments(job, increments, spark, ONCE, Event(), told.append)

    run()
    assert [(progress.batch, progress.records, progress.lag) for progress in told] == [(0, 4, 6), (1, 4, 2), (2, 2, 0)]
    produce(skylog_broker.bootstrap, topic, ["more"], partition=1)
    job.broken = True
    with pytest.raises(JobError, match="the job is broken"):
        run()
    job.broken = False
    run()
    assert sorted(job.results) == sorted([*(str(number) for number in range(10)), "more"])


def test_a_job_that_runs_continuously_ends_when_it_is_told(
    spark: SparkSession, skylog_broker: BrokerProcess, topic: str
) -> None:
    produce(skylog_broker.bootstrap, topic, ["a"])
    stop = Event()
    job = Collect()
    increments = Increments(skylog_broker.bootstrap, [topic])
    run_increments(job, increments, spark, CONTINUOUS, stop, lambda _: stop.set())
    assert job.results == ["a"]


def test_a_job_that_runs_continuously_waits_for_a_cluster_that_is_away(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    stop, job = Event(), Collect()
    with BrokerProcess() as broker:
        Admin(broker.bootstrap).create_topic("away", partitions=1)
        produce(broker.bootstrap, "away", ["before"])
        increments = Increments(broker.bootstrap, ["away"], group="away-group")
        arguments = (job, increments, spark, CONTINUOUS, stop, lambda _: None)
        with ThreadPoolExecutor(1) as pool:
            run = pool.submit(run_increments, *arguments)
            try:
                wait_until(lambda: job.results == ["before"] or run.done(), "the first record", 60)
                broker.kill()
                wait_until(lambda: "waiting for the cluster" in caplog.text or run.done(), "the job to notice", 60)
                broker.start()
                produce(broker.bootstrap, "away", ["after"])
                wait_until(lambda: len(job.results) == 2 or run.done(), "the second record", 60)
            finally:
                stop.set()
            run.result(60)
    assert job.results == ["before", "after"]


def test_a_job_that_runs_once_says_that_the_cluster_is_away(spark: SparkSession) -> None:
    with BrokerProcess() as broker:
        Admin(broker.bootstrap).create_topic("away", partitions=1)
        increments = Increments(broker.bootstrap, ["away"])
        broker.kill()
        with pytest.raises(BrokerUnreachableError, match="no broker"):
            run_increments(Collect(), increments, spark, ONCE, Event(), lambda _: None)


def test_a_job_that_is_stopped_commits_its_progress_to_its_group(
    spark: SparkSession, skylog_broker: BrokerProcess, topic: str
) -> None:
    produce(skylog_broker.bootstrap, topic, ["a", "b"], partition=0)
    stop = Event()
    increments = Increments(skylog_broker.bootstrap, [topic], group=f"{topic}-group")
    run_increments(Collect(), increments, spark, CONTINUOUS, stop, lambda _: stop.set())
    [group] = ConsumerGroups(skylog_broker.bootstrap).describe_groups([f"{topic}-group"])
    assert (group.lag, sum(each.committed_offset or 0 for each in group.partitions)) == (0, 2)


def test_a_job_starts_again_if_spark_had_no_python_process_in_time(caplog: pytest.LogCaptureFixture) -> None:
    starved = JobError("copy: Python worker failed to connect back.")
    errors = [starved] * 3

    def run() -> None:
        if errors:
            raise errors.pop()

    with_restarts("copy", run, Event())
    assert caplog.text.count("starting again") == 3
    for others in ([starved] * 10, [JobError("copy: no such column")]):
        errors = list(others)
        with pytest.raises(JobError):
            with_restarts("copy", run, Event())
        assert errors == []
    errors = [starved]
    stopped = Event()
    stopped.set()
    with_restarts("copy", run, stopped)
    assert errors == []


def test_the_end_of_sparks_process_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    connection = ClientServerConnection(JavaParameters(port=port), PythonParameters(), MagicMock(), MagicMock())
    with (
        pytest.raises(JobError, match="copy: Spark's Java process has ended; start the job again"),
        plain_errors("copy"),
    ):
        connection.connect_to_java_server()
    with pytest.raises(ConnectionError), plain_errors("copy"):
        raise ConnectionResetError("of a function")
