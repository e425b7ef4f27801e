"""Tables of visits: counts and offsets change together in every database, despite crashes and concurrent jobs."""

from __future__ import annotations

import math
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, date, datetime
from pathlib import Path
from threading import Barrier

import pymongo
import pytest

from skylog.model import TopicPartition
from skylog.pipeline.databases.mongo import _change, _update
from skylog.pipeline.databases.store import Kind, OffsetsMovedError, Precedence, RowLayout, StoreError, open_store
from skylog.pipeline.jobs.visits import LAYOUT
from tests.pipeline.databases.servers import contents

FIRST, SECOND = TopicPartition("page_views", 0), TopicPartition("page_views", 1)
MAY_1, MAY_2 = date(2024, 5, 1), date(2024, 5, 2)


def test_counts_are_added_up_and_offsets_kept(database: str, table: str) -> None:
    store = open_store(database, table)
    assert store.offsets() == {}
    store.apply(LAYOUT, [("acme", MAY_1, 2), ("äpex'; --", MAY_1, 1)], {}, {FIRST: 3, SECOND: 0})
    store.apply(LAYOUT, [("acme", MAY_1, 5), ("acme", MAY_2, 1)], {FIRST: 3, SECOND: 0}, {FIRST: 3, SECOND: 6})
    store.apply(LAYOUT, [], {FIRST: 3, SECOND: 6}, {FIRST: 4, SECOND: 6})
    store.close()
    again = open_store(database, table)
    assert again.offsets() == {FIRST: 4, SECOND: 6}
    assert contents(database, table) == {
        ("acme", "2024-05-01"): 7,
        ("äpex'; --", "2024-05-01"): 1,
        ("acme", "2024-05-02"): 1,
    }
    again.close()


def test_more_visits_than_fit_into_32_bits_are_counted(database: str, table: str) -> None:
    store = open_store(database, table)
    store.offsets()
    store.apply(LAYOUT, [("acme", MAY_1, 2**31 - 1)], {}, {FIRST: 1})
    store.apply(LAYOUT, [("acme", MAY_1, 2**33)], {FIRST: 1}, {FIRST: 2**40})
    assert store.offsets() == {FIRST: 2**40}
    assert contents(database, table) == {("acme", "2024-05-01"): 2**31 - 1 + 2**33}
    store.close()


def test_nothing_to_add_leaves_the_sum(database: str, table: str) -> None:
    store = open_store(database, table)
    store.offsets()
    for number, visits in enumerate((None, 2, None, 3)):
        before = {FIRST: number} if number else {}
        store.apply(LAYOUT, [("acme", MAY_1, visits), (f"org-{number}", MAY_1, visits)], before, {FIRST: number + 1})
    assert contents(database, table) == {
        ("acme", "2024-05-01"): 5,
        **{(f"org-{number}", "2024-05-01"): visits for number, visits in enumerate((0, 2, 0, 3))},
    }
    store.close()


def test_nan_leaves_the_sum() -> None:
    """A database would add it for good, or take it for NULL."""
    assert LAYOUT.summable(("acme", MAY_1, math.nan)) == ["acme", MAY_1, 0]
    assert RowLayout({"id": Kind.TEXT, "ratio": Kind.REAL}, ("id",)).summable(("a", math.inf)) == ["a", math.inf]


def test_a_text_with_a_nul_is_stored(database: str, table: str) -> None:
    """PostgreSQL has no NUL in a text. The others keep it."""
    store = open_store(database, table)
    store.offsets()
    store.apply(LAYOUT, [("ac\0me", MAY_1, 1)], {}, {FIRST: 1})
    store.apply(LAYOUT, [("ac\0me", MAY_1, 1)], {FIRST: 1}, {FIRST: 2})
    stored = "ac\N{REPLACEMENT CHARACTER}me" if database.startswith("postgresql") else "ac\0me"
    assert contents(database, table) == {(stored, "2024-05-01"): 2}
    store.close()


def test_a_job_that_another_has_overtaken_is_refused(database: str, table: str) -> None:
    ahead, behind = open_store(database, table), open_store(database, table)
    assert ahead.offsets() == behind.offsets() == {}
    ahead.apply(LAYOUT, [("acme", MAY_1, 2)], {}, {FIRST: 2})
    with pytest.raises(OffsetsMovedError, match=r"page_views-0 is counted up to offset 2, .* expects offset 0"):
        behind.apply(LAYOUT, [("acme", MAY_1, 2)], {}, {FIRST: 2})
    ahead.apply(LAYOUT, [("acme", MAY_1, 1)], {FIRST: 2}, {FIRST: 3})
    with pytest.raises(OffsetsMovedError, match=f"{table} in .* another job"):
        behind.apply(LAYOUT, [("apex", MAY_1, 9)], {FIRST: 2}, {FIRST: 9, SECOND: 4})
    assert contents(database, table) == {("acme", "2024-05-01"): 3}
    assert ahead.offsets() == {FIRST: 3}
    for store in (ahead, behind):
        store.close()


