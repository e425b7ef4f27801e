"""Commits to Delta tables: files and offsets together, once, despite other writers and crashes."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from skylog.model import TopicPartition
from skylog.pipeline.delta.data_files import FileLayout, WrittenFile, write_batches
from skylog.pipeline.delta.errors import ConcurrentWriterError, TableError, TableSchemaError
from skylog.pipeline.delta.storage import Storage
from skylog.pipeline.delta.table_log import TableLog
from tests.pipeline.delta_readers import query

FIRST, SECOND = TopicPartition("views", 0), TopicPartition("views", 1)
SCHEMA = StructType.fromJson(
    {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}
)


def files(storage: Storage, *ids: int) -> list[WrittenFile]:
    return write_batches([pa.record_batch({"id": pa.array(ids, pa.int64())})], storage, FileLayout())


def test_files_and_offsets_are_committed_together(place: str) -> None:
    storage = Storage.of(f"{place}/{uuid.uuid4().hex}")
    assert TableLog.open(storage) is None
    log = TableLog.open_or_create(storage, SCHEMA)
    assert log.offsets(["views"]) == {}
    log.commit(files(storage, 1, 2), before={}, after={FIRST: 2, SECOND: 0})
    log.commit(files(storage, 3), before={FIRST: 2, SECOND: 0}, after={FIRST: 2, SECOND: 1})
    again = TableLog.open(storage)
    assert again is not None
    assert again.offsets(["views", "others"]) == {FIRST: 2, SECOND: 1}
    assert sorted(query(storage.uri, "SELECT id FROM t", storage_options=dict(storage.options))) == [(1,), (2,), (3,)]
    assert [(each.version, each.offsets) for each in again.history()] == [
        (2, {FIRST: 2, SECOND: 1}),
        (1, {FIRST: 2, SECOND: 0}),
        (0, None),
    ]


def test_of_two_writers_one_wins_and_the_other_is_told(place: str) -> None:
    storage = Storage.of(f"{place}/{uuid.uuid4().hex}")
    ahead = TableLog.open_or_create(storage, SCHEMA)
    behind = TableLog.open(storage)
    assert behind is not None
    late = files(storage, 1)
    ahead.commit(files(storage, 1), before={}, after={FIRST: 1})
    with pytest.raises(ConcurrentWriterError, match="another job is writing this table"):
        behind.commit(late, before={}, after={FIRST: 1})
    behind.refresh()
    with pytest.raises(ConcurrentWriterError, match="has views-0 up to offset 1, but this job expects 0"):
        behind.commit(late, before={}, after={FIRST: 1})
    assert query(storage.uri, "SELECT id FROM t", storage_options=dict(storage.options)) == [(1,)]


def test_jobs_of_other_topics_write_one_table(place: str) -> None:
    storage = Storage.of(f"{place}/{uuid.uuid4().hex}")
    one = TableLog.open_or_create(storage, SCHEMA)
    other = TableLog.open(storage)
    assert other is not None
    clicks = TopicPartition("clicks", 0)
    for number in range(3):
        one.commit(files(storage, number), before={FIRST: number} if number else {}, after={FIRST: number + 1})
        other.commit(files(storage, -number), before={clicks: number} if number else {}, after={clicks: number + 1})
    assert one.table.version() <= other.table.version()
    one.refresh()
    assert one.offsets(["views", "clicks"]) == {FIRST: 3, clicks: 3}
    assert len(one.files()) == 6


def test_of_two_that_replace_the_same_file_one_wins(tmp_path: Path) -> None:
    storage = Storage.of(tmp_path / "t")
    one = TableLog.open_or_create(storage, SCHEMA)
    one.commit(files(storage, 1), before={}, after={})
    other = TableLog.open(storage)
    assert other is not None
    one.commit(files(storage, 2), one.files(), before={}, after={})
    with pytest.raises(ConcurrentWriterError):
        other.commit(files(storage, 3), other.files(), before={}, after={})
    assert query(tmp_path / "t", "SELECT id FROM t") == [(2,)]


def test_a_file_is_not_replaced_after_an_optimization_has_merged_it(place: str) -> None:
    """Delta does not refuse it, and the merged file would keep the rows that were to be replaced."""
    storage = Storage.of(f"{place}/{uuid.uuid4().hex}")
    log = TableLog.open_or_create(storage, SCHEMA)
    for number in range(2):
        log.commit(files(storage, number), before={FIRST: number} if number else {}, after={FIRST: number + 1})
    touched, other = log.files()[:1], TableLog.open(storage)
    assert other is not None
    other.table.optimize.compact()
    with pytest.raises(ConcurrentWriterError):
        log.commit(files(storage, 7), touched, before={FIRST: 2}, after={FIRST: 3}, is_fenced=True)
    log.refresh()
    log.commit(files(storage, 7), log.files(), before={FIRST: 2}, after={FIRST: 3}, is_fenced=True)
    assert query(storage.uri, "SELECT id FROM t", storage_options=dict(storage.options)) == [(7,)]


def test_columns_may_be_added_and_keep_their_types(tmp_path: Path) -> None:
    storage = Storage.of(tmp_path / "t")
    log = TableLog.open_or_create(storage, SCHEMA)
    log.commit(files(storage, 1), before={}, after={})
    log.grow(StructType.fromJson(fields(id="long", name="string")))
    assert log.schema.names == ["id", "name"]
    assert query(tmp_path / "t", "SELECT id, name FROM t") == [(1, None)]
    with pytest.raises(TableSchemaError, match="column 'id' is bigint and cannot become string"):
        log.grow(StructType.fromJson(fields(id="string")))
    with pytest.raises(TableSchemaError, match="column 'a b': names must not contain spaces"):
        log.grow(StructType.fromJson(fields(**{"a b": "string"})))
    with pytest.raises(TableSchemaError, match="column 'gone' is void, which a table cannot store"):
        log.grow(StructType.fromJson(fields(gone="void")))


def fields(**kinds: str) -> dict[str, object]:
    rows = [{"name": name, "type": kind, "nullable": False, "metadata": {}} for name, kind in kinds.items()]
    return {"type": "struct", "fields": rows}


def test_earlier_versions_are_found_by_number_time_and_offsets(tmp_path: Path) -> None:
    storage = Storage.of(tmp_path / "t")
    log = TableLog.open_or_create(storage, SCHEMA)
    for number in range(3):
        log.commit(files(storage, number), before={FIRST: number} if number else {}, after={FIRST: number + 1})
    assert len(log.travel(version=1).files()) == 1
    assert len(log.travel(offsets={FIRST: 2}).files()) == 2
    times = [each.time_ms for each in log.history()]
    assert len(log.travel(time_ms=times[0] + 1).files()) == 3
    with pytest.raises(TableError, match="version 9 does not exist; the newest is 3"):
        log.travel(version=9)
    with pytest.raises(TableError, match="no version ends before these offsets"):
        log.travel(offsets={FIRST: 0})


def test_offsets_of_a_shared_table_and_of_a_stream(tmp_path: Path) -> None:
    """A commit names the partitions of its own job. The others have what earlier commits have named."""
    storage = Storage.of(tmp_path / "t")
    log, clicks = TableLog.open_or_create(storage, SCHEMA), TopicPartition("clicks", 0)
    log.commit(files(storage, 1), before={}, after={FIRST: 10})
    log.commit(files(storage, 2), before={}, after={clicks: 5})
    log.commit(files(storage, 3), before={FIRST: 10}, after={FIRST: 20})
    log.commit(files(storage, 4), before={clicks: 5}, after={clicks: 6})
    log.table.optimize.compact()
    assert log.travel(offsets={FIRST: 15}).version == 2
    assert log.travel(offsets={clicks: 5}).version == 3
    assert log.travel(offsets={FIRST: 15, clicks: 9}).version == 2
    assert log.travel(offsets={FIRST: 20, clicks: 6}).version == 5
    with pytest.raises(TableError, match="no version ends before these offsets"):
        log.travel(offsets={FIRST: 9})
    with pytest.raises(TableError, match="no version ends before these offsets"):
        log.travel(offsets={FIRST: 15, clicks: 4})
    stream = TableLog.open_or_create(Storage.of(tmp_path / "stream"), SCHEMA)
    stream.commit(files(stream.storage, 1), before={}, after={TopicPartition("stream.7f", 0): 1})
    with pytest.raises(TableError, match=r"no version has offsets of views-0; there are some of stream\.7f"):
        stream.travel(offsets={FIRST: 100})


def test_of_two_fenced_commits_of_one_version_one_wins(place: str) -> None:
    """They have no file and no partition in common, but both have rewritten the rows of the same version."""
    storage = Storage.of(f"{place}/{uuid.uuid4().hex}")
    one, clicks = TableLog.open_or_create(storage, SCHEMA), TopicPartition("clicks", 0)
    other = TableLog.open(storage)
    assert other is not None
    one.commit(files(storage, 1), before={}, after={FIRST: 1}, is_fenced=True)
    with pytest.raises(ConcurrentWriterError):
        other.commit(files(storage, 1), before={}, after={clicks: 1}, is_fenced=True)
    other.refresh()
    assert other.fence == one.fence == 1
    other.commit(files(storage, 2), before={}, after={clicks: 1}, is_fenced=True)
    assert other.fence == 2


@pytest.mark.parametrize("made", [["current/rows.parquet", "versions/1/x"], ["../_skylog/t/log/1.json", "x=1/a"]])
def test_a_table_of_the_old_form_is_refused_with_what_to_do(tmp_path: Path, made: list[str]) -> None:
    for each in made:
        (tmp_path / "t" / each).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "t" / each).touch()
    with pytest.raises(TableError, match=r"an earlier version of skylog.*run the job with another directory"):
        TableLog.open(Storage.of(tmp_path / "t"))


def test_a_table_that_another_job_is_creating_is_not_there_yet(tmp_path: Path) -> None:
    storage = Storage.of(tmp_path / "t")
    (tmp_path / "t" / "_delta_log").mkdir(parents=True)
    (tmp_path / "t" / "_delta_log" / "_commit_1.json.tmp").touch()
    assert TableLog.open(storage) is None
    assert TableLog.open_or_create(storage, SCHEMA).version == 0
    for commit in (tmp_path / "t" / "_delta_log").glob("*.json"):
        commit.write_text("{}")
    with pytest.raises(TableError):
        TableLog.open(storage)


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "diary.txt").touch()
    for path in (tmp_path, tmp_path / "diary.txt"):
        with pytest.raises(TableError, match="use a new directory"):
            TableLog.open(Storage.of(path))


def test_other_stores_are_refused_by_name() -> None:
    with pytest.raises(TableError, match="'hdfs://host/t': tables are in a directory or in an S3-compatible store"):
        Storage.of("hdfs://host/t")
    with pytest.raises(TableError, match="must not contain '%'"):
        Storage.of("/tmp/100%")
    with pytest.raises(TableError, match="use the path alone, such as /tmp/t"):
        Storage.of("file:///tmp/t")


def test_a_writer_that_dies_at_any_step_has_committed_all_or_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.pipeline.delta.dying_writer", str(tmp_path / "t")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["deaths"] > 5


def test_the_error_of_a_store_is_plain_text() -> None:
    options = {"aws_endpoint_url": "http://127.0.0.1:1", "aws_allow_http": "true", "aws_region": "none"}
    login = {"aws_access_key_id": "none", "aws_secret_access_key": "none", "max_retries": "0"}
    with pytest.raises(TableError, match=r"^s3://nothing/here: .*: tcp connect error: Connection refused") as found:
        TableLog.open(Storage("s3://nothing/here", {**options, **login}))
    assert str(found.value).isprintable()
