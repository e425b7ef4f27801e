"""A table of PostgreSQL, captured and materialized as a Delta table and in another database: equal row for row."""

from __future__ import annotations

import random
from pathlib import Path
from threading import Event
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from skylog.capture.capture import CaptureSettings, EnvelopeName
from skylog.capture.plan import Limits
from skylog.capture.service import run_capture
from skylog.pipeline.jobs.materialize import materialize_into_database, materialize_job
from skylog.pipeline.table import Table
from skylog.testing import BrokerProcess
from tests.capture.captured import InterruptionError, run_until
from tests.capture.postgres import postgres_with_logical_decoding

ROUNDS = 4
SCHEMA = "id INT, name STRING, price DECIMAL(10, 2), ok BOOLEAN"
ROWS = "SELECT id, name, price, ok FROM users ORDER BY id"

State = list[tuple[Any, ...]]
"""The rows of the table at a moment."""


def test_a_captured_table_is_materialized_row_for_row_whenever_the_capture_ends(
    spark: SparkSession, skylog_broker: BrokerProcess, tmp_path: Path
) -> None:
    """Each time the capture dies somewhere, and both tables are what the source was after one of its transactions."""
    drawn = random.Random(3)
    table = tmp_path / "users"
    with postgres_with_logical_decoding() as server, psycopg.connect(server.url(), autocommit=True) as database:
        database.execute("CREATE TABLE users (id int PRIMARY KEY, name text, price numeric(10, 2), ok boolean)")
        settings = CaptureSettings(
            server.url(),
            ["public.users"],
            "row-for-row",
            skylog_broker.bootstrap,
            EnvelopeName.PLAIN,
            partitions=2,
            limits=Limits(records=1),
        )
        run_capture(settings, Event(), lambda _: None, once=True)  # from now on it streams
        database.execute("CREATE DATABASE copy")
        topic, copy = "row-for-row.public.users", server.url("copy")
        jobs = (
            materialize_job(skylog_broker.bootstrap, topic, table, SCHEMA, history=False),
            materialize_into_database(topic, copy, "users", SCHEMA),
        )
        states: list[State] = []
        for number in range(1, ROUNDS + 1):
            states += change(database, drawn)
            if number < ROUNDS:
                with pytest.raises(InterruptionError):
                    run_until(settings, rows=drawn.randrange(60, 100))
            else:
                run_capture(settings, Event(), lambda _: None, once=True)
            for job in jobs:
                job.run(spark, skylog_broker.bootstrap, once=True)
            found = sorted(map(tuple, Table(table).read(spark).select("id", "name", "price", "ok").collect()))
            with psycopg.connect(copy) as other:
                assert other.execute(ROWS).fetchall() == found
            assert len(found) > 5
            assert found in states, f"round {number}"
            del states[: states.index(found)]  # it never goes back
        assert found == states[-1] == database.execute(ROWS).fetchall()


def change(database: psycopg.Connection, drawn: random.Random) -> list[State]:
    """Change rows, and return the rows after each transaction."""
    states = []
    for _ in range(40):
        with database.transaction():
            for _ in range(drawn.choice((1, 2, 5))):
                change_row(database, drawn)
        states.append(database.execute(ROWS).fetchall())
    return states


def change_row(database: psycopg.Connection, drawn: random.Random) -> None:
    key, other = drawn.randrange(20), drawn.randrange(20)
    price = drawn.randrange(10_000) / 100
    database.execute(
        "INSERT INTO users VALUES (%s, %s, %s, true) ON CONFLICT (id) DO UPDATE SET price = excluded.price, ok = NULL",
        (key, f'näme "{key}"', price),
    )
    if drawn.random() < 0.3:
        database.execute("DELETE FROM users WHERE id = %s", (other,))
