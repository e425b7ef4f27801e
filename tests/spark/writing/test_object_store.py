"""Staged files in an object store: writes from executors that share no disk with the driver."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow import fs
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from skylog.spark.errors import OptionError
from skylog.spark.writing.object_store import ObjectStore
from skylog.testing import BrokerProcess, consume

from .sink_staged import stage_values

ThreadedMotoServer = pytest.importorskip("moto.server", reason="pip install 'moto[server]'").ThreadedMotoServer

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """A bucket of a server on this machine, as a URI. Its address and the credentials are in the URI."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    query = f"scheme=http&endpoint_override={host}:{port}&region=us-east-1&allow_bucket_creation=true"
    uri = f"s3://test:test@staging-{uuid.uuid4().hex[:8]}"
    files, path = fs.FileSystem.from_uri(f"{uri}?{query}")
    files.create_dir(path)
    yield f"{uri}/sink?{query}"
    server.stop()


def names(location: str) -> list[str]:
    files, path = fs.FileSystem.from_uri(location)
    return [found.base_name for found in files.get_file_info(fs.FileSelector(path, allow_not_found=True))]


def test_a_file_moves_to_the_store_and_comes_back_unchanged(bucket: str, tmp_path: Path) -> None:
    staged = stage_values(tmp_path, "t", [b"%d" % number for number in range(50)])
    content = Path(staged.path).read_bytes()
    store = ObjectStore(bucket)
    moved = store.upload(staged)
    assert not Path(staged.path).exists()
    assert names(bucket) == [Path(staged.path).name]
    empty = stage_values(tmp_path, "t", [])
    with store.downloaded([moved, store.upload(empty)]) as (copy, nothing):
        assert Path(copy.path).read_bytes() == content
        assert copy.batches == staged.batches
        assert nothing == empty
    assert not Path(copy.path).exists()
    store.remove([moved, empty])
    assert names(bucket) == []


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_a_batch_is_written_through_the_store(
    spark: SparkSession, skylog_broker: BrokerProcess, skylog_topic: str, bucket: str, scheme: str
) -> None:
    rows = spark.range(0, 1000, 1, 3).selectExpr("cast(id AS string) value").write.format("skylog").mode("append")
    rows = rows.options(**{"kafka.bootstrap.servers": skylog_broker.bootstrap, "topic": skylog_topic})
    rows.option("stagingLocation", bucket.replace("s3:", f"{scheme}:", 1)).save()
    assert sorted(int(each.text()) for each in consume(skylog_broker.bootstrap, skylog_topic)) == [*range(1000)]
    assert names(bucket) == []


def test_a_stream_with_transactions_is_written_through_the_store(
    spark: SparkSession, skylog_broker: BrokerProcess, skylog_topic: str, bucket: str, tmp_path: Path
) -> None:
    """A driver that dies in a micro-batch leaves files, which the next attempt deletes. It stores nothing twice."""
    at = {"kafka.bootstrap.servers": skylog_broker.bootstrap}
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    source.mkdir()

    def run() -> str:
        rows = spark.readStream.format("text").load(str(source)).writeStream.format("skylog")
        rows = rows.options(**at, topic=skylog_topic, stagingLocation=bucket, checkpointLocation=str(checkpoint))
        query = rows.option("transactional", "true").trigger(availableNow=True).start()
        query.awaitTermination()
        return str(query.id)

    def values() -> list[str]:
        return [each.text() for each in consume(skylog_broker.bootstrap, skylog_topic)]

    for number in range(2):
        (source / f"{number}.txt").write_text(f"{number}\n")
        folder = run()
    store = bucket.replace("/sink?", f"/sink/{folder}?")
    assert (values(), names(store)) == (["0", "1"], [])
    left = ObjectStore(bucket, folder).upload(stage_values(tmp_path, "t", [b"left"], batch_id=1))
    assert names(store) == [Path(left.path).name]
    for name in ("1", ".1.crc"):  # as if Spark had died before it knew that the micro-batch is done
        (checkpoint / "commits" / name).unlink()
    assert run() == folder
    assert (values(), names(store)) == (["0", "1"], [])


def test_a_stream_is_refused_with_what_to_do(
    spark: SparkSession, skylog_broker: BrokerProcess, skylog_topic: str, bucket: str, tmp_path: Path
) -> None:
    at = {"kafka.bootstrap.servers": skylog_broker.bootstrap}
    rows = spark.readStream.format("rate").load().selectExpr("cast(value AS string) value").writeStream.format("skylog")
    rows = rows.options(**at, topic=skylog_topic, stagingLocation=bucket, checkpointLocation=str(tmp_path))
    with pytest.raises(PySparkException, match="Set transactional=true"):
        rows.trigger(once=True).start().awaitTermination()


def test_a_store_that_pyarrow_does_not_know_is_refused() -> None:
    with pytest.raises(OptionError, match="stagingLocation=dbfs:/x: expected a directory that the driver"):
        ObjectStore("dbfs:/x")
