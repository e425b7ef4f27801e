"""The job `recommendations`: pages seen together, counted once however the log is cut into batches."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from skylog import Admin, Producer
from skylog.pipeline import Table
from skylog.pipeline.delta.table_log import TableLog
from skylog.pipeline.jobs.recommendations import merged, recommend, recommendations_job, seen_together
from skylog.testing import BrokerProcess
from tests.proof import in_proof
from tests.spark.chance import chance
from tests.spark.conftest import Commands

NOON_MS = 1_772_366_400_000  # 2026-03-01T12:00Z
MINUTE_MS = 60_000
View = tuple[str, str, int]  # visitor, page, minute


@pytest.fixture
def topic(skylog_broker: BrokerProcess) -> str:
    name = f"views-{uuid.uuid4().hex[:8]}"
    Admin(skylog_broker.bootstrap).create_topic(name, partitions=2)
    return name


def send(bootstrap: str, topic: str, views: list[View]) -> None:
    with Producer(bootstrap) as producer, producer.batch():
        for visitor, page, minute in views:
            event = {"event": "page.view", "user": {"id": visitor}, "attributes": {"page": page}}
            producer.send(topic, event, visitor, timestamp_ms=NOON_MS + minute * MINUTE_MS)


def frame(spark: SparkSession, views: list[View]) -> DataFrame:
    rows = [(page, visitor, minute * MINUTE_MS, "t", 0, n) for n, (visitor, page, minute) in enumerate(views)]
    return spark.createDataFrame(
        rows, "page STRING, visitor STRING, time_ms BIGINT, topic STRING, partition INT, offset BIGINT"
    )


def counts(found: DataFrame) -> dict[tuple[str, str | None], int]:
    return {(row.page, row.other): row.together for row in found.collect()}


def plainly(views: list[View]) -> dict[tuple[str, str | None], int]:
    """The same counts, view by view."""
    found: Counter[tuple[str, str | None]] = Counter()
    for number, (visitor, page, minute) in enumerate(views):
        near = {other for who, other, when in views[:number] if who == visitor and abs(when - minute) <= 30}
        if page not in near:
            found[page, None] += 1
            for other in near:
                found[page, other] += 1
                found[other, page] += 1
    return dict(found)


def best(counts: dict[tuple[str, str | None], int], page: str, top: int) -> list[tuple[str, int]]:
    others = [(other, count) for (one, other), count in counts.items() if one == page and other and count >= 2]
    scores = {other: round(count / (counts[page, None] * counts[other, None]) ** 0.5, 4) for other, count in others}
    return sorted(others, key=lambda each: (-scores[each[0]], each[0]))[:top]


def stored(table: Path, spark: SparkSession) -> dict[tuple[str, str | None], int]:
    found: dict[tuple[str, str | None], int] = {}
    for row in Table(table).read(spark).collect():
        found[row.page, None] = row.visits
        found.update({(row.page, other): together for other, together in row.together.items()})
    return found


def test_a_visit_counts_a_pair_once_and_in_both_directions(spark: SparkSession) -> None:
    views = [("ada", "/a", 0), ("ada", "/b", 1), ("ada", "/a", 2), ("ada", "/b", 3), ("bob", "/b", 3)]
    views += [("ada", "/c", 31), ("ada", "/a", 90), ("ada", "/b", 89)]  # the last one is late
    expected = {("/a", None): 2, ("/b", None): 3, ("/c", None): 1, ("/a", "/b"): 2, ("/b", "/a"): 2}
    expected |= {("/a", "/c"): 1, ("/c", "/a"): 1, ("/b", "/c"): 1, ("/c", "/b"): 1}
    assert plainly(views) == expected
    assert counts(seen_together(frame(spark, views))) == expected
    new, earlier = frame(spark, views).where("offset >= 3"), frame(spark, views).where("offset < 3")
    table = recommend(seen_together(earlier))
    assert counts(merged(seen_together(new, earlier), table)) == expected


def test_pages_that_everybody_sees_are_not_recommended_first(spark: SparkSession) -> None:
    views = [(f"visitor {n}", "/home", 0) for n in range(50)]
    views += [(f"visitor {n}", page, 1) for n in range(4) for page in ("/comet", "/pier")]
    views += [("visitor 9", "/comet", 1), ("visitor 9", "/rare", 2)]
    found = {row.page: row for row in recommend(seen_together(frame(spark, views)), top=2).collect()}
    best = [(each.page, each.together, each.score) for each in found["/pier"].recommended]
    assert best == [("/comet", 4, round(4 / (4 * 5) ** 0.5, 4)), ("/home", 4, round(4 / (4 * 50) ** 0.5, 4))]
    assert found["/rare"].recommended == []  # one visit is chance
    assert found["/rare"].together == {"/home": 1, "/comet": 1}
    assert found["/home"].visits == 50


@in_proof
def test_counts_are_those_of_the_log_whatever_the_batches_and_after_a_failed_commit(
    spark: SparkSession, skylog_broker: BrokerProcess, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = chance()
    views = [(f"v{drawn.randrange(4)}", f"/{drawn.randrange(6)}", n * 3 + drawn.randrange(9)) for n in range(60)]
    bootstrap, path = skylog_broker.bootstrap, tmp_path / "recommendations"
    job = recommendations_job(bootstrap, [topic], path, top=3)
    send(bootstrap, topic, views[:25])
    job.run(spark, bootstrap, once=True, max_offsets=drawn.choice([14, 20]))
    assert stored(path, spark) == plainly(views[:25])
    send(bootstrap, topic, views[25:])
    commit = TableLog.commit

    def die(self: TableLog, *arguments: Any, **more: Any) -> None:
        monkeypatch.setattr(TableLog, "commit", commit)
        raise KeyboardInterrupt

    monkeypatch.setattr(TableLog, "commit", die)
    with pytest.raises(KeyboardInterrupt):
        job.run(spark, bootstrap, once=True)
    job.run(spark, bootstrap, once=True)
    assert stored(path, spark) == plainly(views)
    for row in Table(path).read(spark).collect():
        assert [(each.page, each.together) for each in row.recommended] == best(plainly(views), row.page, 3)


def test_the_command_writes_a_table(
    commands: Commands, spark: SparkSession, skylog_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    views = [(f"visitor {n}", page, 0) for n in range(3) for page in ("/a", "/b")]
    send(skylog_broker.bootstrap, topic, views)
    run = ["pipeline", "run", "recommendations", topic, "--once", "--json", "--bootstrap", skylog_broker.bootstrap]
    said = commands.run(*run, directory=tmp_path)
    assert sum(json.loads(line)["records"] for line in said.splitlines()) == 6
    assert stored(tmp_path / "recommendations", spark) == plainly(views)
