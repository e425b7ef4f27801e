"""A changelog as a table: equal to a dict with the same changes, now and as of any offset."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from skylog import Admin
from skylog.model import TopicPartition
from skylog.pipeline import Cluster
from skylog.pipeline.increments import Increments
from skylog.pipeline.jobs.materialize import AsOfError, as_of, materialize_job, offsets_at
from skylog.pipeline.jobs.materialize.job import OpenMaterializedTable
from skylog.pipeline.runnable import JobRun
from skylog.pipeline.runner import Progress
from skylog.pipeline.table import Table, TableError, TableSchemaError
from skylog.testing import BrokerProcess, produce
from tests.pipeline.delta_readers import query
from tests.pipeline.jobs.materialize.changelog import SCHEMA, START_MS, Changelog, Rows
from tests.proof import in_proof
from tests.spark.conftest import Commands

COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "4000", "min.cleanable.dirty.ratio": "0.01"}


@pytest.fixture(scope="module")
def compacting_broker() -> Iterator[BrokerProcess]:
    with BrokerProcess(settings={"log.cleaner.backoff.ms": "100"}) as broker:
        yield broker


@pytest.fixture
def topic(compacting_broker: BrokerProcess) -> str:
    """Compacted, but not yet: until `compact` lets it be."""
    name = f"users-{uuid.uuid4().hex[:8]}"
    configs = {**COMPACTED, "min.compaction.lag.ms": "86400000000000"}
    Admin(compacting_broker.bootstrap).create_topic(name, partitions=2, configs=configs)
    return name


@pytest.fixture
def changelog(compacting_broker: BrokerProcess, topic: str) -> Changelog:
    return Changelog(compacting_broker.bootstrap, topic)


def run(
    spark: SparkSession,
    log: Changelog,
    path: Path,
    schema: str = SCHEMA,
    max_offsets: int | None = None,
    *,
    history: bool = True,
) -> list[Progress]:
    told: list[Progress] = []
    job = materialize_job(log.bootstrap, log.topic, path, schema, history=history)
    job.run_with(spark, Cluster(log.bootstrap), JobRun(report=told.append, max_offsets=max_offsets))
    return told


def rows_of(frame: DataFrame) -> Rows:
    found = [(bytes(row["_key"]).decode(), (row["name"], row["age"])) for row in frame.collect()]
    assert len(found) == len(dict(found))
    return dict(found)


def current(spark: SparkSession, path: Path) -> Rows:
    return rows_of(Table(path).read(spark))


def offsets(log: Changelog, ends: Mapping[int, int]) -> dict[TopicPartition, int]:
    return {TopicPartition(log.topic, number): end for number, end in ends.items()}


def test_the_table_is_what_a_dict_would_be_and_was_as_of_any_offset(
    spark: SparkSession, changelog: Changelog, tmp_path: Path
) -> None:
    changelog.change(300)
    assert len(run(spark, changelog, tmp_path, max_offsets=120)) == 3
    assert current(spark, tmp_path) == changelog.rows()
    changelog.change(30)
    assert [progress.records for progress in run(spark, changelog, tmp_path)] == [30]
    assert run(spark, changelog, tmp_path) == []
    assert current(spark, tmp_path) == changelog.rows()
    last = {number: len(changes) for number, changes in changelog.sent.items()}
    for ends in ({0: 0, 1: 0}, {0: 40, 1: 1}, {0: last[0] - 1, 1: 99}, last):
        assert rows_of(as_of(spark, tmp_path, offsets(changelog, ends))) == changelog.rows(ends)


def test_a_table_that_is_optimized_between_two_increments_goes_on(
    spark: SparkSession, changelog: Changelog, tmp_path: Path
) -> None:
    increments = Increments(changelog.bootstrap, [changelog.topic])
    job = materialize_job(changelog.bootstrap, changelog.topic, tmp_path, SCHEMA, history=False).steps()
    done = job.done()
    for key in ("ada", "bob", "ada"):
        produce(changelog.bootstrap, changelog.topic, [{"name": key, "age": 36}], key=key)
        increment = increments.next(done)
        assert increment is not None
        job.apply(increments.frame(spark, increment), increment)
        done = increment.end
        Table(tmp_path).optimize()
    assert current(spark, tmp_path) == {"ada": ("ada", 36), "bob": ("bob", 36)}


@in_proof
def test_a_time_is_the_offsets_that_the_log_had_then(spark: SparkSession, changelog: Changelog, tmp_path: Path) -> None:
    changelog.change(60)
    run(spark, changelog, tmp_path)
    admin = Admin(changelog.bootstrap)
    for time_ms in (0, START_MS + 29_500, START_MS + 3_600_000):
        known = admin.offsets_at([TopicPartition(changelog.topic, number) for number in (0, 1)], time_ms)
        ends = {key: len(changelog.sent[key.partition]) if at is None else at for key, at in known.items()}
        assert offsets_at(spark, tmp_path, changelog.topic, time_ms) == ends


@in_proof
def test_a_compacted_topic_gives_the_same_table_and_its_history_stays(
    spark: SparkSession, changelog: Changelog, tmp_path: Path
) -> None:
    for _ in range(8):  # as many batches and more: a batch is never divided among segments
        changelog.change(250)
    run(spark, changelog, tmp_path / "early", max_offsets=1500)
    changelog.compact()
    changelog.change(20)
    for name in ("early", "late"):
        run(spark, changelog, tmp_path / name)
        assert current(spark, tmp_path / name) == changelog.rows()
    last = {number: len(changes) for number, changes in changelog.sent.items()}
    middle = {0: 300, 1: 400}
    assert rows_of(as_of(spark, tmp_path / "early", offsets(changelog, middle))) == changelog.rows(middle)
    assert rows_of(as_of(spark, tmp_path / "late", offsets(changelog, last))) == changelog.rows()
    with pytest.raises(
        AsOfError, match=rf"{changelog.topic}-\d: records between 0 and \d+ had been deleted from the log"
    ):
        as_of(spark, tmp_path / "late", offsets(changelog, middle))


def test_an_unknown_state_of_the_table_is_refused(spark: SparkSession, changelog: Changelog, tmp_path: Path) -> None:
    with pytest.raises(AsOfError, match=r"there is no table in .* yet"):
        as_of(spark, tmp_path, offsets(changelog, {0: 0, 1: 0}))
    changelog.change(10)
    run(spark, changelog, tmp_path)
    with pytest.raises(AsOfError, match=r"-0: .* has offsets 0 to \d"):
        as_of(spark, tmp_path, offsets(changelog, {0: 11, 1: 0}))
    with pytest.raises(AsOfError, match="name every partition"):
        as_of(spark, tmp_path, offsets(changelog, {0: 1}))
    run(spark, changelog, tmp_path / "short", history=False)
    assert current(spark, tmp_path / "short") == changelog.rows()
    with pytest.raises(AsOfError, match="has no history"):
        as_of(spark, tmp_path / "short", offsets(changelog, {0: 0, 1: 0}))
    with pytest.raises(TableError, match="--no-history"):
        run(spark, changelog, tmp_path / "short")


def test_rows_may_get_fields_but_no_other_types(spark: SparkSession, changelog: Changelog, tmp_path: Path) -> None:
    produce(changelog.bootstrap, changelog.topic, [{"name": "ada", "age": 36}], key="ada")
    run(spark, changelog, tmp_path)
    produce(changelog.bootstrap, changelog.topic, [{"name": "bob", "age": 5, "city": {"zip": "1"}}], key="bob")
    run(spark, changelog, tmp_path, "name STRING, age INT, city STRUCT<zip: STRING>")
    rows = Table(tmp_path).read(spark).orderBy("name").select("name", "age", "city.zip").collect()
    assert [tuple(row) for row in rows] == [("ada", 36, None), ("bob", 5, "1")]
    assert as_of(spark, tmp_path, Table(tmp_path).offsets([changelog.topic])).count() == 2
    produce(changelog.bootstrap, changelog.topic, [{"name": "cy", "age": "old"}], key="cy")
    with pytest.raises(TableSchemaError, match="column 'age' is int and cannot become string"):
        run(spark, changelog, tmp_path, "name STRING, age STRING")


def test_what_is_no_such_row_is_in_the_table_with_its_text(
    spark: SparkSession, changelog: Changelog, skylog_broker: BrokerProcess, tmp_path: Path
) -> None:
    values = {"a": b'{"name": "ada", "age": 36}', "b": b'{"name": "bob", "age": "five"}', "c": b"{", "d": b"null"}
    plain = Changelog(skylog_broker.bootstrap, f"plain-{uuid.uuid4().hex[:8]}")
    for key, value in values.items():
        produce(plain.bootstrap, plain.topic, [value], key=key)
    produce(plain.bootstrap, plain.topic, [{"name": "nobody", "age": 0}])  # without a key it is nobody's row
    run(spark, plain, tmp_path)
    rows = Table(tmp_path).read(spark).orderBy("_key").collect()
    assert [(bytes(row["_key"]).decode(), row["name"], row["age"], row["_corrupt"]) for row in rows] == [
        ("a", "ada", 36, None),
        ("b", None, None, values["b"].decode()),
        ("c", None, None, "{"),
        ("d", None, None, "null"),
    ]


def test_a_first_increment_that_failed_is_repeated(
    spark: SparkSession, changelog: Changelog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changelog.change(5)
    with monkeypatch.context() as patch:
        patch.setattr(OpenMaterializedTable, "_merge", failing)
        with pytest.raises(OSError, match="no disk"):
            run(spark, changelog, tmp_path)
    run(spark, changelog, tmp_path)
    assert current(spark, tmp_path) == changelog.rows()


def failing(*_: object) -> None:
    raise OSError("no disk")


def test_a_table_belongs_to_one_topic(spark: SparkSession, changelog: Changelog, tmp_path: Path) -> None:
    changelog.change(5)
    run(spark, changelog, tmp_path)
    other = Changelog(changelog.bootstrap, f"{changelog.topic}-other")
    with pytest.raises(TableError, match=f"is not the table of topic '{other.topic}'"):
        run(spark, other, tmp_path)


def stored_rows(path: Path) -> Rows:
    return {key: (name, age) for key, name, age in query(path, "SELECT decode(_key), name, age FROM t")}


def test_the_command_keeps_the_table_and_writes_it_as_it_was(
    commands: Commands, changelog: Changelog, tmp_path: Path
) -> None:
    changelog.change(50)
    table, past = tmp_path / "users", tmp_path / "users-then"
    ends = {0: 9, 1: 12}
    when = json.dumps({changelog.topic: {str(number): end for number, end in ends.items()}})
    command = ["pipeline", "run", "materialize", changelog.topic, "--table", table, "--schema", SCHEMA]
    past_options = ["--as-of", when, "--into", past, "--bootstrap", changelog.bootstrap]
    commands.run(*command, *past_options, directory=tmp_path)

    assert stored_rows(table) == changelog.rows()
    assert stored_rows(past) == changelog.rows(ends)


@in_proof
def test_the_command_writes_a_version(commands: Commands, changelog: Changelog, tmp_path: Path) -> None:
    changelog.change(50)
    table = tmp_path / "users"
    command = ["pipeline", "run", "materialize", changelog.topic, "--table", table, "--schema", SCHEMA]
    command += ["--once", "--bootstrap", changelog.bootstrap]
    commands.run(*command, directory=tmp_path)
    commands.run(*command, "--as-of", "v1", "--into", tmp_path / "first", directory=tmp_path)
    assert stored_rows(tmp_path / "first") == changelog.rows()
