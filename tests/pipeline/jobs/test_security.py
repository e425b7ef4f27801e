"""Bursts of failed logins are flagged by user and by address, in event time, also from late events."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from skylog.errors import ConfigError
from skylog.pipeline.jobs.security import LoginWindows, security, security_job
from skylog.testing import BrokerProcess
from tests.pipeline.jobs.logged_events import Logged, send

WINDOWS = LoginWindows(failures=3, length_ms=60_000, slide_ms=30_000, late_ms=300_000)


def failed(at_s: float, name: str | None, address: str | None, event: str = "user.login_failed") -> Logged:
    return Logged(at_s, event, None, {"name": name, "address": address})


def test_windows_with_enough_failures_are_flagged_and_late_events_count(
    spark: SparkSession, skylog_broker: BrokerProcess, event_topic: str, tmp_path: Path
) -> None:
    bootstrap, path = skylog_broker.bootstrap, tmp_path / "security.db"
    job = security_job([event_topic], f"sqlite:///{path}", windows=WINDOWS)

    def run(*logins: Logged) -> dict[str, Any]:
        """Failures, others and logins of the flagged windows."""
        send(bootstrap, event_topic, logins)
        job.run(spark, bootstrap, once=True, state=tmp_path / "state")
        with closing(sqlite3.connect(path)) as connection:
            columns = "kind || ' ' || who || ' ' || substr(window_start, 12, 8), failures, others, logins"
            rows = connection.execute(f"SELECT {columns} FROM suspicious_logins").fetchall()
        return {key: tuple(counts) for key, *counts in rows}

    first = run(
        failed(721, "ada", "10.0.0.1"),
        failed(722, "bob", "10.0.0.1"),
        failed(760, "cyd", "10.0.0.1"),  # the third of this address between 12:12:00 and 12:13:00
        failed(761, "ada", "10.0.0.2"),
        failed(762, "ada", "10.0.0.2", "user.login"),
        failed(838, "fay", "10.1.0.1"),
        failed(838, "fay", "10.1.0.2"),
        failed(852, "fay", None),  # across the border of minutes
        failed(1000, "dan", "10.0.0.9"),  # moves the watermark to 12:11:40
    )
    assert first == {"address 10.0.0.1 12:12:00": (3, 3, 0), "user fay 12:13:30": (3, 2, 0)}
    too_late = [failed(2 + number, "eve", "10.0.0.7") for number in range(5)]
    second = run(*too_late, failed(740, "ada", "10.0.0.3"))  # the third of ada, in a window that is still open
    assert second == {**first, "user ada 12:12:00": (3, 3, 1)}


def test_a_name_that_somebody_has_typed_is_cut_to_the_length_of_a_key(spark: SparkSession) -> None:
    at = datetime(2026, 3, 1, 12, tzinfo=UTC)
    rows = [("user.login_failed", at, {"name": "x" * 3000, "address": "y" * 3000}) for _ in range(3)]
    events = spark.createDataFrame(rows, "event STRING, timestamp TIMESTAMP, attributes MAP<STRING, STRING>")
    found = security(events, WINDOWS).collect()
    assert {row.who for row in found} == {"x" * 255, "y" * 255}


def test_windows_must_not_have_gaps() -> None:
    with pytest.raises(ConfigError, match="must not be shorter than its slide"):
        LoginWindows(length_ms=1000, slide_ms=2000)
