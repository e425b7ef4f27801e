"""A table of PostgreSQL, captured and materialized as a Delta table and in another database: equal row for row."""

from __future__ import annotations

import random
from pathlib import Path
from threading import Event

import psycopg
from pyspark.sql import SparkSession

from skylog.capture.capture import CaptureSettings, EnvelopeName
from skylog.capture.service import run_capture
from skylog.pipeline.jobs.materialize import materialize_into_database, materialize_job
from skylog.pipeline.table import Table
from skylog.testing import BrokerProcess
from tests.capture.postgres import postgres_with_logical_decoding

SCHEMA = "id INT, name STRING, price DECIMAL(10, 2), ok BOOLEAN"
ROWS = "SELECT id, name, price, ok FROM users ORDER BY id"


def test_a_captured_table_is_materialized_row_for_row(
    spark: SparkSession, skylog_broker: BrokerProcess, tmp_path: Path
) -> None:
    drawn = random.Random(3)
    table = tmp_path / "users"
    with postgres_with_logical_decoding() as server, psycopg.connect(server.url(), autocommit=True) as database:
        database.execute("CREATE TABLE users (id int PRIMARY KEY, name text, price numeric(10, 2), ok boolean)")
        settings = CaptureSettings(
            server.url(), ["public.users"], "row-for-row", skylog_broker.bootstrap, EnvelopeName.PLAIN, partitions=2
        )
        database.execute("CREATE DATABASE copy")
        topic, copy = "row-for-row.public.users", server.url("copy")
        jobs = (
            materialize_job(skylog_broker.bootstrap, topic, table, SCHEMA, history=False),
            materialize_into_database(topic, copy, "users", SCHEMA),
        )
        for _ in range(2):
            change(database, drawn)
            run_capture(settings, Event(), lambda _: None, once=True)
            for job in jobs:
                job.run(spark, skylog_broker.bootstrap, once=True)
            found = Table(table).read(spark).select("id", "name", "price", "ok").collect()
            expected = database.execute(ROWS).fetchall()
            assert len(expected) > 5
            assert sorted(map(tuple, found)) == expected
            with psycopg.connect(copy) as other:
                assert other.execute(ROWS).fetchall() == expected


def change(database: psycopg.Connection, drawn: random.Random) -> None:
    for _ in range(40):
        key, other = drawn.randrange(20), drawn.randrange(20)
        price = drawn.randrange(10_000) / 100
        database.execute(
            "INSERT INTO users VALUES (%s, %s, %s, true) "
            "ON CONFLICT (id) DO UPDATE SET price = excluded.price, ok = NULL",
            (key, f'näme "{key}"', price),
        )
        if drawn.random() < 0.3:
            database.execute("DELETE FROM users WHERE id = %s", (other,))
