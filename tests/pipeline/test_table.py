"""Tables as jobs and readers use them: on a disk and in an S3-compatible store."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars
import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from skylog import Admin
from skylog.model import TopicPartition
from skylog.pipeline import LostFilesError, Table, TableError, TableSchemaError, job
from skylog.pipeline import table as table_module
from skylog.pipeline.delta import changed_keys, upserts
from skylog.pipeline.delta import storage as storage_module
from skylog.pipeline.delta.changed_keys import ChangedKeys
from skylog.pipeline.delta.data_files import WrittenFile, _check_seen
from skylog.pipeline.delta.errors import ConcurrentWriterError
from skylog.pipeline.delta.storage import Storage
from skylog.pipeline.delta.table_log import TableLog
from skylog.pipeline.jobs.land import LandSettings, UpkeepSettings, land
from skylog.testing import BrokerProcess, produce
from tests.pipeline.delta.conftest import bucket, s3
from tests.pipeline.delta.test_table_log import SCHEMA
from tests.pipeline.delta_readers import query
from tests.proof import in_proof

__all__ = ["bucket", "s3"]

KEY = TopicPartition("t", 0)


def append(frame: DataFrame, table: Table, start: int, end: int) -> None:
    table.open().write(frame, {KEY: start} if start else {}, {KEY: end})


def test_every_type_comes_back_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql(
        """SELECT 1 AS i, 2L AS l, 1.5D AS d, 'ä' AS s, true AS b, X'ff00' AS bytes, DATE'2026-03-01' AS day,
        TIMESTAMP'2026-03-01 12:00:00.123456' AS at, CAST(1.25 AS DECIMAL(10,2)) AS money, array(1, NULL) AS a,
        map('k', 'v') AS m, struct(1 AS x, 'y' AS y) AS st, CAST(NULL AS STRING) AS nothing"""
    )
    for name, partition_by in (("plain", ()), ("parts", ("day", "s", "nothing"))):
        table = Table(tmp_path / name, partition_by=partition_by)
        append(frame, table, 0, 1)
        found = table.read(spark).select(*frame.columns)
        assert found.collect() == frame.collect()
        assert found.schema.simpleString() == frame.schema.simpleString()
        assert polars.read_delta(str(tmp_path / name)).height == 1


def test_times_of_years_that_python_does_not_have_are_stored_and_read(spark: SparkSession, tmp_path: Path) -> None:
    late, early = "timestamp_micros(1700000000000000000L)", "timestamp_micros(-100000000000000000L)"
    frame = spark.sql(f"SELECT 1 AS id, {late} AS at, date({late}) AS day UNION ALL SELECT 2, {early}, date({early})")
    expected = frame.selectExpr("id", "unix_micros(at)", "unix_date(day)").orderBy("id").collect()
    for key in ((), ("id",)):
        table = Table(tmp_path / f"with{'-'.join(key)}", key=key)
        for number in range(2):
            append(frame.selectExpr(f"id + {0 if key else 2 * number} AS id", "at", "day"), table, number, number + 1)
        for _ in range(2):  # before and after Delta itself has written files
            found = table.read(spark).where("id <= 2").selectExpr("id", "unix_micros(at)", "unix_date(day)")
            assert found.orderBy("id").collect() == expected
            table.optimize()
        assert polars.read_delta(str(table.path)).height == (2 if key else 4)
    with pytest.raises(PySparkException, match="a row has a day outside of the years 1 to 9999"):
        append(frame, Table(tmp_path / "parts", partition_by=("day",)), 0, 1)


@pytest.mark.usefixtures("adaptive")
def test_few_files_are_written_however_many_tasks_there_are(spark: SparkSession, tmp_path: Path) -> None:
    table = Table(tmp_path / "t", partition_by=("p",))
    append(spark.range(0, 10_000, 1, 16).selectExpr("id", "id % 3 AS p"), table, 0, 1)
    assert len(table.log().files()) == 3
    assert query(tmp_path / "t", "SELECT count(DISTINCT id), count(*) FROM t WHERE p = 1") == [(3333, 3333)]
    assert {file.rows for file in table.log().files()} == {3333, 3334}


def test_files_of_a_table_with_a_key_have_ranges_of_keys(spark: SparkSession, tmp_path: Path) -> None:
    table = Table(tmp_path / "t", key=("id",), file_bytes=10_000)
    rows = spark.range(0, 100_000, 1, 4).selectExpr("(id * 7919) % 100000 AS id", "sha1(string(id)) AS name")
    append(rows, table, 0, 1)
    before = {file.path: (file.smallest["id"], file.largest["id"]) for file in table.log().files()}
    bounds = sorted(before.values())
    assert len(bounds) > 4
    assert all(largest < smallest for (_, largest), (smallest, _) in pairwise(bounds))
    append(spark.range(50_000, 51_000).selectExpr("id", "'new' AS name"), table, 1, 2)
    assert len(before.keys() - {file.path for file in table.log().files()}) <= 2
    assert query(tmp_path / "t", "SELECT count(*), count(DISTINCT id), sum((name = 'new')::INT)::INT FROM t") == [
        (100_000, 100_000, 1000)
    ]


def test_merged_files_are_on_disk_before_the_next_commit(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(tmp_path / "t", partition_by=("day",))
    for number in range(3):
        append(spark.range(10).selectExpr("id", "'a b/ö' AS day"), table, number, number + 1)
    before = set((tmp_path / "t").rglob("*.parquet"))
    synced: list[Path] = []
    monkeypatch.setattr(storage_module, "_sync", synced.append)
    table.optimize()
    [merged] = set((tmp_path / "t").rglob("*.parquet")) - before
    assert merged in synced
    assert tmp_path / "t" / "_delta_log" / f"{table.log().version:020}.json" in synced


@pytest.mark.usefixtures("adaptive")
def test_small_files_are_merged_and_old_ones_deleted_while_a_reader_reads(spark: SparkSession, tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    for number in range(5):
        append(spark.range(number * 10, number * 10 + 10), table, number, number + 1)
    reader = DeltaTable(str(tmp_path / "t")).to_pyarrow_dataset()
    assert table.optimize()["numFilesRemoved"] == 5
    assert len(table.log().files()) == 1
    assert reader.count_rows() == table.read(spark).count() == 50
    assert table.vacuum() == []  # the files are younger than a week
    assert reader.to_table().num_rows == 50
    for path in (tmp_path / "t").glob("*.parquet"):
        os.utime(path, (0, 0))
    assert len(table.vacuum(keep_ms=0)) == 5
    assert table.read(spark).count() == 50
    append(spark.range(50, 60), table, 5, 6)  # the offsets have survived
    assert table.offsets(["t"]) == {KEY: 6}


@in_proof
def test_the_driver_and_spark_find_the_same_files_with_changed_keys(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("id", "CAST(id AS STRING)", "CAST(CAST(id AS STRING) AS BINARY)"):
        table = Table(tmp_path / name.replace(" ", ""), key=("id",))
        for number in range(3):
            rows = spark.range(number * 10, number * 10 + 10).selectExpr(f"{name} AS id", "'x' AS name")
            table.open().write(rows, {KEY: number} if number else {}, {KEY: number + 1})
        log = table.log()
        changes = spark.sql(f"SELECT {name} AS id FROM VALUES (12), (13), (25), (99), (NULL) AS changed(id)")
        changed = {row["id"] for row in changes.collect()}
        ids = {file.path: polars.read_parquet(Path(str(table.path), file.path))["id"].to_list() for file in log.files()}
        expected = {path for path, each in ids.items() if changed & set(each)}
        found = []
        for few in (10_000, 1):  # the keys go to the driver, or they are too many
            for limit in ("_FEW_NUMBERS", "_FEW_TEXTS"):
                monkeypatch.setattr(changed_keys, limit, few)
            keys = ChangedKeys(changes, ("id",))
            assert (keys.few is None) == (few == 1)
            found.append({file.path for file in upserts.touched_files(log, keys)})
        assert found == [expected, expected]
        assert 0 < len(expected) < len(ids)


CLICKS = TopicPartition("clicks", 0)


def in_the_middle_of_an_upsert(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Call `action` once, after the next upsert has chosen the files to rewrite and before it commits."""
    found = upserts.touched_files

    def touched_files(*arguments: Any) -> Any:
        monkeypatch.setattr(table_module, "touched_files", found)
        files = found(*arguments)
        action()
        return files

    monkeypatch.setattr(table_module, "touched_files", touched_files)


