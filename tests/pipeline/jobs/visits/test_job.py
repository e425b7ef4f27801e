"""The job: the table follows the topic, continues where it ended, and can be rebuilt under another name."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread

import pytest
from pyspark.sql import SparkSession

from skylog import Admin, Producer
from skylog.events import EventLog
from skylog.pipeline import OffsetsMovedError
from skylog.pipeline.function_job import FunctionJob
from skylog.pipeline.increments import Increments
from skylog.pipeline.jobs.visits import visits_job
from skylog.pipeline.jobs.visits.job import VisitTable
from skylog.pipeline.runner import Progress, run_increments
from skylog.pipeline.schedule import CONTINUOUS, ONCE, Schedule
from skylog.testing import BrokerProcess, ManualClock, produce
from tests.pipeline.databases.servers import contents, wait_for

MAY_1_MS = 1_714_564_800_000  # noon
DAY_MS = 86_400_000
PATIENCE_S = 200


class Site:
    """A website whose time is ours, its topic, and the job that counts its visits."""

    def __init__(self, spark: SparkSession, bootstrap: str) -> None:
        self.spark, self.bootstrap = spark, bootstrap
        self.topic = f"page_views-{uuid.uuid4().hex[:8]}"
        Admin(bootstrap).create_topic(self.topic, 2, configs={"retention.ms": "-1"})  # its time is long ago
        self.clock = ManualClock(MAY_1_MS)
        self._producer = Producer(bootstrap)
        self.events = EventLog(self._producer, self.topic, "site", clock=self.clock)

    def visit(self, *organisations: str) -> None:
        with self.events.request():
            for number, organisation in enumerate(organisations):
                self.events.fire("page.view", number, org_id=organisation, page="/")
                self.events.fire("page.share", number, org_id=organisation)
        assert self.events.flush() == 0

    def count(
        self,
        job: FunctionJob,
        schedule: Schedule = ONCE,
        stop: Event | None = None,
        told: list[Progress] | None = None,
        max_offsets: int | None = None,
    ) -> None:
        increments = Increments(self.bootstrap, [self.topic], max_offsets=max_offsets)
        report = (lambda _: None) if told is None else told.append
        run_increments(job, increments, self.spark, schedule, stop or Event(), report)

    @contextmanager
    def counting(self, job: FunctionJob) -> Iterator[None]:
        """The job runs, without a pause, in the block."""
        stop, failures = Event(), list[BaseException]()

        def run() -> None:
            try:
                self.count(job, CONTINUOUS, stop)
            except BaseException as error:
                failures.append(error)

        thread = Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
            assert failures == []  # takes precedence over a timeout in the block

    def close(self) -> None:
        self.events.close()
        self._producer.close()


@pytest.fixture
def site(spark: SparkSession, skylog_broker: BrokerProcess) -> Iterator[Site]:
    found = Site(spark, skylog_broker.bootstrap)
    yield found
    found.close()


def visits(database: str, table: str, topics: Sequence[str]) -> FunctionJob:
    """The steps of the job, for use in `with`."""
    return visits_job(topics, database, table).steps()


def test_events_go_in_and_counts_by_organisation_and_day_are_seen_to_change(
    site: Site, database: str, table: str
) -> None:
    """The documents' demonstration."""

    def shows(expected: dict[tuple[str, str], int]) -> None:
        wait_for(lambda: contents(database, table) == expected, f"{expected} in {database}", PATIENCE_S)

    with visits(database, table, [site.topic]) as job, site.counting(job):
        site.visit("acme", "apex", "acme")
        shows({("acme", "2024-05-01"): 2, ("apex", "2024-05-01"): 1})
        site.visit("acme")
        shows({("acme", "2024-05-01"): 3, ("apex", "2024-05-01"): 1})
        site.clock.advance_ms(DAY_MS)
        site.visit("acme", "zeta")
        shows(
            {("acme", "2024-05-01"): 3, ("apex", "2024-05-01"): 1, ("acme", "2024-05-02"): 1, ("zeta", "2024-05-02"): 1}
        )
        site.clock.set_ms(MAY_1_MS)  # late news from yesterday
        site.visit("zeta")
        shows(
            {
                ("acme", "2024-05-01"): 3,
                ("apex", "2024-05-01"): 1,
                ("zeta", "2024-05-01"): 1,
                ("acme", "2024-05-02"): 1,
                ("zeta", "2024-05-02"): 1,
            }
        )