def test_of_two_jobs_at_once_one_counts(database: str, table: str) -> None:
    if database.startswith("mongodb"):
        pytest.skip(
            "FerretDB finds and writes in two steps, so of two updates at once both may win; MongoDB's are atomic"
        )
    stores = [open_store(database, table) for _ in range(2)]
    rounds = 5
    start = Barrier(len(stores))

    def compete(store_number: int) -> int:
        store, wins = stores[store_number], 0
        for number in range(rounds):
            start.wait(30)
            before = {FIRST: number} if number else {}
            store.offsets()
            start.wait(30)
            try:
                store.apply(LAYOUT, [("acme", MAY_1, 1), (f"org-{number}", MAY_1, 1)], before, {FIRST: number + 1})
                wins += 1
            except OffsetsMovedError:
                pass
        return wins

    with ThreadPoolExecutor(len(stores)) as threads:
        assert sum(threads.map(compete, range(len(stores)))) == rounds
    expected = {("acme", "2024-05-01"): rounds} | {(f"org-{number}", "2024-05-01"): 1 for number in range(rounds)}
    assert contents(database, table) == expected
    for store in stores:
        store.close()


def test_jobs_of_other_topics_may_count_into_one_table(database: str, table: str) -> None:
    other = TopicPartition("app.views", 0)
    stores = {key: open_store(database, table) for key in (FIRST, other)}
    assert [store.offsets() for store in stores.values()] == [{}, {}]
    for number in range(3):
        for key, store in stores.items():
            store.apply(LAYOUT, [("acme", MAY_1, 1)], {key: number} if number else {}, {key: number + 1})
    assert stores[FIRST].offsets() == {FIRST: 3, other: 3}
    assert contents(database, table) == {("acme", "2024-05-01"): 6}
    for store in stores.values():
        store.close()


def test_a_job_that_dies_at_any_step_has_counted_all_or_nothing(database: str, table: str) -> None:
    command = [sys.executable, "-m", "tests.pipeline.databases.doomed", database, table]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[0]) > 30  # deaths


def test_a_table_with_rows_and_no_offsets_is_left_alone(database: str, table: str) -> None:
    store = open_store(database, f"{table}_offsets")  # makes a table that is not the one of offsets
    store.offsets()
    store.apply(LAYOUT, [("acme", MAY_1, 1)], {}, {FIRST: 1})
    drop_offsets(database, f"{table}_offsets")
    with pytest.raises(StoreError, match="has rows but no offsets"):
        store.offsets()
    assert contents(database, f"{table}_offsets") == {("acme", "2024-05-01"): 1}
    store.close()


def test_rows_are_deleted_unless_a_newer_one_of_another_origin_is_stored(database: str, table: str) -> None:
    kinds = {"organisation": Kind.TEXT, "day": Kind.DATE, "visits": Kind.INTEGER, "origin": Kind.INTEGER}
    layout = RowLayout(kinds, ("organisation",), precedence=Precedence("origin", ("day", "origin")))
    store = open_store(database, table)
    store.offsets()
    first = [(name, MAY_1, 1, 0) for name in ("acme", "apex", "zeta")]
    if database.startswith("mongodb"):
        with pytest.raises(StoreError, match="rows of MongoDB cannot be deleted; use PostgreSQL or SQLite"):
            store.apply(layout, first, {}, {FIRST: 1})
        store.close()
        return
    store.apply(layout, first, {}, {FIRST: 1})
    earlier = date(2024, 4, 30)
    replaced, gone = ("acme", earlier, 2, 0), ("apex", earlier, None, 0)  # of the same origin, so the time is ignored
    refused, kept = ("zeta", earlier, 9, 1), ("acme", date(2024, 4, 29), None, 1)
    store.apply(layout, [replaced, refused], {FIRST: 1}, {FIRST: 2}, [gone, ("new", MAY_1, None, 0)])
    assert contents(database, table) == {("acme", "2024-04-30"): 2, ("zeta", "2024-05-01"): 1}
    store.apply(layout, [("zeta", MAY_2, 3, 1)], {FIRST: 2}, {FIRST: 3}, [kept])
    assert contents(database, table) == {("acme", "2024-04-30"): 2, ("zeta", "2024-05-02"): 3}
    with pytest.raises(OffsetsMovedError):
        store.apply(layout, [], {FIRST: 2}, {FIRST: 3}, [replaced])
    store.apply(layout, [], {FIRST: 3}, {FIRST: 4}, [("acme", MAY_1, None, 1), ("zeta", MAY_2, None, 1)])
    assert contents(database, table) == {}
    assert store.offsets() == {FIRST: 4}
    store.close()


