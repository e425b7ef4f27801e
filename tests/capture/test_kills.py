"""Random changes under SIGKILL of the capture, the broker and the database: each is in the log once, in order."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from skylog.capture.capture import EnvelopeName
from skylog.testing import BrokerProcess, wait_until
from tests.capture.captured import Captured, Event
from tests.capture.postgres import Postgres, postgres_with_logical_decoding
from tests.proof import proof
from tests.seeds import seed as seed_of_this_run

CHANGES = proof(100_000, 2_000)
KILLS = proof(15, 3)
LARGEST = proof(2_000, 200)
KEYS = proof(5_000, 300)
PATIENCE_S = proof(900, 150)
VICTIMS = ("capture", "broker", "database")


class Writer(threading.Thread):
    """Changes rows in transactions of random size. The table `journal` has every change that was committed."""

    def __init__(self, url: str, drawn: random.Random) -> None:
        super().__init__(daemon=True)
        self._url = url
        self._drawn = drawn
        self.written = 0
        self.allowed = 0  # changes, and no more
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while self.written < CHANGES:
                with suppress(psycopg.OperationalError), psycopg.connect(self._url) as connection:
                    self._write(connection)
                time.sleep(0.05)
        except BaseException as error:
            self.failure = error

    def _write(self, connection: psycopg.Connection) -> None:
        while self.written < CHANGES:
            if self.written >= self.allowed:
                time.sleep(0.01)
                continue
            size = self._drawn.choice((1, 1, 5, 30, LARGEST))
            with connection.transaction():
                for _ in range(size):
                    self._change(connection.cursor())
            self.written += size  # a commit whose answer was lost is not counted; the journal has it

    def _change(self, cursor: psycopg.Cursor) -> None:
        key, other = self._drawn.randrange(KEYS), self._drawn.randrange(KEYS)
        journal = "INSERT INTO journal (key, op, version) VALUES (%s, %s, %s)"
        kind = self._drawn.choice("udiik")
        version = self._drawn.getrandbits(31)
        if kind == "i":
            cursor.execute("INSERT INTO rows VALUES (%s, %s) ON CONFLICT DO NOTHING", (key, version))
            found = [("c", key)]
        elif kind == "u":
            cursor.execute("UPDATE rows SET version = %s WHERE id = %s", (version, key))
            found = [("u", key)]
        elif kind == "d":
            cursor.execute("DELETE FROM rows WHERE id = %s", (key,))
            found = [("d", key)]
        else:
            cursor.execute(
                "UPDATE rows SET id = %s, version = %s WHERE id = %s AND NOT EXISTS (SELECT 1 FROM rows WHERE id = %s)",
                (other, version, key, other),
            )
            found = [("d", key), ("c", other)]
        if cursor.rowcount:
            cursor.executemany(journal, [(id_, op, None if op == "d" else version) for op, id_ in found])


class Change(NamedTuple):
    op: str
    version: int | None


def changes_by_key(events: list[Event]) -> dict[int, list[Change]]:
    """Return the changes of each key in the order of the log, without rows of the snapshot and tombstones.

    A row of the snapshot is never older than what the log has of its key.
    """
    changes: dict[int, list[Change]] = defaultdict(list)
    for key, value in events:
        if value is None:
            assert changes[key["id"]][-1].op == "d"
            continue
        version = None if value["after"] is None else value["after"]["version"]
        if value["op"] != "r":
            changes[key["id"]].append(Change(value["op"], version))
        elif known := changes.get(key["id"]):
            assert known[-1].version == version, "a row of the snapshot is older than the stream"
    return changes


def kill(victim: str, capture: Captured, broker: BrokerProcess, postgres: Postgres) -> None:
    if victim == "capture":
        capture.kill()
    elif victim == "broker":
        broker.kill()
        broker.start()
    else:
        postgres.kill()
        postgres.start()


def journal_of(url: str) -> dict[int, list[Change]]:
    with psycopg.connect(url) as connection:
        found: dict[int, list[Change]] = defaultdict(list)
        for key, op, version in connection.execute("SELECT key, op, version FROM journal ORDER BY seq").fetchall():
            found[key].append(Change(op, version))
        return found


def rows_of(url: str) -> dict[int, dict[str, Any]]:
    with psycopg.connect(url) as connection:
        return {id_: {"id": id_, "version": version} for id_, version in connection.execute("SELECT * FROM rows")}


def test_each_change_is_in_the_log_once_and_in_order_whatever_is_killed(tmp_path: Path) -> None:
    seed = seed_of_this_run()
    drawn = random.Random(seed)
    with postgres_with_logical_decoding() as postgres, BrokerProcess(tmp_path / "data") as broker:
        url = postgres.url()
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE rows (id int PRIMARY KEY, version int)")
            connection.execute("CREATE TABLE journal (seq bigserial PRIMARY KEY, key int, op text, version int)")
            connection.execute("INSERT INTO rows SELECT i, 0 FROM generate_series(0, %s, 2) AS i", (KEYS,))
        capture = Captured(
            url,
            broker.bootstrap,
            "public.rows",
            "kills",
            tmp_path / "log",
            envelope=EnvelopeName.DEBEZIUM,
            chunk_rows=proof(500, 40),
            partitions=3,
        )
        capture.start()
        wait_until(lambda: has_slot(url), "the slot", PATIENCE_S)
        writer = Writer(url, random.Random(seed))
        writer.start()
        try:
            victims = drawn.sample(VICTIMS * (KILLS // len(VICTIMS)), KILLS)
            for number, victim in enumerate(victims, 1):
                writer.allowed = CHANGES * number // (KILLS + 1)
                goal = writer.allowed * drawn.random()
                wait_until(lambda: writer.written >= goal or writer.failure, "changes", PATIENCE_S)  # noqa: B023
                assert writer.failure is None
                kill(victim, capture, broker, postgres)
                if not capture.is_running:
                    capture.start()
            writer.allowed = CHANGES
            writer.join(PATIENCE_S)
            assert writer.failure is None
            assert not writer.is_alive()
        finally:
            capture.kill()
        capture.catch_up()
        events = capture.events("public.rows")
        assert changes_by_key(events) == journal_of(url), f"seed {seed}"
        assert {row["id"]: row for row in capture.rows("public.rows").values()} == rows_of(url)


def has_slot(url: str) -> bool:
    with psycopg.connect(url) as connection:
        return bool(
            connection.execute("SELECT 1 FROM pg_replication_slots WHERE confirmed_flush_lsn > '0/0'").fetchall()
        )
