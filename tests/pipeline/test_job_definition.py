"""Jobs that users write: a function, its topics, and a topic, a table or a database for its results."""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Callable, Collection
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention
from typer.testing import CliRunner

from skylog import Admin, Producer
from skylog.cli.main import command_line
from skylog.client import ConsumerGroups
from skylog.errors import ConfigError
from skylog.job_status import JOBS_TOPIC, JobStatus
from skylog.model import TopicPartition
from skylog.pipeline import Cluster, Database, Progress, StoreError, Table, TableError, Topic, job, streams
from skylog.pipeline.jobs.land import LandSettings, land
from skylog.pipeline.schedule import ONCE
from skylog.pipeline.streams import StateError, StreamState, start_query
from skylog.testing import BrokerProcess, consume, produce, wait_until
from tests.pipeline.delta_readers import query
from tests.proof import in_proof
from tests.spark.conftest import Commands

NOON_MS = 1_772_366_400_000  # 2026-03-01T12:00Z


@pytest.fixture
def topic(skylog_broker: BrokerProcess) -> str:
    name = f"comments-{uuid.uuid4().hex[:8]}"
    Admin(skylog_broker.bootstrap).create_topic(name, partitions=2)
    return name


def comment(number: int, body: str = "hello") -> dict[str, Any]:
    return {"event": "comment.create", "attributes": {"id": number, "body": body}}


def send(bootstrap: str, topic: str, *values: Any, at_ms: int = NOON_MS) -> None:
    with Producer(bootstrap) as producer, producer.batch():
        for number, value in enumerate(values):
            producer.send(topic, value, partition=number % 2, timestamp_ms=at_ms + number)


def bodies(events: DataFrame) -> DataFrame:
    return events.selectExpr("attributes['id'] AS id", "attributes['body'] AS body", "topic", "timestamp")


def test_a_function_is_called_with_any_frame(spark: SparkSession) -> None:
    @job(reads="comments", into=Topic("flagged"))
    def spam(events: DataFrame) -> DataFrame:
        """Flag comments."""
        return events.where("attributes['body'] RLIKE '(?i)free money'").selectExpr("attributes['id'] AS key")

    rows = [({"id": "1", "body": "Free Money!"},), ({"id": "2", "body": "hello"},)]
    assert [row.key for row in spam(spark.createDataFrame(rows, "attributes MAP<STRING, STRING>")).collect()] == ["1"]
    assert (spam.name, spam.__doc__, spam.reads) == ("spam", "Flag comments.", ("comments",))
    assert repr(spam) == "<job spam: comments -> flagged>"


