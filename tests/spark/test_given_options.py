"""Topics in SQL: a view is read and written. And options that are not meant for a topic."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from skylog.config import settings
from skylog.spark.errors import OptionError
from skylog.spark.given_options import SINK_ONLY
from skylog.spark.reading.options import ReadOptions, read_options
from skylog.spark.writing.write_options import WriteOptions
from skylog.testing import produce
from tests.spark.conftest import Topics


@pytest.fixture
def view(topics: Topics, skylog_topic: str, tmp_path: Path) -> Iterator[str]:
    """A view of the topic, which has the values a and b."""
    produce(topics.bootstrap, skylog_topic, [b"a", b"b"])
    name = f"view_{uuid.uuid4().hex[:8]}"
    options = {
        "kafka.bootstrap.servers": topics.bootstrap,
        "subscribe": skylog_topic,
        "topic": skylog_topic,
        "stagingLocation": str(tmp_path / "staging"),
    }
    listed = ", ".join(f"`{key}` '{value}'" for key, value in options.items())
    topics.spark.sql(f"CREATE TEMPORARY VIEW {name} USING skylog OPTIONS ({listed})")
    yield name
    topics.spark.sql(f"DROP VIEW {name}")


def test_a_view_is_read_and_written(topics: Topics, view: str) -> None:
    rows = topics.spark.sql(f"SELECT CAST(value AS STRING) AS text, offset FROM {view} ORDER BY offset").collect()
    assert [tuple(row) for row in rows] == [("a", 0), ("b", 1)]
    topics.spark.sql(f"INSERT INTO {view} (key, value) VALUES (CAST('k' AS BINARY), CAST('c' AS BINARY))")
    rows = topics.spark.sql(f"SELECT CAST(key AS STRING), CAST(value AS STRING) FROM {view} WHERE offset = 2").collect()
    assert [tuple(row) for row in rows] == [("k", "c")]


def test_a_table_is_refused_with_what_to_use_instead(topics: Topics, skylog_topic: str) -> None:
    options = f"`kafka.bootstrap.servers` '{topics.bootstrap}', subscribe '{skylog_topic}'"
    with pytest.raises(PySparkException, match=r"use CREATE TEMPORARY VIEW .* instead of CREATE TABLE"):
        topics.spark.sql(f"CREATE TABLE refused USING skylog OPTIONS ({options})")


def test_a_write_without_a_mode_is_refused_by_spark(topics: Topics, skylog_topic: str) -> None:
    """A difference that docs/spark.md lists. If this fails, Spark has changed, and the page with it."""
    rows = topics.spark.range(1).selectExpr("'x' value").write.format("skylog").option("topic", skylog_topic)
    with pytest.raises(PySparkException, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        rows.option("kafka.bootstrap.servers", topics.bootstrap).save()


def test_a_path_is_refused() -> None:
    with pytest.raises(OptionError, match="a topic has no path: remove 'page_views'"):
        read_options({"kafka.bootstrap.servers": "127.0.0.1:9092", "path": "page_views"}, is_stream=False)


def test_the_options_of_the_sink_alone_are_known_to_the_source() -> None:
    both = {key.lower() for key in settings(ReadOptions)}
    assert {key.lower() for key in settings(WriteOptions)} - both == SINK_ONLY
