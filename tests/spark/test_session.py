"""The session of jobs: every thread finds the format."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from skylog.java import RequirementError
from skylog.spark.session import make_active, register_format, start_session
from skylog.testing import BrokerProcess, consume
from tests.proof import IS_FULL


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
    assert sorted(message.text() for message in consume(skylog_broker.bootstrap, skylog_topic)) == ["0", "1", "2"]


def test_without_java_the_error_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RequirementError, match="Spark requires Java 17 or later, but none was found"):
        start_session("jobs")


def test_a_format_that_spark_has_found_is_not_registered_twice(spark: SparkSession) -> None:
    for _ in range(2):
        register_format(spark)


@pytest.mark.timeout(600)
@pytest.mark.skipif(not IS_FULL, reason="with `make proof`: a JVM of its own")
def test_a_registered_format_does_not_depend_on_sparks_search_for_formats(
    skylog_broker: BrokerProcess, skylog_topic: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "tests.spark.failed_lookup", skylog_broker.bootstrap, skylog_topic, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert all("DATA_SOURCE_NOT_FOUND" in outcome for outcome in found["before"])
    assert len(found["lookups"]) == 1  # Spark does not try again
    assert found["after"] == ["3", "3"]


def test_a_connection_to_the_jvm_that_was_lost_leaves_no_active_session_until_it_is_set(
    spark: SparkSession, skylog_broker: BrokerProcess, skylog_topic: str, tmp_path: Path
) -> None:
    """py4j replaces a broken connection silently, and with it the thread of the JVM that knew the session."""
    writer = spark.range(1).selectExpr("'x' value").write.format("skylog").mode("append")
    writer = writer.options(**{"kafka.bootstrap.servers": skylog_broker.bootstrap, "topic": skylog_topic})
    writer = writer.option("stagingLocation", str(tmp_path))
    gateway: Any = spark.sparkContext._gateway
    gateway._gateway_client.get_thread_connection().socket.shutdown(socket.SHUT_RDWR)
    with pytest.raises(Py4JJavaError, match="DATA_SOURCE_NOT_FOUND"):
        writer.save()
    make_active(spark)
    writer.save()
    assert [message.value for message in consume(skylog_broker.bootstrap, skylog_topic)] == [b"x"]