def test_a_job_goes_on_where_the_table_ends_and_another_table_begins_anew(
    site: Site, database: str, table: str
) -> None:
    site.visit(*["acme"] * 5, "apex")
    stop = Event()
    told: list[Progress] = []
    with visits(database, table, [site.topic]) as job:  # stopped after its first batch
        increments = Increments(site.bootstrap, [site.topic], max_offsets=5)

        def on_progress(progress: Progress) -> None:
            told.append(progress)
            stop.set()

        run_increments(job, increments, site.spark, CONTINUOUS, stop, on_progress)
    assert 0 < sum(progress.records for progress in told) < 12
    with visits(database, table, [site.topic]) as job:
        site.count(job, told=told)
    assert sum(progress.records for progress in told) == 12
    expected = {("acme", "2024-05-01"): 5, ("apex", "2024-05-01"): 1}
    assert contents(database, table) == expected
    with visits(database, f"{table}_again", [site.topic]) as job:
        site.count(job)
    assert contents(database, f"{table}_again") == contents(database, table) == expected


def test_a_job_that_another_has_overtaken_ends_and_has_counted_nothing_twice(
    site: Site, database: str, table: str
) -> None:
    site.visit("acme", "apex")
    with visits(database, table, [site.topic]) as ahead, visits(database, table, [site.topic]) as behind:
        increments = Increments(site.bootstrap, [site.topic])
        found = increments.next(behind.done())
        assert found is not None
        site.count(ahead)
        with pytest.raises(OffsetsMovedError, match=f"{site.topic}-[01] is counted up to offset"):
            behind.apply(increments.frame(site.spark, found), found)
        site.visit("acme")
        site.count(behind)  # reads the offsets of the table, and continues
    assert contents(database, table) == {("acme", "2024-05-01"): 2, ("apex", "2024-05-01"): 1}


def test_events_that_cannot_be_counted_are_told_and_records_that_do_not_parse_are_kept(
    site: Site, database: str, table: str, caplog: pytest.LogCaptureFixture
) -> None:
    produce(site.bootstrap, site.topic, [b"no event", b"\xff", b'{"event": "page.view"}', b'{"a": 1}'])
    site.visit("acme")
    with visits(database, table, [site.topic]) as job, caplog.at_level(logging.WARNING, "skylog.pipeline.jobs.visits"):
        site.count(job)
    assert contents(database, table) == {("acme", "2024-05-01"): 1}
    assert "1 × no event (1 so far)" in caplog.text
    assert "1 × no organisation (1 so far)" in caplog.text
    kept = VisitTable(database, table).for_unparsed().open()
    assert sum(kept.offsets([site.topic]).values()) == 6  # with the offsets, so that no record is kept twice
    assert kept.has_rows()
    kept.close()


def test_a_topic_may_join_or_leave_and_is_counted_once(site: Site, database: str, table: str) -> None:
    other = Site(site.spark, site.bootstrap)
    site.visit("acme")
    other.visit("apex")
    for topics in ([site.topic], [site.topic, other.topic], [other.topic], [site.topic, other.topic]):
        with visits(database, table, topics) as job:
            increments = Increments(site.bootstrap, topics)
            run_increments(job, increments, site.spark, ONCE, Event(), lambda _: None)
    other.close()
    assert contents(database, table) == {("acme", "2024-05-01"): 1, ("apex", "2024-05-01"): 1}
