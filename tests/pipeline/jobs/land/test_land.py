"""Topics into tables: a real broker, Spark, and the readers that people have."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from typing import Any

import polars
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from skylog import Admin, Producer
from skylog.audit import AUDIT_TOPIC, ProducerAudit, Report, Tier
from skylog.cli.main import command_line
from skylog.client import ConsumerGroups
from skylog.model import TopicPartition
from skylog.pipeline.cluster import Cluster
from skylog.pipeline.delta.data_files import WrittenFile
from skylog.pipeline.event_parser import SchemaError
from skylog.pipeline.increments import Increment, Increments
from skylog.pipeline.jobs.land import LandSettings, UpkeepSettings, land, matching_topics
from skylog.pipeline.jobs.land.completeness import is_complete
from skylog.pipeline.runner import Progress
from skylog.pipeline.schedule import CONTINUOUS
from skylog.pipeline.table import Table, TableError, TableSchemaError
from skylog.testing import BrokerProcess, consume, wait_until
from tests.pipeline.delta_readers import file_count, query
from tests.proof import in_proof, proof
from tests.spark.conftest import Commands

app = command_line()

NOON_MS = 1_772_366_400_000  # 2026-03-01T12:00Z
HOUR_MS = 3_600_000


@pytest.fixture
def topic(skylog_broker: BrokerProcess) -> str:
    name = f"views-{uuid.uuid4().hex[:8]}"
    Admin(skylog_broker.bootstrap).create_topic(name, partitions=2)
    return name


def event(number: int, **more: Any) -> dict[str, Any]:
    return {
        "id": f"{number:08d}",
        "event": "page.view",
        "timestamp": (NOON_MS + number) / 1000,
        "user": {"id": number % 7, "created_at": None},
        "attributes": {"page": f"/{number % 5}"},
        "server": "web-1",
        "application": "blog",
        **more,
    }


def send(bootstrap: str, topic: str, numbers: range, *, at_ms: int = NOON_MS, audit: Any = None, **more: Any) -> None:
    with Producer(bootstrap, audit=audit) as producer, producer.batch():
        for number in numbers:
            value = event(number, **more)
            producer.send(topic, value, key=str(number % 7), partition=number % 2, timestamp_ms=at_ms + number)


def test_events_land_by_date_and_hour_and_late_ones_in_their_own(
    spark: SparkSession, skylog_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    bootstrap, table = skylog_broker.bootstrap, tmp_path / topic
    told: list[Progress] = []
    send(bootstrap, topic, range(20))
    land(spark, bootstrap, [topic], LandSettings(tmp_path), report=told.append, group=f"{topic}-group")
    send(bootstrap, topic, range(20, 30), at_ms=NOON_MS - 13 * HOUR_MS)
    land(spark, bootstrap, [topic], LandSettings(tmp_path), report=told.append, group=f"{topic}-group")
    assert [progress.records for progress in told] == [20, 10]
    assert sorted(found.relative_to(table).as_posix() for found in table.glob("event_date=*/*")) == [
        "event_date=2026-02-28/event_hour=23",
        "event_date=2026-03-01/event_hour=12",
    ]
    rows = Table(table).read(spark)
    assert rows.where("event_date = DATE'2026-03-01' AND event_hour = 12").count() == 20
    first = rows.where("id = '00000003'").collect()[0]
    assert (first.event, first.user.id, first.attributes, first._key) == ("page.view", "3", '{"page":"/3"}', b"3")
    assert (first._partition, first._offset, first.event_hour) == (1, 1, 12)
    assert query(table, "SELECT count(*), count(DISTINCT id), max(event_time) FROM t") == [
        (30, 30, datetime(2026, 3, 1, 12, 0, 0, 19_000, tzinfo=UTC))
    ]
    assert DeltaTable(table).to_pandas().shape[0] == polars.read_delta(str(table)).height == 30
    (group,) = ConsumerGroups(bootstrap).describe_groups([f"{topic}-group"])
    assert [part.lag for part in group.partitions] == [0, 0]


def test_a_field_in_other_case_lands_in_the_same_column(
    spark: SparkSession, skylog_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    for name in ("id", "ID"):
        with Producer(skylog_broker.bootstrap) as producer:
            producer.send(topic, {name: name}, timestamp_ms=NOON_MS).result(20)
        settings = LandSettings(tmp_path, f"{name} STRING", is_audited=False, upkeep=None)
        land(spark, skylog_broker.bootstrap, [topic], settings)
    assert sorted(query(tmp_path / topic, "SELECT id FROM t"), key=str) == [("ID",), ("id",)]


def test_records_that_do_not_parse_are_kept_in_the_side_table(
    spark: SparkSession, skylog_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    bad = [None, b"\xff{}", b"[1]", b"{", b'{"timestamp": "never"}', b'{"id": 1} and more']
    with Producer(skylog_broker.bootstrap) as producer, producer.batch():
        for number, value in enumerate(bad):
            producer.send(topic, value, key="k", partition=0, timestamp_ms=NOON_MS + number)
    land(spark, skylog_broker.bootstrap, [topic], LandSettings(tmp_path))  # nothing else: the table has no file yet
    assert file_count(tmp_path / topic) == 0
    send(skylog_broker.bootstrap, topic, range(5))
    land(spark, skylog_broker.bootstrap, [topic], LandSettings(tmp_path))
    assert query(tmp_path / topic, "SELECT count(*) FROM t") == [(5,)]
    found = query(tmp_path / f"{topic}__unparsed", "SELECT value, text, reason, _offset FROM t ORDER BY _offset")
    assert [row[0] for row in found] == bad
    assert [row[2] for row in found] == [
        "no value",
        "not UTF-8",
        "not a JSON object",
        "not a JSON object",
        "not JSON of the schema",
        "not a JSON object",
    ]
    assert found[1][1] == "\ufffd{}"
    assert Table(tmp_path / f"{topic}__unparsed").read(spark).count() == len(bad)


@in_proof
def test_the_time_of_an_event_can_be_a_field(
    spark: SparkSession, skylog_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    send(skylog_broker.bootstrap, topic, range(4), at_ms=NOON_MS + HOUR_MS)
    send(skylog_broker.bootstrap, topic, range(4, 6), timestamp=None)
    land(spark, skylog_broker.bootstrap, [topic], LandSettings(tmp_path, event_time="timestamp"))
    assert query(tmp_path / topic, "SELECT event_hour, count(*) FROM t GROUP BY ALL") == [(12, 4)]
    reasons = query(tmp_path / f"{topic}__unparsed", "SELECT DISTINCT reason FROM t")
    assert reasons == [("no time in timestamp",)]
    with pytest.raises(SchemaError, match="the schema does not have this field"):
        land(spark, skylog_broker.bootstrap, [topic], LandSettings(tmp_path, event_time="user.when"))


def test_a_schema_may_grow_but_a_column_keeps_its_type(
    spark: SparkSession, skylog_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    bootstrap, table = skylog_broker.bootstrap, tmp_path / topic
    send(bootstrap, topic, range(4))
    land(spark, bootstrap, [topic], LandSettings(tmp_path, "id STRING"))
    send(bootstrap, topic, range(4, 10), visits=3)
    land(spark, bootstrap, [topic], LandSettings(tmp_path, "id STRING, visits INT"))
    grown = [(10, 18)]
    assert query(table, "SELECT count(*), sum(visits) FROM t") == grown
    rows = Table(table).read(spark)
    assert [tuple(row) for row in rows.selectExpr("count(*)", "sum(visits)").collect()] == grown
    send(bootstrap, topic, range(10, 12))
    with pytest.raises(TableSchemaError, match="column 'visits' is int and cannot become string"):
        land(spark, bootstrap, [topic], LandSettings(tmp_path, "id STRING, visits STRING"))
    merged = LandSettings(tmp_path, "id STRING", upkeep=UpkeepSettings(after_ms=0))
    land(spark, bootstrap, [topic], merged)
    assert file_count(table) == 1
    assert query(table, "SELECT count(*), sum(visits) FROM t") == [(12, 18)]
    with pytest.raises(SchemaError, match=r"schema id STRIN: .*UNSUPPORTED_DATATYPE"):
        land(spark, bootstrap, [topic], LandSettings(tmp_path, "id STRIN"))
    with pytest.raises(SchemaError, match="column '_offset' is reserved"):
        land(spark, bootstrap, [topic], LandSettings(tmp_path, "_offset BIGINT"))


@in_proof
def test_several_topics_land_in_tables_of_their_own_and_one_may_come_later(
    spark: SparkSession, skylog_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    bootstrap, other = skylog_broker.bootstrap, f"other-{topic}"
    Admin(bootstrap).create_topic(other, partitions=2)
    send(bootstrap, topic, range(6))
    land(spark, bootstrap, [topic], LandSettings(tmp_path))
    send(bootstrap, topic, range(6, 8))
    send(bootstrap, other, range(5))
    Admin(bootstrap).delete_records(other, {0: 2})
    land(spark, bootstrap, [topic, other], LandSettings(tmp_path), max_offsets=3)
    assert query(tmp_path / topic, "SELECT count(*), count(DISTINCT id) FROM t") == [(8, 8)]
    assert query(tmp_path / other, "SELECT count(*), count(DISTINCT id) FROM t") == [(3, 3)]


@in_proof
def test_a_topic_lands_once_more_in_another_warehouse(
    spark: SparkSession, skylog_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    send(skylog_broker.bootstrap, topic, range(12))
    for warehouse, schema in (("one", "id STRING"), ("two", "id STRING, server STRING")):
        land(spark, skylog_broker.bootstrap, [topic], LandSettings(tmp_path / warehouse, schema), max_offsets=5)
        assert query(tmp_path / warehouse / topic, "SELECT count(*), count(DISTINCT id) FROM t") == [(12, 12)]
    sources = {report.source.partition("#")[0] for report in landed_reports(skylog_broker.bootstrap, topic)}
    assert sources == {f"one/{topic}", f"two/{topic}"}


def landed_reports(bootstrap: str, topic: str) -> list[Report]:
    reports = [Report.decode(message.value or b"") for message in consume(bootstrap, AUDIT_TOPIC)]
    return [report for report in reports if report.tier is Tier.LANDED and report.topic == topic]


def test_what_has_landed_balances_with_what_was_produced_and_stored(
    spark: SparkSession, skylog_broker: BrokerProcess, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    bootstrap = skylog_broker.bootstrap
    send(bootstrap, topic, range(50), audit=ProducerAudit("test"))
    with Producer(bootstrap, audit=ProducerAudit("test")) as producer:
        producer.send(topic, b"not an event", timestamp_ms=NOON_MS + 10 * 60_000)
    for _ in range(2):  # the second run publishes the reports again
        land(spark, bootstrap, [topic], LandSettings(tmp_path / "w"), max_offsets=20)
    reports = landed_reports(bootstrap, topic)
    assert len(reports) > len({report.id for report in reports})
    command = ["audit", "verify", "--topic", topic, "--tiers", "produced,stored,landed", "--bootstrap", bootstrap]
    result = CliRunner().invoke(app, [*command, "--wait", "20"])
    assert (result.exit_code, result.output) == (0, "balanced: 2 windows, 2 complete\n"), result.output


@in_proof
def test_files_are_cut_at_their_size(
    spark: SparkSession, skylog_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    settings = LandSettings(tmp_path, file_size_bytes=20_000, upkeep=None)
    send(skylog_broker.bootstrap, topic, range(1000))
    land(spark, skylog_broker.bootstrap, [topic], settings)
    send(skylog_broker.bootstrap, topic, range(1000, 4000))
    land(spark, skylog_broker.bootstrap, [topic], settings)
    sizes = sorted(file.size_bytes for file in Table(tmp_path / topic).log().files())
    assert len(sizes) > 3
    assert sizes[-1] < 30_000


@in_proof
def test_each_portion_adds_one_file_of_its_hour_however_many_tasks_read_it(
    spark: SparkSession, skylog_broker: BrokerProcess, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = spark.newSession()  # the job makes one, which would plan as the session of the tests does
    session.conf.set("spark.sql.adaptive.enabled", "true")
    monkeypatch.setattr(type(spark), "newSession", lambda _: session)
    bootstrap, told = skylog_broker.bootstrap, list[Progress]()
    for hour in range(2):
        send(bootstrap, topic, range(1000 * hour, 1000 * hour + 1000), at_ms=NOON_MS + hour * HOUR_MS)
    settings = LandSettings(tmp_path, upkeep=None)
    options = {"minPartitions": "8"}
    land(spark, bootstrap, [topic], settings, report=told.append, max_offsets=500, options=options)
    files = Table(tmp_path / topic).log().files()
    assert [progress.records for progress in told] == [500] * 4
    rows = sorted((file.partition["event_hour"], file.rows) for file in files)
    assert rows == [(12, 500)] * 2 + [(13, 500)] * 2


@contextmanager
def landing(spark: SparkSession, bootstrap: str, topic: str, settings: LandSettings) -> Iterator[None]:
    """The job beside what happens in the block."""
    stop, failed = Event(), list[BaseException]()

    def run() -> None:
        try:
            land(spark, bootstrap, [topic], settings, schedule=CONTINUOUS, stop=stop, max_offsets=700)
        except BaseException as error:
            failed.append(error)

    thread = Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)
    assert not thread.is_alive()
    assert failed == []


@in_proof
def test_readers_never_see_a_wrong_number_while_increments_and_merges_run(
    spark: SparkSession, skylog_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    table, total = tmp_path / topic, proof(6000, 2100)
    settings = LandSettings(tmp_path, "id STRING", upkeep=UpkeepSettings(after_ms=0, every_s=0.05))
    send(skylog_broker.bootstrap, topic, range(total))
    sql = "SELECT count(*), count(DISTINCT id), count(DISTINCT (_partition, _offset)) FROM t"
    counts: list[int] = []
    with landing(spark, skylog_broker.bootstrap, topic, settings):
        wait_until(lambda: Table(table).exists(), "a table", 60)
        while not counts or counts[-1] < total:
            [(rows, ids, places)] = query(table, sql)
            assert rows == ids == places
            counts.append(rows)
            assert len(counts) < 5000
        wait_until(lambda: file_count(table) == 1, "one file for the hour", 30)
        assert Table(table).read(spark).count() == total
    assert counts == sorted(counts)
    assert any(each.operation == "OPTIMIZE" for each in Table(table).history())


COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "4000", "min.cleanable.dirty.ratio": "0.01"}


def test_offsets_that_compaction_has_left_without_a_record_are_no_loss(spark: SparkSession, tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with BrokerProcess(data_dir, {"log.cleaner.backoff.ms": "50"}) as broker:
        bootstrap = broker.bootstrap
        Admin(bootstrap).create_topic("users", partitions=1, configs=COMPACTED)
        for start in range(0, 400, 50):  # a batch is never divided among segments
            with Producer(bootstrap) as producer, producer.batch():
                for number in range(start, start + 50):
                    producer.send("users", event(number) if number % 3 else b"no event", key=str(number % 7))
        wait_until(lambda: len(consume(bootstrap, "users")) < 200, "compaction", 60)
    with BrokerProcess(data_dir, {"log.cleaner.enable": "false"}) as broker:  # the log stays as it is
        kept = sorted(message.offset for message in consume(broker.bootstrap, "users"))
        land(spark, broker.bootstrap, ["users"], LandSettings(tmp_path))
        sides = [tmp_path / "users", tmp_path / "users__unparsed"]
        assert sorted(row[0] for side in sides for row in query(side, "SELECT _offset FROM t")) == kept
        assert kept[-1] == 399


def test_records_that_are_in_the_log_and_not_in_the_files_are_an_error(
    spark: SparkSession, skylog_broker: BrokerProcess, topic: str
) -> None:
    send(skylog_broker.bootstrap, topic, range(10))
    increments = Increments(skylog_broker.bootstrap, [topic])
    increment = increments.next(None)
    assert increment is not None
    records = increments.frame(spark, increment)
    files = [written(range(3)), written(range(3, 5))]  # of partition 0 all, of partition 1 none
    with pytest.raises(TableError, match=rf"{topic}-1: the log has 5 records from offset 0 to 5, but 0 were"):
        is_complete({topic: files}, increment, records)
    assert is_complete({topic: files}, alone(increment, 0), records)
    assert not is_complete({topic: [*files, files[0]]}, alone(increment, 0), records)


def written(offsets: range) -> WrittenFile:
    """A file with these offsets of partition 0."""
    summary = [0, 0, len(offsets), 10, offsets[0], offsets[-1], sum(offsets)]
    return WrittenFile("t", "part.parquet", 100, len(offsets), {}, "{}", [[summary]], 0)


def alone(increment: Increment, partition: int) -> Increment:
    start = {key: offset for key, offset in increment.start.items() if key.partition == partition}
    return Increment(start, increment.end)


def test_the_command_lands_what_is_there_and_ends(
    commands: Commands, skylog_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    """In a warehouse whose path is not plain. The tutorial runs it as a process of its own."""
    bootstrap, warehouse = skylog_broker.bootstrap, tmp_path / "wé [x] a:b"
    send(bootstrap, topic, range(20))
    command = ["pipeline", "run", "land", topic, "--once", "--json", "--warehouse", warehouse, "--bootstrap", bootstrap]
    said = commands.run(*command, directory=tmp_path)
    assert [json.loads(line)["records"] for line in said.splitlines()] == [20]
    rows = query(warehouse / topic, "SELECT id, _partition, _offset FROM t")
    assert sorted(row[0] for row in rows) == [f"{number:08d}" for number in range(20)]
    assert len({row[1:] for row in rows}) == 20
    assert Table(warehouse / topic).offsets([topic]) == {TopicPartition(topic, number): 10 for number in (0, 1)}
    assert not Table(warehouse / f"{topic}__unparsed").exists()


def test_topics_of_all_sites_are_found_by_pattern(skylog_broker: BrokerProcess, topic: str) -> None:
    cluster = Cluster(skylog_broker.bootstrap)
    for name in (f"west.{topic}", f"east.{topic}", f"_own.{topic}", f"west.{topic}.more"):
        cluster.ensure_topic(name, 1)
    assert matching_topics(cluster, rf".*\.{topic}") == [f"east.{topic}", f"west.{topic}"]
    with pytest.raises(TableError, match="no topic of the cluster matches"):
        matching_topics(cluster, f"east.{topic}.")
    with pytest.raises(TableError, match="not a regular expression"):
        matching_topics(cluster, "*.clicks")


def test_without_topics_the_command_says_what_to_give(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["pipeline", "run", "land", "--warehouse", str(tmp_path), "--once"])
    assert (result.exit_code, "--pattern REGEX" in result.output) == (2, True)


def test_a_size_that_is_none_is_refused_before_spark_starts(topic: str, tmp_path: Path) -> None:
    command = ["pipeline", "run", "land", topic, "--warehouse", str(tmp_path), "--file-size", "many", "--once"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 2
    assert "is not a size" in result.output
