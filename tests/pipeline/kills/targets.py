"""The jobs that are killed: how each is run, how far its results are, and whether they are right in the end.

Results are judged by other programs than the jobs: DuckDB, Spark, SQLite, PostgreSQL's client, librdkafka, the audit.
"""

from __future__ import annotations

import json
import sqlite3
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import numpy as np
import psycopg
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as LibraryPartition
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from skylog import Admin
from skylog.cli.main import command_line
from skylog.model import TopicPartition
from skylog.pipeline import Table
from tests.pipeline.databases.servers import contents
from tests.pipeline.delta_readers import query
from tests.pipeline.kills.source import EVENTS, PARSED, PARTITIONS, UNPARSED, last_by_user, views_by_page, visits

HEAD = """
from pyspark.sql import functions as F

from skylog.pipeline import Database, Table, Topic, job

page = "attributes['page'] AS page"
"""
JOBS = {
    "table": """
@job(reads=READS, into=Table(INTO))
def table(events):
    return events.selectExpr("int(id) AS id", page)
""",
    "upsert": """
@job(reads=READS, into=Table(INTO, key=("user",)))
def upsert(events):
    return events.groupBy(F.expr("int(user.id) AS user")).agg(F.max(F.expr("int(id)")).alias("last"))
""",
    "topic": """
@job(reads=READS, into=Topic(INTO))
def topic(events):
    return events.selectExpr("id AS value")
""",
    "database": """
@job(reads=READS, into=Database(INTO, NAME, key=("page",), add=("views",)))
def database(events):
    return events.groupBy(F.expr(page)).agg(F.count("*").alias("views"))
""",
}
_CONSUMER = {"group.id": "none", "enable.partition.eof": True, "auto.offset.reset": "earliest"}


class Target(Protocol):
    """A job with its results. `total` is what `done` is in the end."""

    total: int

    def arguments(self) -> list[str]:
        """The arguments of `skylog pipeline run`."""
        ...

    def done(self) -> int:
        """How much the results have. It only grows."""
        ...

    def check(self, spark: SparkSession) -> None:
        """Fail unless each event is in the results exactly once."""
        ...


class Landed:
    """`land`, into a warehouse in a directory or in a store."""

    total = EVENTS

    def __init__(self, bootstrap: str, source: str, place: str) -> None:
        self._bootstrap, self._source = bootstrap, source
        self._warehouse = f"{place}/warehouse-{uuid.uuid4().hex[:8]}"
        self._table = f"{self._warehouse}/{source}"

    def arguments(self) -> list[str]:
        return ["land", self._source, "--warehouse", self._warehouse, "--merge-after", "0s"]

    def done(self) -> int:
        return sum(Table(self._table).offsets([self._source]).values())

    def check(self, spark: SparkSession) -> None:
        count_once(spark, self._table, "id", PARSED)
        count_once(spark, f"{self._table}__unparsed", "text", UNPARSED)
        command = ["audit", "verify", "--topic", self._source, "--tiers", "produced,stored,landed"]
        result = CliRunner().invoke(command_line(), [*command, "--bootstrap", self._bootstrap, "--wait", "60"])
        assert result.exit_code == 0, result.output


class OwnJob:
    """A job of a user's module. `into` and `table` are the target."""

    total = EVENTS

    def __init__(self, name: str, source: str, directory: Path, into: str, table: str = "") -> None:
        self._name, self._source, self._into, self._table = name, source, into, table
        module = f"shop_{uuid.uuid4().hex[:8]}"
        names = {"READS": source, "INTO": into, "NAME": table}
        lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in names.items())
        (directory / f"{module}.py").write_text(lines + HEAD + JOBS[name])
        self._path = f"{module}:{name}"

    def arguments(self) -> list[str]:
        return [self._path]

    def done(self) -> int:
        return sum(Table(self._into).offsets([self._source]).values())


class OwnTable(OwnJob):
    """Rows that are appended to a table."""

    def check(self, spark: SparkSession) -> None:
        count_once(spark, self._into, "id", PARSED)
        count_once(spark, f"{self._into}__unparsed", "text", UNPARSED)


class OwnUpserts(OwnJob):
    """Rows that replace those with the same key."""

    def check(self, spark: SparkSession) -> None:
        options = dict(Table(self._into).storage.options)
        found = query(self._into, 'SELECT "user", last FROM t', storage_options=options)
        assert len(found) == len(last_by_user())
        assert dict(found) == last_by_user()
        assert {row["user"]: row["last"] for row in Table(self._into).read(spark).collect()} == last_by_user()
        count_once(spark, f"{self._into}__unparsed", "text", UNPARSED)


