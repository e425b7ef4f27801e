"""The lag of a stream, from its progress; and what Spark does not let a source in Python report."""

from __future__ import annotations

from pathlib import Path

from skylog.spark.progress import source_metrics
from skylog.testing import produce
from tests.spark.conftest import Topics


def test_the_metrics_are_those_of_sparks_kafka_source(topics: Topics, skylog_topic: str, tmp_path: Path) -> None:
    produce(topics.bootstrap, skylog_topic, [b"a", b"b", b"c"])
    rows = topics.stream(skylog_topic, startingOffsets="earliest", maxOffsetsPerTrigger=1)
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    behind = [source_metrics(progress)[0] for progress in query.recentProgress if progress.numInputRows]
    assert [metrics["maxOffsetsBehindLatest"] for metrics in behind] == ["2", "1", "0"]
    assert behind[0] == {
        "minOffsetsBehindLatest": "2",
        "maxOffsetsBehindLatest": "2",
        "avgOffsetsBehindLatest": "2.0",
    }
    # The differences that docs/spark.md lists. If one of these fails, Spark has changed, and the page with it.
    (source,) = query.recentProgress[0].sources
    assert source.metrics == {}
    assert source.description.startswith("org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStream")


def test_a_source_that_is_not_a_topic_has_no_metrics(topics: Topics, tmp_path: Path) -> None:
    rows = topics.spark.readStream.format("rate").load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    query = writer.trigger(once=True).start()
    query.awaitTermination()
    assert all(source_metrics(progress) == [{}] for progress in query.recentProgress)
