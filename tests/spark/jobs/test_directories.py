"""Where jobs write: any path will do, and what is no directory is refused before anything is read."""

from __future__ import annotations

import uuid
from collections import Counter
from pathlib import Path
from threading import Event

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from skylog import Admin
from skylog.cli.main import app
from skylog.spark.jobs import parquet
from skylog.spark.jobs.audit.books import Answer
from skylog.spark.jobs.directories import DirectoryError, check_directory, spark_path
from skylog.spark.jobs.increments import Increments
from skylog.spark.jobs.land import LandSettings, land, snapshot
from skylog.spark.jobs.materialize import Materialize, as_of
from skylog.spark.jobs.parquet import read_parquet, write_parquet
from skylog.spark.jobs.rekey import Rekey
from skylog.spark.jobs.rising import Rising
from skylog.spark.jobs.runner import IncrementalJob, run_increments, run_queries
from skylog.spark.jobs.schedule import ONCE
from skylog.spark.jobs.versioned_table import VersionedTable, newest_version
from skylog.testing import BrokerProcess, consume, produce

NAMES = ("sp ace", "wé", "a:b", "[x]", "{a,b}", "q?", "st*r", "p%41c", "ha#sh", "ba\\ck")
ODD = " ".join(NAMES)
NOWHERE = "127.0.0.1:1"


def event(number: int) -> dict[str, object]:
    return {"id": str(number), "event": "page.view", "attributes": {"page": f"/{number}"}}


@pytest.fixture
def topic(skylog_broker: BrokerProcess) -> str:
    """Five views in each of two partitions."""
    name = f"odd-{uuid.uuid4().hex[:8]}"
    Admin(skylog_broker.bootstrap).create_topic(name, partitions=2)
    for number in range(10):
        produce(skylog_broker.bootstrap, name, [event(number)], key=str(number), partition=number % 2)
    return name


def run(spark: SparkSession, bootstrap: str, topic: str, job: IncrementalJob) -> None:
    run_increments(job, Increments(bootstrap, [topic]), spark, ONCE, Event(), lambda _: None)


@pytest.mark.parametrize("name", NAMES)
def test_spark_writes_and_reads_where_the_driver_looks(spark: SparkSession, tmp_path: Path, name: str) -> None:
    path = tmp_path / name / "table"
    assert write_parquet(spark.range(0, 3, 1, 1), path) == 3
    assert sum(pq.read_metadata(file).num_rows for file in path.iterdir() if file.suffix == ".parquet") == 3
    assert read_parquet(spark, path).count() == 3


