"""The command `skylog capture`, its status and its metrics."""

from __future__ import annotations

import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from dataclasses import replace

import psycopg
import pytest
from typer.testing import CliRunner

from skylog.capture.replication import conninfo
from skylog.capture.table import CaptureError
from skylog.cli.capture import app
from skylog.client import Admin
from skylog.job_status import JOBS_TOPIC, JobState, JobStatus
from skylog.testing import consume, wait_until
from tests.capture.captured import Captured
from tests.capture.postgres import postgres_with_logical_decoding

Make = Callable[..., Captured]
PATIENCE_S = 120


def test_the_command_captures_shows_its_metrics_and_its_status_and_drops(database: str, captured: Make) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY)")
        connection.execute("INSERT INTO t SELECT * FROM generate_series(1, 7)")
    capture = captured("public.t")
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    capture.start("--metrics-port", str(port), "--json")
    wait_until(lambda: '"is_snapshot_done": true' in capture.log() or not capture.is_running, "rows", PATIENCE_S)
    assert capture.is_running, capture.log()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as response:
        metrics = response.read().decode()
    assert f'skylog_capture_rows_total{{prefix="{capture.prefix}"}} 7.0' in metrics
    assert f'skylog_capture_slot_bytes{{prefix="{capture.prefix}"}}' in metrics
    wait_until(lambda: status_of(capture).records_total == 7, "the status", PATIENCE_S)
    capture.stop()
    status = status_of(capture)
    assert (status.state, status.kind, status.topics) == (
        JobState.STOPPED,
        "capture",
        (f"{capture.prefix}.public.t",),
    )
    assert status.slot_bytes is not None
    command = [sys.executable, "-m", "skylog.cli.main", "capture", "drop", database, "--prefix", capture.prefix]
    done = subprocess.run(
        [*command, "--yes", "--bootstrap", capture.bootstrap], capture_output=True, text=True, check=True
    )
    assert f"dropped slot skylog_{capture.prefix}, publication" in done.stderr
    assert f"_skylog_capture.{capture.prefix}" not in {topic.name for topic in Admin(capture.bootstrap).list_topics()}


def status_of(capture: Captured) -> JobStatus:
    found = [JobStatus.decode(message.value or b"") for message in consume(capture.bootstrap, JOBS_TOPIC)]
    return next(status for status in reversed(found) if status.name.endswith(f"-> {capture.prefix}"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--format", "xml"], "expected json or avro"),
        (["--format", "avro"], "--registry URL"),
        (["--registry", "http://127.0.0.1:8081"], "--format avro"),
    ],
)
def test_a_format_without_what_it_needs_is_refused(options: list[str], words: str) -> None:
    command = ["postgresql:///none", "--tables", "public.t", "--prefix", "c", *options]
    done = CliRunner().invoke(app, command, env={"COLUMNS": "200"})
    assert (done.exit_code, words in done.output) == (2, True), done.output


@pytest.mark.parametrize(
    "url",
    [
        "postgre://u:secret@h/db",
        "postgresql://u:%zzsecret@h/db",
        "postgresql://u:a secret@h",
        "postgresql://u:secret@[h",
    ],
)
def test_a_password_is_in_no_error_about_the_address(url: str) -> None:
    with pytest.raises(CaptureError, match="not the address of a database") as refused:
        conninfo(url)
    assert "secret" not in str(refused.value)


def test_the_registry_may_be_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    command = [
        "postgre:///none",
        "--tables",
        "public.t",
        "--prefix",
        "c",
        "--format",
        "avro",
        "--bootstrap",
        "127.0.0.1:1",
    ]
    monkeypatch.setenv("SKYLOG_REGISTRY", "http://127.0.0.1:8081")
    done = CliRunner().invoke(app, command)
    assert "belong together" not in done.output
    assert "not the address of a database" in str(done.exception), done.output


def test_a_server_without_logical_decoding_is_an_error_with_the_fix(captured: Make) -> None:
    with postgres_with_logical_decoding(wal_level="replica") as server:
        capture = captured("public.t")
        capture.settings = replace(capture.settings, url=server.url())
        with pytest.raises(CaptureError, match="ALTER SYSTEM SET wal_level = logical"):
            capture.catch_up()


def test_a_slot_that_fell_behind_is_an_error_with_the_fix(captured: Make) -> None:
    """The server removes what the slot needs, as `max_slot_wal_keep_size` says."""
    with postgres_with_logical_decoding(
        max_slot_wal_keep_size="1MB", min_wal_size="32MB", max_wal_size="32MB"
    ) as server:
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute("CREATE TABLE t (id int PRIMARY KEY)")
            capture = captured("public.t")
            capture.settings = replace(capture.settings, url=server.url())
            capture.catch_up()
            for _ in range(5):
                connection.execute("SELECT pg_switch_wal()")
                connection.execute("INSERT INTO t SELECT coalesce(max(id), 0) + 1 FROM t")
            connection.execute("CHECKPOINT")
        with pytest.raises(CaptureError, match=r"fell so far behind.*max_slot_wal_keep_size.*skylog capture drop"):
            capture.catch_up()
