"""The job: its table and its topic have the ranking of all events, whatever their batches and order."""

from __future__ import annotations

import json
import random
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from skylog import Admin, Producer
from skylog.events import EventLog
from skylog.pipeline import Cluster
from skylog.pipeline import events as parsed
from skylog.pipeline.increments import Increments
from skylog.pipeline.jobs.rising import RankingPeriod, page_views, rising, rising_job
from skylog.pipeline.jobs.rising.job import OpenRanking
from skylog.pipeline.runnable import JobRun
from skylog.pipeline.table import Table, TableError
from skylog.testing import BrokerProcess, consume, produce
from tests.pipeline.delta_readers import query
from tests.proof import in_proof
from tests.spark.conftest import Commands, Topics

HOUR_MS = 3_600_000
NOW_MS = 1_700_000_000_000
PERIOD = RankingPeriod(4 * HOUR_MS, HOUR_MS, HOUR_MS // 6)


@pytest.fixture
def topic(skylog_broker: BrokerProcess) -> str:
    name = f"rising-{uuid.uuid4().hex[:8]}"
    Admin(skylog_broker.bootstrap).create_topic(name, partitions=2)
    return name


def produce_views(bootstrap: str, topic: str, views: list[tuple[str, int]]) -> None:
    """Views of pages at milliseconds before now."""
    with Producer(bootstrap) as producer, producer.batch():
        for page, ago_ms in views:
            event = {"event": "page.view", "attributes": {"page": page}}
            producer.send(topic, event, timestamp_ms=NOW_MS - ago_ms)


def run(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    table: Path,
    into: str | None = None,
    period: RankingPeriod = PERIOD,
    max_offsets: int | None = None,
) -> None:
    job = rising_job([topic], table, cluster=bootstrap, into=into, period=period)
    job.run_with(spark, Cluster(bootstrap), JobRun(max_offsets=max_offsets))


def table_rows(table: Path) -> list[dict[str, Any]]:
    """The ranking as DuckDB sees it."""
    names = ("rank", "page", "score", "views", "expected", "total", "end_ms")
    found = query(table, f"SELECT {', '.join(names[:-1])}, epoch_ms(window_end) FROM t ORDER BY rank")
    return [dict(zip(names, row, strict=True)) for row in found]


def topic_pages(bootstrap: str, topic: str) -> dict[str, int]:
    """The pages that the topic holds in the end, by rank."""
    pages: dict[str, int] = {}
    for message in consume(bootstrap, topic):
        assert message.key is not None
        pages.pop(message.key.decode(), None)
        if message.value is not None:
            pages[message.key.decode()] = json.loads(message.value)["rank"]
    return dict(sorted(pages.items(), key=lambda row: row[1]))


def test_portions_restarts_and_late_events_make_no_difference(topics: Topics, topic: str, tmp_path: Path) -> None:
    chance = random.Random(3)
    views = [(f"/{chance.randrange(8)}", chance.randrange(5 * HOUR_MS)) for _ in range(600)]
    views += [("/hot", chance.randrange(HOUR_MS // 2)) for _ in range(60)]
    for part in range(2):
        produce_views(topics.bootstrap, topic, views[part::2])
        run(topics.spark, topics.bootstrap, topic, tmp_path, f"{topic}-out", max_offsets=250)
    assert len(Table(tmp_path).history()) > 3
    columns = ["rank", "page", "score", "views", "expected", "total", "unix_millis(window_end) AS end_ms"]
    at_once = rising(page_views(parsed(topics.read(topic))), PERIOD).selectExpr(*columns).orderBy("rank").collect()
    assert table_rows(tmp_path) == [row.asDict() for row in at_once]
    assert table_rows(tmp_path)[0]["page"] == "/hot"
    ranks = {row["page"]: row["rank"] for row in table_rows(tmp_path)}
    assert topic_pages(topics.bootstrap, f"{topic}-out") == ranks


@in_proof
def test_a_page_that_rises_no_more_leaves_table_and_topic(topics: Topics, topic: str, tmp_path: Path) -> None:
    into = f"{topic}-out"
    produce_views(topics.bootstrap, topic, [("/early", 3 * HOUR_MS)] * 5)
    run(topics.spark, topics.bootstrap, topic, tmp_path, into)
    assert topic_pages(topics.bootstrap, into) == {"/early": 1}
    produce_views(topics.bootstrap, topic, [("/late", 0)] * 5)
    run(topics.spark, topics.bootstrap, topic, tmp_path, into)
    assert [row["page"] for row in table_rows(tmp_path)] == ["/late"]
    assert topic_pages(topics.bootstrap, into) == {"/late": 1}
    configs = {config.name: config.value for config in Admin(topics.bootstrap).describe_configs(into)}
    assert configs["cleanup.policy"] == "compact"


def test_what_a_crash_kept_from_the_topic_arrives_with_the_next_start(
    topics: Topics, topic: str, tmp_path: Path
) -> None:
    into = f"{topic}-out"
    produce_views(topics.bootstrap, topic, [("/early", 3 * HOUR_MS)] * 5)
    run(topics.spark, topics.bootstrap, topic, tmp_path, into)
    produce_views(topics.bootstrap, topic, [("/late", 0)] * 5)
    run(topics.spark, topics.bootstrap, topic, tmp_path)  # commits and does not publish, as if it died in between
    assert topic_pages(topics.bootstrap, into) == {"/early": 1}
    run(topics.spark, topics.bootstrap, topic, tmp_path, into)
    assert topic_pages(topics.bootstrap, into) == {"/late": 1}


@in_proof
def test_a_ranking_that_a_crash_kept_from_its_table_is_made_at_the_next_start(
    topics: Topics, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce_views(topics.bootstrap, topic, [("/early", 3 * HOUR_MS)] * 5)
    run(topics.spark, topics.bootstrap, topic, tmp_path)
    produce_views(topics.bootstrap, topic, [("/late", 0)] * 5)
    monkeypatch.setattr(OpenRanking, "_rank", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(topics.spark, topics.bootstrap, topic, tmp_path)
    monkeypatch.undo()
    assert [row["page"] for row in table_rows(tmp_path)] == ["/early"]
    run(topics.spark, topics.bootstrap, topic, tmp_path)  # no new records
    assert [row["page"] for row in table_rows(tmp_path)] == ["/late"]


@in_proof
def test_jobs_of_other_topics_count_into_one_table(topics: Topics, topic: str, tmp_path: Path) -> None:
    """Both have opened it before the other's counts are there."""
    names = (topic, f"{topic}-other")
    Admin(topics.bootstrap).create_topic(names[1], partitions=1)
    jobs = [rising_job([name], tmp_path, period=PERIOD).steps() for name in names]
    assert [job.done() for job in jobs] == [None, None]
    for name, job in zip(names, jobs, strict=True):
        produce_views(topics.bootstrap, name, [("/page", 0)] * 5)
        increments = Increments(topics.bootstrap, [name])
        increment = increments.next(None)
        assert increment is not None
        job.apply(increments.frame(topics.spark, increment), increment)
    assert [row["total"] for row in table_rows(tmp_path)] == [10]


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


@in_proof
def test_counts_that_have_left_the_period_are_dropped(topics: Topics, topic: str, tmp_path: Path) -> None:
    produce_views(topics.bootstrap, topic, [("/page", 10 * HOUR_MS)])
    run(topics.spark, topics.bootstrap, topic, tmp_path)
    late = [("/page", 5 * HOUR_MS)]  # by an hour too late
    produce_views(topics.bootstrap, topic, [("/page", HOUR_MS), *[("/page", 0)] * 20, *late])
    run(topics.spark, topics.bootstrap, topic, tmp_path)
    assert [row["total"] for row in table_rows(tmp_path)] == [21]
    produce_views(topics.bootstrap, topic, [("/page", 1)])
    run(topics.spark, topics.bootstrap, topic, tmp_path)
    assert query(f"{tmp_path}__counts", "SELECT sum(views) FROM t") == [(22,)]


def test_one_wrong_clock_does_not_push_all_others_out(topics: Topics, topic: str, tmp_path: Path) -> None:
    produce_views(topics.bootstrap, topic, [("/page", 0)])
    tomorrow_ms = time.time_ns() // 1_000_000 + 24 * HOUR_MS
    produce_views(topics.bootstrap, topic, [("/future", NOW_MS - tomorrow_ms)])
    produce(topics.bootstrap, topic, [b"no event", None, {"event": "page.view", "attributes": {}}, {"event": "other"}])
    run(topics.spark, topics.bootstrap, topic, tmp_path)
    assert [(row["page"], row["end_ms"]) for row in table_rows(tmp_path)] == [("/page", NOW_MS)]
    assert sorted(query(f"{tmp_path}__unparsed", "SELECT reason FROM t")) == [("no value",), ("not a JSON object",)]


def test_buckets_of_another_size_are_refused(topics: Topics, topic: str, tmp_path: Path) -> None:
    produce_views(topics.bootstrap, topic, [("/page", 0)])
    run(topics.spark, topics.bootstrap, topic, tmp_path)
    with pytest.raises(TableError, match="buckets of 600000 ms, not of 1200000"):
        run(topics.spark, topics.bootstrap, topic, tmp_path, period=RankingPeriod(4 * HOUR_MS, HOUR_MS, HOUR_MS // 3))


def test_the_command_ranks_what_the_events_library_fires(
    commands: Commands, skylog_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    with Producer(skylog_broker.bootstrap) as producer:
        events = EventLog(producer, topic=topic, application="site")
        for page in ("/", "/hot", "/hot"):
            events.fire("page.view", 7, path=page)
    table = tmp_path / "table"
    command = ["pipeline", "run", "rising", topic, "--into", f"{topic}-out", "--table", table, "--once"]
    commands.run(*command, "--bootstrap", skylog_broker.bootstrap, directory=tmp_path)
    assert [(row["page"], row["views"]) for row in table_rows(table)] == [("/hot", 2), ("/", 1)]
    assert topic_pages(skylog_broker.bootstrap, f"{topic}-out") == {"/hot": 1, "/": 2}
