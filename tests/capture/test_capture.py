"""Captures of a real PostgreSQL, by the command."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace

import psycopg
import pytest

from skylog.capture.capture import EnvelopeName
from skylog.capture.drop import drop_capture
from skylog.capture.plan import Limits
from skylog.capture.table import CaptureError
from skylog.testing import wait_until
from tests.capture.captured import Captured, Event, InterruptionError, run_until
from tests.capture.execute import execute

Make = Callable[..., Captured]


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
    capture = captured("public.users", envelope=EnvelopeName.PLAIN)
    capture.catch_up()
    execute(database, "UPDATE users SET name = 'A' WHERE id = 1", "DELETE FROM users WHERE id = 1")
    capture.catch_up()
    assert capture.events("public.users") == [
        Event({"id": 1}, {"id": 1, "name": "Ada"}),
        Event({"id": 1}, {"id": 1, "name": "A"}),
        Event({"id": 1}, None),
    ]


def test_a_changed_primary_key_ends_the_old_key_and_begins_the_new_one(database: str, captured: Make) -> None:
    execute(database, "CREATE TABLE users (id int PRIMARY KEY, name text)", "INSERT INTO users VALUES (1, 'Ada')")
    capture = captured("public.users")
    capture.catch_up()
    execute(database, "UPDATE users SET id = 7 WHERE id = 1")
    capture.catch_up()
    assert [(key["id"], value and value["op"]) for key, value in capture.events("public.users")] == [
        (1, "r"),
        (1, "d"),
        (1, None),
        (7, "c"),
    ]
    assert list(capture.rows("public.users").values()) == [{"id": 7, "name": "Ada"}]


def test_values_of_many_types_keep_their_meaning(database: str, captured: Make) -> None:
    execute(
        database,
        "CREATE DOMAIN age AS int",
        "CREATE TYPE mood AS ENUM ('good', 'bad')",
        """CREATE TABLE v (a bigint, "b %" text, c numeric(20, 5), d double precision, e boolean, f timestamptz,
            g timestamp, h date, i bytea, j jsonb, k age, l mood, m int[], n text[], o mood[],
            PRIMARY KEY (a, "b %"))""",
        """INSERT INTO v VALUES (9007199254740993, E'ü"\\n\\\\', 12345678901234.50000, 0.1, false,
            '2024-05-01 14:00:00.5+02', '2024-05-01 14:00:00', '2024-05-01', '\\x00ff', '{"x": 1}', 33, 'bad',
            '[0:1][1:2]={{1,2},{3,NULL}}', ARRAY['a,"{\\', 'NULL', '', NULL], '{good}')""",
    )
    capture = captured("public.v", envelope=EnvelopeName.PLAIN)
    capture.catch_up()
    execute(database, "UPDATE v SET d = 'NaN'")
    capture.catch_up()
    first, second = capture.events("public.v")
    row = {
        "a": 9007199254740993,
        "b %": 'ü"\n\\',
        "c": "12345678901234.50000",
        "d": 0.1,
        "e": False,
        "f": "2024-05-01T12:00:00.5Z",
        "g": "2024-05-01T14:00:00",
        "h": "2024-05-01",
        "i": "AP8=",
        "j": '{"x": 1}',
        "k": 33,
        "l": "bad",
        "m": [[1, 2], [3, None]],
        "n": ['a,"{\\', "NULL", "", None],
        "o": "{good}",
    }
    assert first == Event({"a": 9007199254740993, "b %": 'ü"\n\\'}, row)
    assert second == Event(first.key, {**row, "d": "NaN"})


def test_columns_that_are_added_and_dropped_appear_and_disappear(database: str, captured: Make) -> None:
    execute(database, "CREATE TABLE users (id int PRIMARY KEY, name text)", "INSERT INTO users VALUES (1, 'Ada')")
    capture = captured("public.users", envelope=EnvelopeName.PLAIN)
    capture.catch_up()
    execute(
        database,
        "ALTER TABLE users ADD COLUMN age int DEFAULT 3",
        "INSERT INTO users VALUES (2, 'Bob', 40)",
        "ALTER TABLE users DROP COLUMN name",
        "INSERT INTO users VALUES (3, 50)",
    )
    capture.catch_up()
    assert [value for _, value in capture.events("public.users")] == [
        {"id": 1, "name": "Ada"},
        {"id": 2, "name": "Bob", "age": 40},
        {"id": 3, "age": 50},
    ]


LARGE = "SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 400)"  # cannot be compressed: TOAST


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_a_large_value_that_an_update_leaves_alone_is_in_its_row(database: str, captured: Make, identity: str) -> None:
    execute(
        database,
        "CREATE TABLE pages (id int PRIMARY KEY, body text, views int)",
        f"ALTER TABLE pages REPLICA IDENTITY {identity}",
        f"INSERT INTO pages VALUES (1, ({LARGE}), 0)",
    )
    capture = captured("public.pages", envelope=EnvelopeName.PLAIN)
    capture.catch_up()
    execute(database, "UPDATE pages SET views = 1")
    capture.catch_up()
    before, after = (value for _, value in capture.events("public.pages"))
    assert len(before["body"]) == 400 * 32
    assert after == {**before, "views": 1}


def test_debeziums_envelope_marks_a_large_value_that_is_not_known(database: str, captured: Make) -> None:
    execute(
        database,
        "CREATE TABLE pages (id int PRIMARY KEY, body text, views int)",
        f"INSERT INTO pages VALUES (1, ({LARGE}), 0)",
    )
    capture = captured("public.pages")
    capture.catch_up()
    execute(
        database, "UPDATE pages SET views = 1", "ALTER TABLE pages REPLICA IDENTITY FULL", "UPDATE pages SET views = 2"
    )
    capture.catch_up()
    _, unknown, known = (value["after"] for _, value in capture.events("public.pages"))
    assert unknown == {"id": 1, "body": "__debezium_unavailable_value", "views": 1}
    assert (len(known["body"]), known["views"]) == (400 * 32, 2)


@pytest.mark.parametrize("envelope", list(EnvelopeName))
def test_truncate_removes_every_row_that_the_log_has(database: str, captured: Make, envelope: EnvelopeName) -> None:
    execute(
        database,
        "CREATE TABLE a (id int PRIMARY KEY)",
        "CREATE TABLE b (id int PRIMARY KEY)",
        "INSERT INTO a VALUES (1), (2)",
        "INSERT INTO b VALUES (1)",
    )
    capture = captured("public.a,public.b", envelope=envelope)
    capture.catch_up()
    execute(
        database,
        "DELETE FROM a WHERE id = 2",
        "BEGIN; INSERT INTO a VALUES (3); TRUNCATE a; INSERT INTO a VALUES (4); COMMIT",
        "INSERT INTO a VALUES (5)",
    )
    capture.catch_up()
    assert [row["id"] for row in capture.rows("public.a").values()] == [4, 5]
    assert [row["id"] for row in capture.rows("public.b").values()] == [1]
    assert sum(value is None for _, value in capture.events("public.a")) == 3  # of 1, 2 and 3: each once


def test_a_transaction_that_takes_long_is_split_and_each_change_is_written_once(database: str, captured: Make) -> None:
    execute(database, "CREATE TABLE n (id int PRIMARY KEY)")
    capture = captured("public.n", envelope=EnvelopeName.PLAIN, limits=Limits(split_s=0.0))
    capture.catch_up()
    execute(database, "INSERT INTO n SELECT * FROM generate_series(1, 20000)")
    with pytest.raises(InterruptionError):
        run_until(capture.settings, rows=7_000)
    count = len(capture.events("public.n"))
    assert 0 < count < 20_000  # a part of the transaction is in the log
    capture.catch_up()
    assert [key["id"] for key, _ in capture.events("public.n")] == list(range(1, 20_001))


def test_a_large_transaction_is_one_transaction_of_the_log(database: str, captured: Make) -> None:
    execute(database, "CREATE TABLE n (id int PRIMARY KEY, body text)")
    capture = captured("public.n", envelope=EnvelopeName.PLAIN, limits=Limits(records=10))
    capture.catch_up()
    execute(database, "INSERT INTO n SELECT i, repeat('x', 100) FROM generate_series(1, 20000) AS i")
    with pytest.raises(InterruptionError):
        run_until(capture.settings, rows=15_000)
    assert capture.events("public.n") == []  # readers see all of it or nothing
    capture.catch_up()
    assert [key["id"] for key, _ in capture.events("public.n")] == list(range(1, 20_001))


def test_a_table_without_a_primary_key_is_refused_with_the_fix(database: str, captured: Make) -> None:
    execute(database, "CREATE TABLE log (line text)")
    with pytest.raises(CaptureError, match=r"public.log has no primary key.*ALTER TABLE public.log ADD PRIMARY KEY"):
        captured("public.log").catch_up()


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("SELECT 1", "there is no table public.t"),
        ("CREATE VIEW t AS SELECT 1", "not a table"),
        ("CREATE TABLE t (a int, id int GENERATED ALWAYS AS (a) STORED PRIMARY KEY)", "has a generated column"),
        ("CREATE UNLOGGED TABLE t (id int PRIMARY KEY)", "ALTER TABLE public.t SET LOGGED"),
        (
            "CREATE TABLE t (id int PRIMARY KEY); ALTER TABLE t REPLICA IDENTITY NOTHING",
            "ALTER TABLE public.t REPLICA IDENTITY DEFAULT",
        ),
    ],
)
def test_what_cannot_be_captured_is_refused_with_the_fix(
    database: str, captured: Make, statement: str, words: str
) -> None:
    execute(database, statement)
    with pytest.raises(CaptureError, match=words):
        captured("public.t").catch_up()


def test_a_name_that_no_topic_can_have_is_refused_and_leaves_nothing_in_the_database(
    database: str, captured: Make
) -> None:
    execute(database, 'CREATE TABLE "My Table" (id int PRIMARY KEY)')
    with pytest.raises(CaptureError, match="may only contain letters"):
        captured("public.My Table").catch_up()
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT 1 FROM pg_publication").fetchall() == []


def test_a_partitioned_table_is_one_topic(database: str, captured: Make) -> None:
    execute(
        database,
        "CREATE TABLE sales (id int, year int, v int, PRIMARY KEY (id, year)) PARTITION BY RANGE (year)",
        "CREATE TABLE old PARTITION OF sales FOR VALUES FROM (0) TO (2020)",
        "CREATE TABLE new PARTITION OF sales FOR VALUES FROM (2020) TO (3000)",
        "INSERT INTO sales VALUES (1, 2010, 1), (2, 2025, 2)",
    )
    capture = captured("public.sales", envelope=EnvelopeName.PLAIN)
    capture.catch_up()
    execute(
        database,
        "INSERT INTO sales VALUES (3, 2011, 3)",
        "UPDATE sales SET year = 2026 WHERE id = 1",  # it moves to the other partition
        "CREATE TABLE later PARTITION OF sales FOR VALUES FROM (3000) TO (4000)",
        "INSERT INTO sales VALUES (4, 3001, 4)",
        "DELETE FROM sales WHERE id = 2",
    )
    capture.catch_up()
    rows = sorted(tuple(row.values()) for row in capture.rows("public.sales").values())
    assert rows == [(1, 2026, 1), (3, 2011, 3), (4, 3001, 4)]
    execute(database, "TRUNCATE sales", "INSERT INTO sales VALUES (5, 2025, 5)")
    capture.catch_up()
    assert [tuple(row.values()) for row in capture.rows("public.sales").values()] == [(5, 2025, 5)]


def test_generated_columns_are_in_no_row(database: str, captured: Make) -> None:
    execute(database, 'CREATE TABLE "T" ("Id" int PRIMARY KEY, twice int GENERATED ALWAYS AS ("Id" * 2) STORED, v int)')
    execute(database, 'INSERT INTO "T" ("Id", v) VALUES (1, 1)')
    capture = captured("public.T", envelope=EnvelopeName.PLAIN)
    capture.catch_up()
    execute(database, 'UPDATE "T" SET v = 2')
    capture.catch_up()
    assert [event.value for event in capture.events("public.T")] == [{"Id": 1, "v": 1}, {"Id": 1, "v": 2}]


def test_a_user_without_the_right_to_replicate_is_refused_with_the_fix(database: str, captured: Make) -> None:
    user = f"U{uuid.uuid4().hex[:8]}"
    execute(database, "CREATE TABLE t (id int PRIMARY KEY)", f'CREATE ROLE "{user}" LOGIN')
    with psycopg.connect(database) as connection:
        name = connection.info.dbname
    execute(database, f'GRANT CREATE ON DATABASE {name} TO "{user}"', f'ALTER TABLE t OWNER TO "{user}"')
    capture = captured("public.t")
    capture.settings = replace(capture.settings, url=database.replace("postgres@", f"{user}@"))
    with pytest.raises(CaptureError, match=f'ALTER ROLE "{user}" REPLICATION'):
        capture.catch_up()


def test_a_schema_with_a_dot_is_refused(database: str, captured: Make) -> None:
    execute(database, 'CREATE SCHEMA "a.b"', 'CREATE TABLE "a.b".t (id int PRIMARY KEY)')
    with pytest.raises(CaptureError, match=r"a\.b\.t: a schema with a dot"):
        captured("a.b.t").catch_up()


def test_a_slot_that_is_gone_is_an_error_and_a_new_capture_leaves_no_row_behind(database: str, captured: Make) -> None:
    execute(database, "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)")
    capture = captured("public.t", envelope=EnvelopeName.PLAIN)
    capture.catch_up()
    execute(database, f"SELECT pg_drop_replication_slot('skylog_{capture.prefix}')", "DELETE FROM t WHERE id = 1")
    with pytest.raises(CaptureError, match=r"is gone, and the changes since .* skylog capture drop"):
        capture.catch_up()
    assert drop_capture(database, capture.prefix, capture.bootstrap) == [
        f"publication skylog_{capture.prefix}",
        f"topic _skylog_capture.{capture.prefix}",
    ]
    capture.catch_up()
    assert [row["id"] for row in capture.rows("public.t").values()] == [2]


def test_drop_leaves_nothing_in_the_database(database: str, captured: Make) -> None:
    execute(database, "CREATE TABLE t (id int PRIMARY KEY)")
    capture = captured("public.t")
    capture.catch_up()
    dropped = drop_capture(database, capture.prefix, capture.bootstrap)
    assert [each.split()[0] for each in dropped] == ["slot", "publication", "topic"]
    assert drop_capture(database, capture.prefix, capture.bootstrap) == []
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT 1 FROM pg_publication").fetchall() == []
        slots = "SELECT 1 FROM pg_replication_slots WHERE database = current_database()"
        assert connection.execute(slots).fetchall() == []


def test_a_table_that_is_added_later_gets_its_own_snapshot(database: str, captured: Make) -> None:
    execute(
        database,
        "CREATE TABLE a (id int PRIMARY KEY)",
        "CREATE TABLE b (id int PRIMARY KEY)",
        "INSERT INTO a VALUES (1)",
        "INSERT INTO b VALUES (1), (2)",
    )
    capture = captured("public.a", envelope=EnvelopeName.PLAIN)
    capture.catch_up()
    capture.settings = replace(capture.settings, tables=["public.a", "public.b"])
    capture.catch_up()
    execute(database, "INSERT INTO b VALUES (3)")
    capture.catch_up()
    assert [key["id"] for key, _ in capture.events("public.a")] == [1]
    assert [key["id"] for key, _ in capture.events("public.b")] == [1, 2, 3]


def test_the_slot_follows_the_database_although_only_other_tables_change(database: str, captured: Make) -> None:
    execute(database, "CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE other (id int PRIMARY KEY, body text)")
    capture = captured("public.t")
    capture.catch_up()
    with psycopg.connect(database, autocommit=True) as connection, capture.running():
        connection.execute("INSERT INTO other SELECT i, repeat('x', 200) FROM generate_series(1, 5000) AS i")
        ((end,),) = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchall()
        confirmed = "SELECT confirmed_flush_lsn >= %s::pg_lsn FROM pg_replication_slots WHERE slot_name = %s"
        name = f"skylog_{capture.prefix}"
        wait_until(lambda: connection.execute(confirmed, (end, name)).fetchall() == [(True,)], "the slot follows", 120)
    assert capture.statuses[-1].lag_s == 0.0


def test_a_second_capture_with_the_same_prefix_waits_and_does_not_disturb_the_first(
    database: str, captured: Make
) -> None:
    execute(database, "CREATE TABLE t (id int PRIMARY KEY)")
    capture = captured("public.t", envelope=EnvelopeName.PLAIN)
    with capture.running():
        wait_until(lambda: capture.statuses, "the first capture", 120)
        with pytest.raises(CaptureError, match=r"another capture .* is running"):
            capture.catch_up()
        execute(database, "INSERT INTO t VALUES (1)")
        wait_until(lambda: len(capture.events("public.t")) == 1, "the change", 120)
