"""`writeStream.format("skylog")`: every micro-batch once, also where the driver is killed in the middle."""

from __future__ import annotations

import pickle
import uuid
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.types import StringType, StructField, StructType

from skylog.client import Admin
from skylog.spark.source import SkylogSource
from skylog.testing import consume, produce
from tests.present import present
from tests.proof import in_proof, some
from tests.spark.conftest import Topics


@pytest.fixture
def source(skylog_admin: Admin) -> str:
    name = f"source-{uuid.uuid4().hex[:8]}"
    skylog_admin.create_topic(name, 2)
    return name


@pytest.fixture
def target(skylog_admin: Admin) -> str:
    name = f"target-{uuid.uuid4().hex[:8]}"
    skylog_admin.create_topic(name, 2)
    return name


def copy(topics: Topics, source: str, target: str, checkpoint: Path, **options: Any) -> None:
    """Copy the available records, two offsets at a time."""
    rows = topics.stream(source, startingOffsets="earliest", maxOffsetsPerTrigger=2).select("key", "value")
    writer = rows.writeStream.format("skylog").option("kafka.bootstrap.servers", topics.bootstrap)
    writer = writer.option("topic", target).option("checkpointLocation", str(checkpoint)).options(**options)
    writer.trigger(availableNow=True).start().awaitTermination()


def values(topics: Topics, topic: str) -> list[bytes]:
    return sorted(present(message.value) for message in consume(topics.bootstrap, topic))


def newest(directory: Path) -> Path:
    return max(directory.glob("[0-9]*"), key=lambda path: int(path.name))


def test_a_stream_is_written_and_goes_on(topics: Topics, source: str, target: str, tmp_path: Path) -> None:
    produce(topics.bootstrap, source, [b"a", b"b", b"c"])
    copy(topics, source, target, tmp_path)
    produce(topics.bootstrap, source, [b"d"])
    copy(topics, source, target, tmp_path)
    assert values(topics, target) == [b"a", b"b", b"c", b"d"]
    (directory,) = (tmp_path / "skylog-sink").iterdir()
    assert sorted(path.name for path in directory.iterdir()) == ["lock", "manifest.json"]


@pytest.mark.parametrize(
    ("with_staging", "transactional"), some([(False, False), (True, True), (True, False)], usual=2)
)
def test_a_micro_batch_whose_end_spark_does_not_know_is_not_written_again(
    topics: Topics, source: str, target: str, tmp_path: Path, with_staging: bool, transactional: bool
) -> None:
    options: dict[str, Any] = {"stagingLocation": (tmp_path / "staging").as_uri()} if with_staging else {}
    options["transactional"] = transactional
    produce(topics.bootstrap, source, [b"a", b"b", b"c"])
    copy(topics, source, target, tmp_path / "checkpoint", **options)
    newest(tmp_path / "checkpoint" / "commits").unlink()
    for crc in (tmp_path / "checkpoint" / "commits").glob(".*.crc"):
        crc.unlink()
    copy(topics, source, target, tmp_path / "checkpoint", **options)
    assert values(topics, target) == [b"a", b"b", b"c"]
    assert (tmp_path / "staging").exists() == with_staging


@in_proof
def test_a_query_with_a_new_checkpoint_writes_everything_again(
    topics: Topics, source: str, target: str, tmp_path: Path
) -> None:
    produce(topics.bootstrap, source, [b"a", b"b", b"c"])
    for checkpoint in ("first", "second"):
        copy(topics, source, target, tmp_path / checkpoint, stagingLocation=str(tmp_path / "staging"))
    assert values(topics, target) == [b"a", b"a", b"b", b"b", b"c", b"c"]


def test_a_query_without_a_topic_is_refused(topics: Topics, source: str, tmp_path: Path) -> None:
    produce(topics.bootstrap, source, [b"a"])
    rows = topics.stream(source, startingOffsets="earliest").select("value")
    writer = rows.writeStream.format("skylog").option("kafka.bootstrap.servers", topics.bootstrap)
    with pytest.raises(StreamingQueryException, match="no topic is set"):
        writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start().awaitTermination()


def test_a_relative_checkpoint_is_relative_to_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Executors have working directories of their own: files there would not be found, and never be removed."""
    driver, executor = tmp_path / "driver", tmp_path / "executor"
    for directory in (driver, executor):
        directory.mkdir()
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "checkpointLocation": "checkpoint"}
    monkeypatch.chdir(driver)
    sent = pickle.dumps(SkylogSource(given).streamWriter(StructType([StructField("value", StringType())]), False))
    monkeypatch.chdir(executor)
    assert pickle.loads(sent)._directory("query") == driver / "checkpoint" / "skylog-sink" / "query"
