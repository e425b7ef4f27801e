"""A table of PostgreSQL, captured and materialized: equal row for row, at whatever moment the two are stopped."""

from __future__ import annotations

import random
from pathlib import Path
from threading import Event

import psycopg
from pyspark.sql import SparkSession

from skylog.capture.capture import CaptureSettings, EnvelopeName
from skylog.capture.service import run_capture
from skylog.pipeline.jobs.materialize import materialize_job
from skylog.pipeline.table import Table
from skylog.testing import BrokerProcess
from tests.capture.postgres import postgres_with_logical_decoding

SCHEMA = "id INT, name STRING, price DECIMAL(10, 2), ok BOOLEAN"


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
        job = materialize_job(skylog_broker.bootstrap, "row-for-row.public.users", table, SCHEMA, history=False)
        for _ in range(2):
            change(database, drawn)
            run_capture(settings, Event(), lambda _: None, once=True)
            job.run(spark, skylog_broker.bootstrap, once=True)
            found = Table(table).read(spark).select("id", "name", "price", "ok").collect()
            expected = database.execute("SELECT id, name, price, ok FROM users ORDER BY id").fetchall()
            assert len(expected) > 5
            assert sorted(map(tuple, found)) == expected


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