def test_jobs_of_other_topics_upsert_one_key_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = (Table(tmp_path / "t", key=("id",)).open() for _ in range(2))

    def rows(name: str, ids: int = 1) -> DataFrame:
        return spark.range(ids).selectExpr("id", f"'{name}' AS name")

    def names() -> list[str]:
        return [name for _, name in sorted(query(tmp_path / "t", "SELECT id, name FROM t"))]

    one.write(rows("first"), {}, {KEY: 1})
    other.write(rows("second"), {}, {CLICKS: 1})  # was opened before there was a table
    one.write(rows("third"), {KEY: 1}, {KEY: 2})
    assert names() == ["third"]
    new = rows("fourth", 3).where("id > 0")  # no file has these keys, so no file is rewritten
    in_the_middle_of_an_upsert(monkeypatch, lambda: other.write(new, {CLICKS: 1}, {CLICKS: 2}))
    one.write(rows("fifth", 2).where("id > 0"), {KEY: 2}, {KEY: 3})
    assert names() == ["third", "fifth", "fourth"]
    in_the_middle_of_an_upsert(monkeypatch, lambda: other.write(rows("sixth"), {KEY: 3}, {KEY: 4}))
    with pytest.raises(ConcurrentWriterError, match="has t-0 up to offset 4, but this job expects 3"):
        one.write(rows("of the same topic"), {KEY: 3}, {KEY: 4})
    assert names() == ["sixth", "fifth", "fourth"]


