"""The statuses that jobs publish to the topic."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from threading import Event, Thread

import pytest
from pyspark.sql import SparkSession

from skylog.client import Admin, Connection
from skylog.job_publisher import JobPublisher
from skylog.job_status import JOBS_TOPIC, JobState, JobStatus
from skylog.pipeline.jobs.land import LandSettings, land
from skylog.pipeline.runner import JobError, Progress
from skylog.pipeline.status_publisher import ReportedSchedule, StatusPublisher
from skylog.testing import BrokerProcess, consume, produce, wait_until


def statuses(broker: BrokerProcess, name: str) -> list[JobStatus]:
    found = [JobStatus.decode(message.value or b"") for message in consume(broker.bootstrap, JOBS_TOPIC)]
    return [status for status in found if status.name == name]


def publisher(broker: BrokerProcess, name: str) -> StatusPublisher:
    return StatusPublisher(broker.bootstrap, name, "land", ["events"])


def has_status(broker: BrokerProcess, name: str, **fields: object) -> bool:
    if not any(topic.name == JOBS_TOPIC for topic in Admin(broker.bootstrap).list_topics()):
        return False
    return any(all(getattr(status, key) == value for key, value in fields.items()) for status in statuses(broker, name))


def test_a_job_tells_when_it_starts_what_it_did_and_that_it_ended(skylog_broker: BrokerProcess) -> None:
    with publisher(skylog_broker, "one run") as status:
        wait_until(lambda: has_status(skylog_broker, "one run", batch=None), "the first status")
        status.report(Progress("land", 0, 100, 1.5, 20))
        status.report(Progress("land", 1, 50, 0.25, -1))
        wait_until(lambda: has_status(skylog_broker, "one run", batch=1), "the status after a batch")
    first, *_, last = statuses(skylog_broker, "one run")
    assert (first.state, first.pid, first.topics) == (JobState.RUNNING, os.getpid(), ("events",))
    assert (last.state, last.batch, last.records, last.seconds, last.lag) == (JobState.STOPPED, 1, 50, 0.25, None)
    assert (last.records_total, last.last_error) == (150, None)
    assert last.reported_at_ms >= (last.batch_at_ms or 0) >= last.started_at_ms


def test_the_topic_keeps_the_last_status_of_each_job(skylog_broker: BrokerProcess) -> None:
    with publisher(skylog_broker, "for the topic"):
        pass
    admin = Admin(skylog_broker.bootstrap)
    configs = {config.name: config.value for config in admin.describe_configs(JOBS_TOPIC)}
    assert (len(admin.describe_topic(JOBS_TOPIC).partitions), configs["cleanup.policy"]) == (1, "compact")
    messages = consume(skylog_broker.bootstrap, JOBS_TOPIC)
    assert b"for the topic" in {message.key for message in messages}


def test_a_job_that_tries_again_does_not_count_as_waiting(skylog_broker: BrokerProcess) -> None:
    with JobPublisher(Connection(skylog_broker.bootstrap), "fails", "capture", ["events"]) as status:
        status.waiting(True)
        wait_until(lambda: has_status(skylog_broker, "fails", state=JobState.WAITING), "the job to wait")
        status.update(state=JobState.RETRYING, last_error="refused")
        wait_until(lambda: has_status(skylog_broker, "fails", state=JobState.RETRYING), "the failure")
        status.update(state=JobState.RUNNING, last_error=None)
        wait_until(lambda: statuses(skylog_broker, "fails")[-1].state is JobState.WAITING, "the next attempt")
    assert [each.last_error for each in statuses(skylog_broker, "fails")][-1] is None


def test_an_error_that_ends_a_job_is_told_and_raised(skylog_broker: BrokerProcess) -> None:
    with pytest.raises(JobError, match="no disk"), publisher(skylog_broker, "fails"):
        raise JobError("land: no disk")
    last = statuses(skylog_broker, "fails")[-1]
    assert (last.state, last.last_error) == (JobState.FAILED, "land: no disk")


def test_a_job_that_is_told_to_end_has_stopped_and_not_failed(skylog_broker: BrokerProcess) -> None:
    with pytest.raises(KeyboardInterrupt), publisher(skylog_broker, "interrupted"):
        raise KeyboardInterrupt
    assert statuses(skylog_broker, "interrupted")[-1].state is JobState.STOPPED


def test_a_name_that_cannot_be_sent_is_warned_of_once_and_the_thread_lives_on(
    skylog_broker: BrokerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    def warnings() -> list[str]:
        return [record.getMessage() for record in caplog.records if "cannot publish" in record.getMessage()]

    with publisher(skylog_broker, "land: events -> /data/\udcff") as status:
        wait_until(lambda: bool(warnings()), "the warning")
        status.report(Progress("land", 0, 100, 1.5, 20))
        wait_until(lambda: not status._is_new, "the next attempt")
        assert status._thread.is_alive()
    assert len(warnings()) == 1


def test_a_job_waits_between_its_rounds(skylog_broker: BrokerProcess) -> None:
    stop = Event()
    with publisher(skylog_broker, "waits") as status:

        def run() -> None:
            for _ in ReportedSchedule(3600, status.waiting).rounds(stop):
                pass

        thread = Thread(target=run)
        thread.start()
        wait_until(lambda: has_status(skylog_broker, "waits", state=JobState.WAITING), "the wait")
        stop.set()
        thread.join()


def test_the_first_round_is_no_wait(skylog_broker: BrokerProcess) -> None:
    with publisher(skylog_broker, "works") as status:
        for _ in ReportedSchedule(None, status.waiting).rounds(Event()):
            wait_until(lambda: has_status(skylog_broker, "works"), "the first status")
    assert [each.state for each in statuses(skylog_broker, "works")] == [JobState.RUNNING, JobState.STOPPED]


def test_a_job_is_neither_delayed_nor_failed_by_a_cluster_that_is_away(caplog: pytest.LogCaptureFixture) -> None:
    began = time.monotonic()
    with (
        caplog.at_level(logging.WARNING, "skylog.job_publisher"),
        StatusPublisher("127.0.0.1:1", "alone", "land", ["events"]) as status,
    ):
        for batch in range(1000):
            status.report(Progress("land", batch, 1, 0.1, 0))
        assert time.monotonic() - began < 1
        wait_until(lambda: caplog.records, "a warning")
    assert time.monotonic() - began < 15
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "cannot publish the status of 'alone'"
    ]


def test_a_real_job_publishes_its_status(spark: SparkSession, skylog_broker: BrokerProcess, tmp_path: Path) -> None:
    produce(skylog_broker.bootstrap, "status-events", [b'{"name": "page.view"}'] * 20)
    with StatusPublisher(skylog_broker.bootstrap, "a real job", "land", ["status-events"]) as status:
        schedule = ReportedSchedule(None, status.waiting)
        settings = LandSettings(tmp_path, is_audited=False)
        land(spark, skylog_broker.bootstrap, ["status-events"], settings, schedule=schedule, report=status.report)
    last = statuses(skylog_broker, "a real job")[-1]
    assert (last.state, last.kind, last.topics) == (JobState.STOPPED, "land", ("status-events",))
    assert (last.batch, last.records, last.records_total, last.lag) == (0, 20, 20, 0)
