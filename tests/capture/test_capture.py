"""Captures of a real PostgreSQL, by the command."""

from __future__ import annotations

from collections.abc import Callable

import psycopg

from tests.capture.captured import Captured, Event

Make = Callable[..., Captured]


def execute(url: str, *statements: str) -> None:
    """Run each statement in a transaction of its own."""
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


def test_rows_and_changes_become_records_in_debeziums_envelope(database: str, captured: Make) -> None:
    execute(database, "CREATE TABLE users (id int PRIMARY KEY, name text)", "INSERT INTO users VALUES (1, 'Ada')")
    capture = captured("public.users")
    capture.catch_up()
    execute(
        database,
        "INSERT INTO users VALUES (2, 'Bob')",
        "UPDATE users SET name = 'Bo' WHERE id = 2",
        "DELETE FROM users WHERE id = 1",
    )
    capture.catch_up()
    events = capture.events("public.users")
    assert [(key["id"], value and value["op"]) for key, value in events] == [
        (1, "r"),
        (2, "c"),
        (2, "u"),
        (1, "d"),
        (1, None),
    ]
    created = events[1].value
    assert (created["before"], created["after"]) == (None, {"id": 2, "name": "Bob"})
    assert {key: created["source"][key] for key in ("connector", "name", "schema", "table", "snapshot")} == {
        "connector": "postgresql",
        "name": capture.prefix,
        "schema": "public",
        "table": "users",
        "snapshot": "false",
    }
    assert created["source"]["lsn"] < events[2].value["source"]["lsn"]
    assert 0 <= created["ts_ms"] - created["source"]["ts_ms"] < 3_600_000
    assert (events[3].value["before"], events[3].value["after"]) == ({"id": 1, "name": None}, None)


def test_plain_rows_are_values_and_tombstones(database: str, captured: Make) -> None:
    execute(database, "CREATE TABLE users (id int PRIMARY KEY, name text)", "INSERT INTO users VALUES (1, 'Ada')")
    capture = captured("public.users", envelope="plain")
    capture.catch_up()
    execute(database, "UPDATE users SET name = 'A' WHERE id = 1", "DELETE FROM users WHERE id = 1")
    capture.catch_up()
    assert capture.events("public.users") == [
        Event({"id": 1}, {"id": 1, "name": "Ada"}),
        Event({"id": 1}, {"id": 1, "name": "A"}),
        Event({"id": 1}, None),
    ]