def test_an_upsert_goes_on_after_the_table_was_optimized(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(tmp_path / "t", key=("id",))
    sleeping = table.open()

    def write(start: int, number: int) -> None:
        rows = spark.range(start, start + 2).selectExpr("id", f"{number} AS n")
        sleeping.write(rows, {KEY: number} if number else {}, {KEY: number + 1})

    for number in range(3):
        write(number * 10, number)
    assert Table(tmp_path / "t").optimize()["numFilesAdded"] == 1
    write(0, 3)
    write(30, 4)
    merged = list[int]()
    in_the_middle_of_an_upsert(monkeypatch, lambda: merged.append(table.optimize()["numFilesRemoved"]))
    write(10, 5)
    assert merged[0] > 1
    expected = [(0, 3), (1, 3), (10, 5), (11, 5), (20, 2), (21, 2), (30, 4), (31, 4)]
    assert sorted(query(tmp_path / "t", "SELECT id, n FROM t")) == expected


def test_a_command_merges_files_to_the_size_that_the_job_has_chosen(tmp_path: Path) -> None:
    sizes = {}
    for name, table in (("own", Table("t", key=("id",), file_bytes=9000)), ("keyed", Table("t", key=("id",)))):
        opened = replace(table, path=tmp_path / name).open()
        opened.prepare(SCHEMA, {}, {})
        sizes[name] = Table(tmp_path / name)._merged_bytes(Table(tmp_path / name).log())
    old = TableLog.open_or_create(Storage.of(tmp_path / "old"), SCHEMA)  # of a version that did not store the size
    sizes["plain"] = Table(tmp_path / "old")._merged_bytes(old)
    old.commit([], before={}, after={}, is_fenced=True)
    sizes["old"] = Table(tmp_path / "old")._merged_bytes(old)
    assert sizes == {"own": 9000, "keyed": 16 << 20, "plain": 128 << 20, "old": 16 << 20}


@pytest.mark.parametrize("few", [1000, 0])  # the driver checks the keys, or Spark does
def test_rows_without_a_key_or_with_the_same_are_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """A row without a key would never be replaced, because nothing equals NULL."""
    for limit in ("_FEW_NUMBERS", "_FEW_TEXTS"):
        monkeypatch.setattr(changed_keys, limit, few)
    rows = spark.sql("SELECT * FROM VALUES (1, 'a'), (NULL, 'b') AS rows(id, name)")
    for key in (("id",), ("name", "id")):
        with pytest.raises(TableError, match=r"a row has no .*id, which are the key"):
            Table(tmp_path / "t", key=key).open().write(rows, {}, {KEY: 1})
    twice = spark.sql("SELECT *, id AS count_all FROM VALUES (1, 'a'), (2, 'b'), (3, 'c'), (2, 'b') AS rows(id, name)")
    for key, said in ((("id",), "id=2"), (("name", "count_all"), "name='b', count_all=2")):
        with pytest.raises(TableError, match=f"2 rows of one batch have the key {said}; return one row for each key"):
            Table(tmp_path / "t", key=key).open().write(twice, {}, {KEY: 1})
    assert Table(tmp_path / "t").offsets(["t"]) == {}


def test_a_key_that_is_an_empty_partition_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Delta stores it as null, so a later row would not replace it."""
    rows = spark.sql("SELECT * FROM VALUES ('de', '', 1), ('', 'x', 2) AS rows(country, name, id)")
    table = Table(tmp_path / "t", key=("country", "id"), partition_by=("country",))
    with pytest.raises(TableError, match=r"a row has no country or no id, which are the key"):
        append(rows, table, 0, 1)
    for number in range(2):
        append(rows.where("id = 1"), table, number, number + 1)
    assert query(tmp_path / "t", "SELECT country, name, id FROM t") == [("de", "", 1)]


@pytest.mark.usefixtures("adaptive")
def test_an_upsert_of_a_few_keys_reads_them_once_and_writes_in_one_query(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_module, "_KEYED_FILE_BYTES", 10_000)  # these files are many, so tasks have ranges
    table = Table(tmp_path / "t", key=("id",), file_bytes=10_000)
    append(spark.range(0, 20_000, 1, 4).selectExpr("id", "sha1(string(id)) AS name"), table, 0, 1)
    before = {file.path for file in table.log().files()}
    context, group = spark.sparkContext, uuid.uuid4().hex
    plans = list[str]()
    frames = type(spark.range(1))
    collect = frames.collect

    def noted(frame: DataFrame) -> Any:
        plans.append(str(frame._jdf.queryExecution().executedPlan().toString()))
        return collect(frame)

    monkeypatch.setattr(frames, "collect", noted)
    context.setJobGroup(group, "an upsert")
    append(spark.range(9_000, 10_000).selectExpr("id", "'new' AS name"), table, 1, 2)
    jobs = context.statusTracker().getJobIdsForGroup(group)
    assert len(plans) == 1  # the report of the written files
    assert "rangepartitioning" not in plans[0]
    assert len(jobs) <= 6, jobs  # keys; the broadcast, the shuffle and its partitions, the files
    replaced = before - {file.path for file in table.log().files()}
    assert 0 < len(replaced) < len(before)
    bounds = sorted((file.smallest["id"], file.largest["id"]) for file in table.log().files())
    assert all(largest < smallest for (_, largest), (smallest, _) in pairwise(bounds))
    sums = "count(*), count(DISTINCT id), sum((name = 'new')::INT)::INT"
    assert query(tmp_path / "t", f"SELECT {sums} FROM t") == [(20_000, 20_000, 1000)]


def test_a_column_in_other_case_is_the_same_column(spark: SparkSession, tmp_path: Path) -> None:
    append(spark.sql("SELECT 1 AS id, 'a' AS name, 7 AS day"), Table(tmp_path / "t", partition_by=("day",)), 0, 1)
    append(spark.sql("SELECT 2 AS ID, 'b' AS Name, 8 AS DAY"), Table(tmp_path / "t", partition_by=("day",)), 1, 2)
    assert sorted(query(tmp_path / "t", "SELECT id, name, day FROM t")) == [(1, "a", 7), (2, "b", 8)]
    for number, (key, columns) in enumerate([("id", "1 AS id, 'a' AS name"), ("ID", "1 AS ID, 'b' AS NAME")]):
        table = Table(tmp_path / "keyed", key=(key,))
        append(spark.sql(f"SELECT {columns}"), table, number, number + 1)
    assert query(tmp_path / "keyed", "SELECT id, name FROM t") == [(1, "b")]


def test_earlier_versions_are_read_by_number_time_and_offsets(spark: SparkSession, tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    for number in range(3):
        append(spark.range(number, number + 1), table, number * 10, number * 10 + 10)
    assert table.read(spark, version=2).count() == 2
    assert table.read(spark, offsets={KEY: 15}).count() == 1
    first = table.history()[-2]
    assert table.read(spark, time_ms=first.time_ms).count() == 1
    with pytest.raises(TableError, match=r"there is no table in .* yet"):
        Table(tmp_path / "nothing").read(spark)


def test_a_result_that_does_not_fit_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    append(spark.range(1), table, 0, 1)
    append(spark.range(1).selectExpr("id", "'new' AS name"), table, 1, 2)
    assert sorted(query(tmp_path / "t", "SELECT name FROM t"), key=str) == [("new",), (None,)]
    with pytest.raises(TableSchemaError, match="column 'id' is bigint and cannot become string"):
        append(spark.range(1).selectExpr("'x' AS id"), table, 2, 3)
    with pytest.raises(TableError, match="is partitioned by nothing, not by name"):
        append(spark.range(1), Table(tmp_path / "t", partition_by=("name",)), 2, 3)
    for twice in ("event, event", "event, event AS Event"):
        with pytest.raises(TableSchemaError, match=r"there are two columns '[eE]vent'; rename one, or leave it out"):
            append(spark.sql("SELECT 'x' AS event").selectExpr(*twice.split(", ")), Table(tmp_path / "u"), 0, 1)
    with pytest.raises(TableSchemaError, match="has no columns but those that it is partitioned by"):
        append(spark.range(1), Table(tmp_path / "u", partition_by=("id",)), 0, 1)
    with pytest.raises(TableSchemaError, match="there is no column 'day' to partition by; there are id"):
        append(spark.range(1), Table(tmp_path / "u", partition_by=("day",)), 0, 1)
    assert table.offsets(["t"]) == {KEY: 2}
    assert not (tmp_path / "u").exists()


def test_files_that_the_driver_does_not_see_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "short.parquet").write_bytes(b"x")
    for name in ("short.parquet", "missing.parquet"):
        file = WrittenFile("", name, 100, 1, {}, "{}", [], 0)
        with pytest.raises(LostFilesError, match="the driver does not see it, so nothing was committed"):
            _check_seen([file], Storage.of(tmp_path))


def test_topics_land_in_a_store_and_jobs_upsert_there(
    spark: SparkSession, skylog_broker: BrokerProcess, bucket: str
) -> None:
    topic = f"users-{uuid.uuid4().hex[:8]}"
    Admin(skylog_broker.bootstrap).create_topic(topic, partitions=2)
    schema, lake = "id INT, name STRING", f"{bucket}/lake"
    settings = LandSettings(lake, schema, upkeep=UpkeepSettings(after_ms=0), is_audited=False)

    @job(topic, Table(f"{bucket}/users", key=("id",)), schema=schema)
    def users(events: DataFrame) -> DataFrame:
        return events.groupBy("id").agg(F.max_by("name", "timestamp").alias("name"))

    for name in ("old", "new"):
        produce(skylog_broker.bootstrap, topic, [*({"id": number, "name": name} for number in range(5)), b"bad"])
        land(spark, skylog_broker.bootstrap, [topic], settings)
        users.run(spark, skylog_broker.bootstrap, once=True)
    landed = Table(f"{lake}/{topic}")
    assert landed.read(spark).count() == 10
    assert Table(f"{lake}/{topic}__unparsed").read(spark).count() == 2
    assert sum(landed.offsets([topic]).values()) == 12
    assert {row.name for row in Table(f"{bucket}/users").read(spark).collect()} == {"new"}
    options = dict(landed.storage.options)
    assert query(landed.target, "SELECT count(*), count(DISTINCT event_hour) FROM t", storage_options=options) == [
        (10, 1)
    ]