def test_a_plan_adds_no_none() -> None:
    """MongoDB refuses it for good. An earlier version may have stored such a plan, before which no other is applied."""
    assert _change(LAYOUT, ("acme", MAY_1, None))["add"] == {"visits": 0}
    stored = {"_id": "acme", "key": {}, "add": {"visits": None, "clicks": 2}, "set": {}}
    assert _update(stored, 7) == {"$set": {"batch": 7}, "$inc": {"visits": 0, "clicks": 2}}


def drop_offsets(database: str, table: str) -> None:
    import psycopg

    if database.startswith("sqlite"):
        with closing(sqlite3.connect(database.removeprefix("sqlite:///"))) as connection:
            connection.execute(f"DROP TABLE {table}_offsets")
    elif database.startswith("postgresql"):
        with psycopg.connect(database) as connected:
            connected.execute(f"DROP TABLE {table}_offsets")
    else:
        with pymongo.MongoClient[dict[str, object]](database) as client:
            client.get_default_database("skylog").drop_collection(f"{table}_offsets")


@pytest.mark.parametrize("name", ['visits"; DROP TABLE visits; --', "", "1st", "a.b", "v" * 56, "visits\0", "$cmd"])
def test_names_that_are_no_names_are_refused(database: str, name: str) -> None:
    with pytest.raises(StoreError, match="invalid table name"):
        open_store(database, name)


def test_a_plan_that_was_carried_out_in_part_is_finished(mongo: str, table: str) -> None:
    store = open_store(mongo, table)
    store.offsets()
    store.apply(LAYOUT, [("acme", MAY_1, 1)], {}, {FIRST: 1})
    day = datetime(2024, 5, 1, tzinfo=UTC)
    plan = [
        {
            "_id": f"2024-05-01 {name}",
            "key": {"day": day, "organisation": name},
            "add": {"visits": 10},
            "set": {},
        }
        for name in ("acme", "apex", "zeta", "beta")
    ]
    offsets = [{"topic": "page_views", "partition": 0, "end_offset": 9}]
    with pymongo.MongoClient[dict[str, object]](mongo) as client:  # as after a crash in the middle
        skylog = client.get_default_database("skylog")
        skylog[f"{table}_offsets"].update_one(
            {"_id": "offsets"}, {"$set": {"batch": 2, "offsets": offsets, "plan": plan}}
        )
        skylog[table].update_one({"_id": "2024-05-01 acme"}, {"$set": {"batch": 2}, "$inc": {"visits": 10}})
        empty = {"_id": "2024-05-01 apex", "organisation": "apex", "day": day, "visits": 0, "batch": 0}
        skylog[table].insert_one(empty)
    assert store.offsets() == {FIRST: 9}
    expected = {"acme": 11, "apex": 10, "zeta": 10, "beta": 10}
    assert contents(mongo, table) == {(name, "2024-05-01"): visits for name, visits in expected.items()}
    store.close()


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("mysql://root:secret@host/db", r"'mysql://host/db' is not a supported database: use sqlite:///"),
        ("visits.db", "'visits.db' is not a supported database"),
        ("sqlite://visits.db", "has no file name"),
        ("sqlite:///", "has no file name"),
        ("sqlite:////no/such/folder/visits.db", "unable to open database file"),
        ("postgresql://me:secret@127.0.0.1:1/db", r"table visits in postgresql://127.0.0.1:1/db: .*refused"),
        ("mongodb://me:secret@127.0.0.1:1/db?serverSelectionTimeoutMS=100", r"mongodb://127.0.0.1:1/db: .*refused"),
        ("mongodb://127.0.0.1/db?nonsense", "mongodb://127.0.0.1/db: "),
    ],
)
def test_a_database_that_cannot_be_used_is_named_without_its_password(url: str, problem: str) -> None:
    with pytest.raises(StoreError, match=problem) as raised:
        open_store(url, "visits").offsets()
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(("url", "module"), [("postgresql://h/db", "psycopg"), ("mongodb://h/db", "pymongo")])
def test_a_missing_driver_is_named_with_what_installs_it(
    monkeypatch: pytest.MonkeyPatch, url: str, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(StoreError, match=rf"pip install 'skylog\[{'postgres' if module == 'psycopg' else 'mongo'}\]'"):
        open_store(url, "visits")


def test_others_read_while_a_job_writes(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'visits.db'}"
    store = open_store(url, "visits")
    store.offsets()
    store.apply(LAYOUT, [("acme", MAY_1, 1)], {}, {FIRST: 1})
    with closing(sqlite3.connect(tmp_path / "visits.db")) as reader:
        reader.execute("BEGIN")
        before = reader.execute("SELECT sum(visits) FROM visits").fetchone()
        store.apply(LAYOUT, [("acme", MAY_1, 1)], {FIRST: 1}, {FIRST: 2})
        assert before == reader.execute("SELECT sum(visits) FROM visits").fetchone() == (1,)
    assert contents(url, "visits") == {("acme", "2024-05-01"): 2}