def test_a_table_gets_every_event_once_and_keeps_what_does_not_parse(
    spark: SparkSession, skylog_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    bootstrap, told = skylog_broker.bootstrap, list[Progress]()
    keep = job(topic, Table(tmp_path / "lake"))(bodies)
    send(bootstrap, topic, *map(comment, range(5)))
    keep.run(spark, bootstrap, once=True, report=told.append, group=f"{topic}-group")
    assert not Table(tmp_path / "lake__unparsed").exists()
    send(bootstrap, topic, b"no event", *map(comment, range(5, 8)), None, at_ms=NOON_MS + 10)
    for _ in range(2):
        keep.run(spark, bootstrap, once=True, report=told.append, group=f"{topic}-group", max_offsets=3)
    assert sorted(query(tmp_path / "lake", "SELECT id, body FROM t")) == [(str(n), "hello") for n in range(8)]
    sql = 'SELECT value, reason, topic, "offset" FROM t ORDER BY "offset"'
    assert query(tmp_path / "lake__unparsed", sql) == [
        (b"no event", "not a JSON object", topic, 3),
        (None, "no value", topic, 5),
    ]
    assert sum(progress.records for progress in told) == 10
    (group,) = ConsumerGroups(bootstrap).describe_groups([f"{topic}-group"])
    assert [part.lag for part in group.partitions] == [0, 0]


def test_a_job_goes_on_with_a_topic_that_was_made_anew_if_told_so(
    spark: SparkSession, skylog_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    own = job(topic, Table(tmp_path / "own"))(bodies)
    admin = Admin(skylog_broker.bootstrap)
    for numbers in (range(6), range(6, 8), range(8, 12)):
        if numbers.start == 6:
            admin.delete_topics([topic])
            admin.create_topic(topic, partitions=2)
        send(skylog_broker.bootstrap, topic, *(comment(number) for number in numbers), b"bad", b"bad")
        own.run(spark, skylog_broker.bootstrap, once=True, options={"failOnDataLoss": "false"})
        land(spark, skylog_broker.bootstrap, [topic], LandSettings(tmp_path), options={"failOnDataLoss": "false"})
    known = [*range(6), *range(8, 12)]  # those of the new log before the first run after it was made are left out
    for table, column in (("own", "id"), (topic, "attributes ->> 'id'")):
        assert query(tmp_path / table, f"SELECT {column} FROM t ORDER BY CAST({column} AS INT)") == [
            (str(number),) for number in known
        ]
        assert query(tmp_path / f"{table}__unparsed", "SELECT count(*) FROM t") == [(4,)]


def test_unparsed_records_that_were_stored_before_a_crash_are_not_stored_again(
    spark: SparkSession, skylog_broker: BrokerProcess, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(skylog_broker.bootstrap, topic, comment(1), b"bad")
    keep = job(topic, Table(tmp_path / "lake"))(bodies)
    from skylog.pipeline.delta.table_log import TableLog

    commit = TableLog.commit

    def die(self: TableLog, *arguments: Any, **more: Any) -> None:
        if not self.storage.uri.endswith("__unparsed"):
            raise KeyboardInterrupt
        commit(self, *arguments, **more)

    monkeypatch.setattr(TableLog, "commit", die)
    with pytest.raises(KeyboardInterrupt):
        keep.run(spark, skylog_broker.bootstrap, once=True)
    monkeypatch.undo()
    send(skylog_broker.bootstrap, topic, comment(2), b"worse", at_ms=NOON_MS + 10)
    keep.run(spark, skylog_broker.bootstrap, once=True)
    assert sorted(query(tmp_path / "lake", "SELECT id FROM t")) == [("1",), ("2",)]
    assert sorted(query(tmp_path / "lake__unparsed", "SELECT value FROM t")) == [(b"bad",), (b"worse",)]


@pytest.mark.usefixtures("adaptive")
def test_rows_with_a_key_replace_each_other_in_the_files_that_have_them(
    spark: SparkSession, skylog_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    @job(topic, Table(tmp_path / "users", key=("id",), deleted="gone"), schema="id INT, name STRING, gone BOOLEAN")
    def users(events: DataFrame) -> DataFrame:
        last = events.groupBy("id").agg(F.max_by(F.struct("name", "gone"), "timestamp").alias("row"))
        return last.select("id", "row.*")

    for start in (0, 100):  # a file each
        send(skylog_broker.bootstrap, topic, *({"id": start + n, "name": f"user {n}"} for n in range(10)))
        users.run(spark, skylog_broker.bootstrap, once=True)
    before = {file.path for file in Table(tmp_path / "users").log().files()}
    assert len(before) == 2
    send(skylog_broker.bootstrap, topic, {"id": 3, "name": "changed"}, {"id": 4, "gone": True}, {"id": 5, "name": "x"})
    users.run(spark, skylog_broker.bootstrap, once=True)
    after = {file.path for file in Table(tmp_path / "users").log().files()}
    assert len(before & after) == 1  # that of the ids from 100 on
    rows = dict(query(tmp_path / "users", "SELECT id, name FROM t"))
    assert len(rows) == 19
    assert (rows[3], rows[5], rows[100], 4 in rows) == ("changed", "x", "user 0", False)
    assert Table(tmp_path / "users").read(spark, version=1).count() == 10
    twice = job(
        topic, Table(tmp_path / "users", key=("id",), deleted="gone"), schema="id INT, name STRING, gone BOOLEAN"
    )
    send(skylog_broker.bootstrap, topic, {"id": 1}, {"id": 1})
    with pytest.raises(TableError, match="2 rows of one batch have the key id=1"):
        twice(lambda events: events.select("id", "name", "gone")).run(spark, skylog_broker.bootstrap, once=True)


def test_a_database_gets_counts_once(
    spark: SparkSession, skylog_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'counts.db'}"

    @job(topic, Database(url, "counts", key=("body",), add=("comments",)))
    def counts(events: DataFrame) -> DataFrame:
        found = bodies(events).groupBy("body")
        return found.agg(
            F.count("*").alias("comments"), F.max("timestamp").alias("last"), F.collect_set("id").alias("ids")
        )

    for start in (0, 10):
        send(skylog_broker.bootstrap, topic, comment(start), comment(start + 1), comment(start + 2, "bye"), b"bad")
        counts.run(spark, skylog_broker.bootstrap, once=True)
    with closing(sqlite3.connect(tmp_path / "counts.db")) as connection:
        rows = connection.execute('SELECT body, comments, "last", ids FROM counts ORDER BY body').fetchall()
        assert [row[:2] for row in rows] == [("bye", 2), ("hello", 4)]
        assert rows[0][2:] == ("2026-03-01T12:00:00.002000+00:00", '["12"]')
        assert connection.execute("SELECT count(*) FROM counts_unparsed").fetchall() == [(2,)]
    wrong = job(topic, Database(url, "others", key=("missing",)))(bodies)
    with pytest.raises(StoreError, match="the result has no column 'missing'"):
        wrong.run(spark, skylog_broker.bootstrap, once=True)


@pytest.mark.parametrize(("result", "kind"), [(None, "nothing"), (7, "an object of type int")])
def test_a_function_that_returns_no_frame_is_named(
    spark: SparkSession, skylog_broker: BrokerProcess, topic: str, tmp_path: Path, result: Any, kind: str
) -> None:
    send(skylog_broker.bootstrap, topic, comment(1))
    for into in (Table(tmp_path / "t"), Topic(f"{topic}-out")):
        wrong = job(topic, into, name="wrong")(lambda _: result)
        with pytest.raises(ConfigError, match=f"job 'wrong': its function returned {kind} instead of a DataFrame"):
            wrong.run(spark, skylog_broker.bootstrap, once=True, state=tmp_path / "state")


def test_a_time_that_no_database_has_is_named(
    spark: SparkSession, skylog_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    into = Database(f"sqlite:///{tmp_path / 'late.db'}", "late", key=("id",))
    late = job(topic, into)(lambda events: events.selectExpr("offset AS id", "timestamp_micros(1700000000000000000) t"))
    send(skylog_broker.bootstrap, topic, comment(1))
    with pytest.raises(StoreError, match="table late: a row has a time or date that cannot be stored"):
        late.run(spark, skylog_broker.bootstrap, once=True)


def test_a_topic_gets_every_result_once_with_as_many_partitions_as_the_source(
    spark: SparkSession, skylog_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    bootstrap, into = skylog_broker.bootstrap, f"{topic}-flagged"

    @job(reads=topic, into=Topic(into))
    def flagged(events: DataFrame) -> DataFrame:
        return events.selectExpr("attributes['id'] AS key", "attributes['body'] AS body", "partition + 10 AS place")

    send(bootstrap, topic, comment(1), b"bad", comment(2))
    told: list[Progress] = []
    flagged.run(spark, Cluster(bootstrap), once=True, state=tmp_path / "state", report=told.append)
    send(bootstrap, topic, comment(3))
    flagged.run(spark, Cluster(bootstrap), once=True, state=tmp_path / "state", report=told.append)
    assert [each.records for each in told] == [3, 1]  # those of the query for what does not parse are the same
    found = {message.key: json.loads(message.value or b"") for message in consume(bootstrap, into)}
    assert found == {b"%d" % number: {"body": "hello", "place": 10} for number in (1, 2, 3)}
    assert len(Admin(bootstrap).describe_topic(into).partitions) == 2
    (bad,) = consume(bootstrap, f"{into}__unparsed")
    assert bad.value == b"bad"
    assert dict(bad.headers) == {
        "reason": b"not a JSON object",
        "topic": topic.encode(),
        "partition": b"1",
        "offset": b"0",
    }


def count_by_minute(events: DataFrame) -> DataFrame:
    by_minute = events.withWatermark("timestamp", "1 minute").groupBy(F.window("timestamp", "1 minute"))
    return by_minute.count().selectExpr("window.start AS start", "count")


def test_a_stream_counts_in_windows_and_goes_on_after_a_stop(
    spark: SparkSession, skylog_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    windows = job(topic, Table(tmp_path / "windows"), stream=True)(count_by_minute)
    for minutes in ((0,), (0,), (5, 10)):  # the state of a minute lives from run to run
        for minute in minutes:
            send(skylog_broker.bootstrap, topic, comment(1), comment(2), at_ms=NOON_MS + minute * 60_000)
        windows.run(spark, skylog_broker.bootstrap, once=True, state=tmp_path / "state")
    counts = query(tmp_path / "windows", "SELECT epoch_ms(start), count FROM t ORDER BY start")
    assert counts == [(NOON_MS, 4), (NOON_MS + 300_000, 2)]
    with pytest.raises(StateError, match="has results already, but there is no state of their stream"):
        windows.run(spark, skylog_broker.bootstrap, once=True, state=tmp_path / "elsewhere")


def test_a_batch_that_was_stored_before_a_kill_is_not_stored_again_and_its_state_is_kept(
    spark: SparkSession, skylog_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    counts = job(topic, Table(tmp_path / "counts"), stream=True)(count_by_minute)

    def run(*minutes: int) -> None:
        for minute in minutes:
            send(skylog_broker.bootstrap, topic, comment(1), comment(2), at_ms=NOON_MS + minute * 60_000)
        counts.run(spark, skylog_broker.bootstrap, once=True, state=tmp_path / "state")

    run(0, 5)
    run(5, 10)
    commits = tmp_path / "state" / "commits"
    newest = max((each for each in commits.iterdir() if each.name.isdigit()), key=lambda each: int(each.name))
    newest.unlink()  # Spark had not noted the batch when it was killed
    (commits / f".{newest.name}.crc").unlink()
    run()
    run(15)
    found = query(tmp_path / "counts", "SELECT epoch_ms(start), count FROM t ORDER BY start")
    assert found == [(NOON_MS + minute * 60_000, count) for minute, count in ((0, 2), (5, 4), (10, 2))]


class Results:
    """A sink with the offsets of streams, in place of a table."""

    def __init__(self, target: str, rows: int = 0) -> None:
        self.target, self.rows = target, rows
        self.ends: dict[TopicPartition, int] = {}
        self.error: Exception | None = None

    def open(self) -> Results:
        return self

    def has_rows(self) -> bool:
        error, self.error = self.error, None
        if error is not None:
            raise error
        return self.rows > 0

    def offsets(self, topics: Collection[str]) -> dict[TopicPartition, int]:
        return {key: end for key, end in self.ends.items() if key.topic in topics}


def start(into: Any, state: Path) -> str:
    """Start a stream whose query is not of Spark. Return the id of the stream."""
    start_query(MagicMock(), into, Cluster(), StreamState(state, ("posts", "comments")), ONCE, "append")
    found: str = json.loads((state / "skylog-stream").read_text())["id"]
    return found


def test_a_state_of_another_target_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_topic_query", MagicMock())
    first, state = start(Results("lake/a"), tmp_path / "state"), tmp_path / "state"
    assert start(Results("lake/a"), state) == first
    problem = r"state is the state of comments, posts -> lake/a, .* now (lake/)?b, .* use another --state directory"
    for other in (Results("lake/b"), Topic("b")):
        with pytest.raises(StateError, match=problem):
            start(other, state)
    moved = Results("lake/b", rows=1)
    moved.ends = {TopicPartition(first, 0): 7}
    assert start(moved, state) == first
    start(Topic("a"), tmp_path / "topic")
    with pytest.raises(StateError, match=r"-> a, and the target is now b, "):
        start(Topic("b"), tmp_path / "topic")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "skylog-stream").write_text("stream.0a")  # of an earlier version
    assert start(Results("lake/a", rows=1), tmp_path / "old") == "stream.0a"
    with pytest.raises(StateError, match="-> lake/a, "):
        start(Results("lake/b"), tmp_path / "old")


def test_lost_state_is_noticed_although_the_first_start_failed(tmp_path: Path) -> None:
    into = Results("lake/a", rows=3)
    into.error = StoreError("the database is away")
    with pytest.raises(StoreError):
        start(into, tmp_path / "state")
    for _ in range(2):
        with pytest.raises(StateError, match="has results already, but there is no state of their stream"):
            start(into, tmp_path / "state")


@in_proof
def test_a_stream_joins_two_topics(
    spark: SparkSession, skylog_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    orders = f"{topic}-orders"
    Admin(skylog_broker.bootstrap).create_topic(orders, partitions=1)
    schemas = {topic: "id INT, name STRING", orders: "customer INT, total INT"}

    @job(reads=(topic, orders), into=Table(tmp_path / "joined"), schema=schemas, stream=True)
    def joined(customers: DataFrame, orders: DataFrame) -> DataFrame:
        return customers.join(orders, customers.id == orders.customer).select("name", "total")

    produce(skylog_broker.bootstrap, orders, [{"customer": 1, "total": 10}])
    joined.run(spark, skylog_broker.bootstrap, once=True, state=tmp_path / "state")
    produce(skylog_broker.bootstrap, topic, [{"id": 1, "name": "ada"}, {"id": 2, "name": "bob"}])
    joined.run(spark, skylog_broker.bootstrap, once=True, state=tmp_path / "state")
    assert query(tmp_path / "joined", "SELECT name, total FROM t") == [("ada", 10)]


def test_the_status_of_a_job_is_published_with_its_error(
    spark: SparkSession, skylog_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    failing = job(topic, Table(tmp_path / "t"), name=f"fails-{topic}")
    send(skylog_broker.bootstrap, topic, comment(1))
    with pytest.raises(Exception, match="no_such_column"):
        failing(lambda events: events.select("no_such_column")).run(spark, skylog_broker.bootstrap, once=True)

    def status() -> list[JobStatus]:
        found = [JobStatus.decode(message.value or b"") for message in consume(skylog_broker.bootstrap, JOBS_TOPIC)]
        return [each for each in found if each.kind == f"fails-{topic}" and each.last_error]

    (last,) = wait_until(status, "the status")[-1:]
    assert "no_such_column" in (last.last_error or "")
    assert last.topics == (topic,)


MODULE = """
from pyspark.sql.functions import udf

from skylog.pipeline import Table, job

@udf("string")
def shouted(text):
    return text.upper()

@job(reads="TOPIC", into=Table("lake"))
def loud(events):
    return events.select(shouted(events.attributes["body"]).alias("body"))
"""


def test_the_command_runs_a_job_of_a_module_in_the_working_directory(
    commands: Commands, skylog_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    """Spark's Python workers get its functions, too."""
    module = f"shop_{uuid.uuid4().hex[:8]}"
    (tmp_path / f"{module}.py").write_text(MODULE.replace("TOPIC", topic))
    send(skylog_broker.bootstrap, topic, comment(1), comment(2))
    command = ["pipeline", "run", f"{module}:loud", "--once", "--json", "--bootstrap", skylog_broker.bootstrap]
    said = commands.run(*command, directory=tmp_path)
    assert [json.loads(line)["records"] for line in said.splitlines()] == [2]
    assert query(tmp_path / "lake", "SELECT body FROM t") == [("HELLO",)] * 2
    history = CliRunner().invoke(command_line(), ["pipeline", "table", "history", str(tmp_path / "lake"), "--json"])
    assert json.loads(history.stdout)[0]["offsets"] == {topic: {"0": 1, "1": 1}}


def one(events: DataFrame) -> DataFrame:
    return events


def two(left: DataFrame, right: DataFrame) -> DataFrame:
    return left.join(right)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: job((), Topic("t"))(one), "reads no topic"),
        (lambda: job("t", Topic("t"))(one), "would read its own results"),
        (lambda: job("t", Table("x"), mode="complete")(one), "expected append"),
        (lambda: job(("a", "b"), Table("x"))(two), "set stream=True"),
        (
            lambda: job(("a", "b", "c"), Table("x"), stream=True)(two),
            "its function has 2 parameters",
        ),
        (lambda: job("a", Table("x"), schema={"b": "id INT"})(one), "name one schema for each topic"),
        (lambda: job("a", Database("sqlite:///x", "t", key=()))(one), "needs the columns of a key"),
        (lambda: job("a", Table("x", deleted="gone"))(one), "needs a key"),
    ],
)
def test_mistakes_are_found_where_the_job_is_defined(make: Callable[[], object], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        make()
