"""The session that jobs run in: the format is found in it, in whatever thread."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from skylog.spark.session import make_active, register_format
from skylog.testing import BrokerProcess, consume


def test_a_thread_writes_once_the_session_is_active_in_it(
    spark: SparkSession, skylog_broker: BrokerProcess, skylog_topic: str, tmp_path: Path
) -> None:
    rows = spark.range(3).selectExpr("cast(id AS string) value")
    options = {"kafka.bootstrap.servers": skylog_broker.bootstrap, "topic": skylog_topic}

    def write() -> None:
        rows.write.format("skylog").options(**options, stagingLocation=str(tmp_path)).mode("append").save()

    def write_when_active() -> None:
        make_active(spark)
        write()

    with ThreadPoolExecutor(1) as thread:
        with pytest.raises(Py4JJavaError, match="DATA_SOURCE_NOT_FOUND"):
            thread.submit(write).result()
        thread.submit(write_when_active).result()
    assert sorted(message.value for message in consume(skylog_broker.bootstrap, skylog_topic)) == [b"0", b"1", b"2"]


def test_a_format_that_spark_has_found_is_not_registered_twice(spark: SparkSession) -> None:
    for _ in range(2):
        register_format(spark)