class OwnTopic(OwnJob):
    """Records that are sent to a topic. Its state is in `state`."""

    total = PARSED

    def __init__(self, bootstrap: str, source: str, directory: Path) -> None:
        super().__init__("topic", source, directory, f"{source}-{uuid.uuid4().hex[:8]}")
        self._bootstrap, self._state = bootstrap, directory / f"state-{self._into}"
        self._admin = Admin(bootstrap)

    def arguments(self) -> list[str]:
        return [*super().arguments(), "--state", str(self._state)]

    def done(self) -> int:
        if self._into not in {topic.name for topic in self._admin.list_topics()}:
            return 0
        keys = [TopicPartition(self._into, number) for number in range(PARTITIONS)]
        return sum(found.end_offset for found in self._admin.offset_ranges(keys).values())

    def check(self, spark: SparkSession) -> None:
        counts = np.bincount([int(value) for value in self._values(self._into)], minlength=EVENTS)
        expected = np.ones(EVENTS, dtype=np.int64)
        expected[99::100] = 0
        assert np.array_equal(counts, expected), f"{(counts - expected).nonzero()[0][:20]} of {counts.sum()}"
        bad = self._values(f"{self._into}__unparsed")
        assert (len(bad), len(set(bad))) == (UNPARSED, UNPARSED)

    def _values(self, topic: str) -> list[bytes]:
        """All values of a topic, as librdkafka reads them."""
        consumer = Consumer({"bootstrap.servers": self._bootstrap, **_CONSUMER})
        consumer.assign([LibraryPartition(topic, number, 0) for number in range(PARTITIONS)])
        found: list[bytes] = []
        at_end = 0
        while at_end < PARTITIONS:
            messages = consumer.consume(10_000, timeout=30)
            assert messages, f"{topic} gave nothing for 30 s"
            values = [message.value() or b"" for message in messages if message.error() is None]
            found += values
            at_end += len(messages) - len(values)
        consumer.close()
        return found


class OwnDatabase(OwnJob):
    """Counts that are added to rows of SQLite or PostgreSQL."""

    def __init__(self, source: str, directory: Path, url: str) -> None:
        super().__init__("database", source, directory, url, f"counts_{uuid.uuid4().hex[:8]}")

    def done(self) -> int:
        rows = self._rows(f"{self._table}_offsets", "sum(end_offset)")
        return int(rows[0][0] or 0) if rows else 0

    def check(self, spark: SparkSession) -> None:
        assert dict(self._rows(self._table, "page, views")) == views_by_page()
        bad = self._rows(f"{self._table}_unparsed", "text")
        assert (len(bad), len(set(bad))) == (UNPARSED, UNPARSED)

    def _rows(self, table: str, columns: str) -> list[Any]:
        """The rows of a table. Empty if it does not exist."""
        sql = f"SELECT {columns} FROM {table}"
        if urlsplit(self._into).scheme == "sqlite":
            with closing(sqlite3.connect(self._into.removeprefix("sqlite:///"), timeout=30)) as file:
                known = file.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchall()
                return file.execute(sql).fetchall() if known else []
        with psycopg.connect(self._into) as connection:
            is_missing = connection.execute("SELECT to_regclass(%s)", (table,)).fetchall() == [(None,)]
            return [] if is_missing else connection.execute(sql.encode()).fetchall()


class Visits:
    """`visits`, into a database."""

    total = PARSED

    def __init__(self, source: str, url: str) -> None:
        self._source, self._url, self._table = source, url, f"visits_{uuid.uuid4().hex[:8]}"

    def arguments(self) -> list[str]:
        return ["visits", self._source, "--database", self._url, "--table", self._table]

    def done(self) -> int:
        return sum(contents(self._url, self._table).values())

    def check(self, spark: SparkSession) -> None:
        assert contents(self._url, self._table) == visits()


def count_once(spark: SparkSession, table: str, column: str, count: int) -> None:
    """Fail unless the table has this many rows, with as many values of `column`: by DuckDB and by Spark."""
    options = dict(Table(table).storage.options)
    sql = f"count(*), count(DISTINCT {column})"
    assert query(table, f"SELECT {sql} FROM t", storage_options=options) == [(count, count)]
    (row,) = Table(table).read(spark).selectExpr("count(*)", f"count(DISTINCT {column})").collect()
    assert tuple(row) == (count, count)