def test_rows_that_the_driver_does_not_see_are_an_error_and_nothing_is_kept(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with executors that have a disk of their own; `test_blind_executors` has real ones."""
    monkeypatch.setattr(parquet, "spark_path", lambda path: spark_path(path.with_name("elsewhere")))
    with pytest.raises(parquet.LostRowsError, match="tasks wrote 3 rows, and the driver sees 0 of them"):
        write_parquet(spark.range(3), tmp_path / "here")
    assert not (tmp_path / "here").exists()


def test_events_land_in_a_warehouse_of_any_path(
    spark: SparkSession, skylog_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    land(spark, skylog_broker.bootstrap, [topic], LandSettings(tmp_path / ODD))
    files = snapshot(tmp_path / ODD / topic)
    found = [each for file in files for each in pq.ParquetFile(file).read(["id"])["id"].to_pylist()]
    assert sorted(found) == list("0123456789")


def test_a_table_of_any_path_is_materialized_and_told_as_it_was(
    spark: SparkSession, skylog_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    bootstrap = skylog_broker.bootstrap
    with Materialize.open_table(tmp_path / ODD) as table:
        run(spark, bootstrap, topic, Materialize(table, topic, "id STRING", Admin(bootstrap)))
        produce(bootstrap, topic, [None], key="3", partition=1)
        run(spark, bootstrap, topic, Materialize(table, topic, "id STRING", Admin(bootstrap)))
    version = newest_version(tmp_path / ODD)
    assert version is not None
    assert sorted(row.id for row in read_parquet(spark, version.path).collect()) == list("012456789")
    before = {key: min(end, 5) for key, end in version.offsets.items()}
    assert as_of(spark, tmp_path / ODD, before).count() == 10


def test_a_ranking_of_any_path_goes_on(
    spark: SparkSession, skylog_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    with VersionedTable(tmp_path / ODD) as table:
        run(spark, skylog_broker.bootstrap, topic, Rising(table))
        produce(skylog_broker.bootstrap, topic, [event(10)])
        run(spark, skylog_broker.bootstrap, topic, Rising(table))
        assert table.version is not None
        assert sorted(table.version.facts["ranking"]) == sorted(f"/{number}" for number in range(11))


def test_a_topic_is_rekeyed_with_a_state_of_any_path(
    spark: SparkSession, skylog_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    bootstrap, target = skylog_broker.bootstrap, f"{topic}-by-page"
    job = Rekey(bootstrap, [topic], target, "attributes.page", tmp_path / ODD)
    for _ in range(2):
        run_queries("rekey", [job.start(spark, ONCE)], Event(), lambda _: None)
    assert Counter(message.key for message in consume(bootstrap, target)) == Counter(b"/%d" % n for n in range(10))
    assert (tmp_path / ODD / "commits").is_dir()
    assert (tmp_path / ODD / "skylog-sink").is_dir()


def test_a_balance_of_any_path_is_saved_and_replaced(spark: SparkSession, tmp_path: Path) -> None:
    for count in (3, 4):
        columns = ("'t' AS topic", "id AS window_start_ms", "'stored' AS tier", "'' AS source")
        Answer(spark.range(count).selectExpr(*columns), 0, 0, 0).save(tmp_path / ODD)
        assert read_parquet(spark, tmp_path / ODD).count() == count
    assert [path.name for path in tmp_path.iterdir()] == [ODD]


@pytest.mark.parametrize("uri", ["s3a://bucket/warehouse", "hdfs://host:9000/w", "gs://bucket", "abfss://c@a/w"])
def test_what_is_on_another_file_system_is_refused(uri: str) -> None:
    with pytest.raises(DirectoryError, match=r"give a directory that the driver and all executors have mounted"):
        check_directory(Path(uri))


def test_a_file_uri_is_refused_with_the_path_to_give() -> None:
    with pytest.raises(DirectoryError, match=r"give the path alone, such as /data/warehouse$"):
        check_directory(Path("file:///data/warehouse"))


@pytest.mark.parametrize("name", ["a:b", "a:b/c", "/s3a:/x", "plain", *NAMES])
def test_what_only_looks_like_a_uri_is_a_path(name: str) -> None:
    assert check_directory(Path(name)) == Path(name)
    assert spark_path(Path("/", name)) == f"file:{Path('/', name)}"


def test_jobs_refuse_a_uri_before_they_read_anything(spark: SparkSession) -> None:
    uri = Path("s3a://bucket/table")
    with pytest.raises(DirectoryError):
        land(spark, NOWHERE, ["t"], LandSettings(uri))
    with pytest.raises(DirectoryError):
        Materialize.open_table(uri)
    with pytest.raises(DirectoryError):
        VersionedTable(uri)
    with pytest.raises(DirectoryError):
        Rekey(NOWHERE, ["t"], "u", "record.key", uri).start(spark, ONCE)
    with pytest.raises(DirectoryError):
        Answer(spark.range(1), 0, 0, 0).save(uri)


@pytest.mark.parametrize(
    "arguments",
    [
        ["land", "t", "--warehouse"],
        ["materialize", "t", "--schema", "id INT", "--table"],
        ["materialize", "t", "--schema", "id INT", "--table", "x", "--as-of", "1h", "--into"],
        ["rising", "t", "--table"],
        ["rekey", "t", "--key", "k", "--into", "u", "--state"],
        ["audit", "--into"],
    ],
)
def test_commands_refuse_a_uri_before_spark_starts(arguments: list[str]) -> None:
    command = ["pipeline", "run", *arguments, "s3a://bucket/place", "--bootstrap", NOWHERE, "--once"]
    result = CliRunner().invoke(app, command, env={"COLUMNS": "300"})
    assert result.exit_code == 2
    assert "is not on a mounted file system" in result.output
    assert arguments[-1] in result.output
