"""A database and a broker for the tests of captures."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from skylog.testing import BrokerProcess
from tests.capture.captured import Captured
from tests.capture.postgres import Postgres, postgres_with_logical_decoding


@pytest.fixture(scope="session")
def server() -> Iterator[Postgres]:
    with postgres_with_logical_decoding() as found:
        yield found


@pytest.fixture
def database(server: Postgres) -> Iterator[str]:
    """The URL of a new database."""
    name = f"d{uuid.uuid4().hex[:8]}"
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    yield server.url(name)
    with psycopg.connect(server.url(), autocommit=True) as connection:
        for (slot,) in connection.execute(
            "SELECT slot_name FROM pg_replication_slots WHERE database = %s AND NOT active", (name,)
        ).fetchall():
            connection.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def captured(database: str, skylog_broker: BrokerProcess, tmp_path: Path) -> Iterator[Callable[..., Captured]]:
    """Makes captures of the database, which end with the test."""
    made: list[Captured] = []

    def make(tables: str, **options: Any) -> Captured:
        prefix = f"c{uuid.uuid4().hex[:8]}"
        log = tmp_path / f"{prefix}.log"
        made.append(Captured(database, skylog_broker.bootstrap, tables, prefix, log, **options))
        return made[-1]

    yield make
    for each in made:
        each.kill()
