"""Captured tables that are created anew, renamed, emptied or get other keys: no change is lost, and no row is left."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event as ThreadEvent
from typing import Any

import psycopg
import pytest

from skylog.capture import chunks
from skylog.capture.capture import CaptureRun, EnvelopeName
from skylog.capture.merge import Chunk
from skylog.capture.plan import Limits
from skylog.capture.position import Position
from skylog.capture.service import run_capture
from skylog.capture.sink import Sink, positions_topic
from skylog.capture.source import Source
from skylog.capture.table import CaptureError
from skylog.client import Admin
from skylog.testing import wait_until
from tests.capture.captured import Captured, InterruptionError
from tests.capture.execute import execute

Make = Callable[..., Captured]
PATIENCE_S = 120
CREATE = "CREATE TABLE t (id int PRIMARY KEY, v int)"


def interrupt(*_: object, **__: object) -> None:
    raise InterruptionError


def keys(capture: Captured) -> list[Any]:
    """The keys of the rows that the log has."""
    return sorted(tuple(row.values()) for row in capture.rows("public.t").values())


def test_a_table_that_was_created_anew_while_the_capture_was_stopped_is_read_anew(
    database: str, captured: Make
) -> None:
    execute(database, CREATE, "INSERT INTO t VALUES (1, 1), (2, 2)")
    capture = captured("public.t", envelope=EnvelopeName.PLAIN)
    capture.catch_up()
    execute(database, "INSERT INTO t VALUES (3, 3)", "DROP TABLE t", CREATE, "INSERT INTO t VALUES (2, 20)")
    capture.catch_up()
    execute(database, "INSERT INTO t VALUES (4, 4)")
    capture.catch_up()
    assert keys(capture) == [(2, 20), (4, 4)]


def test_a_table_that_is_created_anew_under_a_running_capture_is_read_anew(database: str, captured: Make) -> None:
    execute(database, CREATE, "INSERT INTO t VALUES (1, 1)")
    capture = captured("public.t", envelope=EnvelopeName.PLAIN)
    with capture.running():
        wait_until(lambda: capture.statuses and keys(capture) == [(1, 1)], "the first table", PATIENCE_S)
        execute(database, f"BEGIN; DROP TABLE t; {CREATE}; COMMIT", "INSERT INTO t VALUES (2, 2)")
        wait_until(lambda: keys(capture) == [(2, 2)], "the second table", PATIENCE_S)
    assert "it was created anew: the table public.t is read anew" in str(capture.statuses[-1].last_error)


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_rows_get_their_new_keys_if_the_primary_key_has_other_columns(
    database: str, captured: Make, identity: str
) -> None:
    execute(database, CREATE, f"ALTER TABLE t REPLICA IDENTITY {identity}", "INSERT INTO t VALUES (1, 10), (2, 20)")
    capture = captured("public.t", envelope=EnvelopeName.PLAIN)
    with capture.running():
        wait_until(lambda: capture.statuses and keys(capture) == [(1, 10), (2, 20)], "the rows", PATIENCE_S)
        execute(
            database,
            "INSERT INTO t VALUES (3, 30)",
            "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (v)",
            "UPDATE t SET id = 4 WHERE v = 30",
            "DELETE FROM t WHERE v = 10",
        )
        wait_until(lambda: keys(capture) == [(2, 20), (4, 30)], "the rows with their new keys", PATIENCE_S)
    execute(database, "INSERT INTO t VALUES (5, 50)")
    capture.catch_up()
    assert keys(capture) == [(2, 20), (4, 30), (5, 50)]
    assert set(capture.rows("public.t")) == {'{"v": 20}', '{"v": 30}', '{"v": 50}'}


def test_rows_get_their_new_keys_if_the_type_of_the_primary_key_changes(database: str, captured: Make) -> None:
    execute(database, CREATE, "INSERT INTO t VALUES (1, 1), (2, 2)")
    capture = captured("public.t", envelope=EnvelopeName.PLAIN)
    capture.catch_up()
    execute(
        database,
        "INSERT INTO t VALUES (3, 3)",
        "ALTER TABLE t ALTER COLUMN id TYPE text",
        "UPDATE t SET v = 20 WHERE id = '2'",
    )
    capture.catch_up()
    assert keys(capture) == [("1", 1), ("2", 20), ("3", 3)]


def test_a_primary_key_that_is_changed_back_before_the_capture_sees_it_loses_nothing(
    database: str, captured: Make
) -> None:
    execute(database, CREATE, "INSERT INTO t VALUES (1, 10)")
    capture = captured("public.t", envelope=EnvelopeName.PLAIN)
    capture.catch_up()
    execute(
        database,
        "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (v)",
        "INSERT INTO t VALUES (2, 20)",
        "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id)",
        "INSERT INTO t VALUES (3, 30)",
    )
    capture.catch_up()
    assert keys(capture) == [(1, 10), (2, 20), (3, 30)]


def test_no_change_is_lost_while_a_table_has_another_name(database: str, captured: Make) -> None:
    execute(database, CREATE)
    capture = captured("public.t", envelope=EnvelopeName.PLAIN)
    capture.catch_up()
    execute(
        database,
        "ALTER TABLE t RENAME TO other",
        "INSERT INTO other VALUES (1, 1)",
        "ALTER TABLE other RENAME TO t",
        "INSERT INTO t VALUES (2, 2)",
    )
    capture.catch_up()
    assert keys(capture) == [(1, 1), (2, 2)]


def test_a_capture_ends_if_its_table_is_gone(database: str, captured: Make) -> None:
    execute(database, CREATE)
    capture = captured("public.t")
    capture.start()
    wait_until(lambda: "captured" in capture.log() or not capture.is_running, "the capture", PATIENCE_S)
    execute(database, "DROP TABLE t")
    wait_until(lambda: not capture.is_running, "the end of the capture", PATIENCE_S)
    assert "there is no table public.t" in capture.log()


def test_a_table_that_somebody_removed_from_the_publication_is_read_anew(database: str, captured: Make) -> None:
    execute(database, CREATE, "CREATE TABLE u (id int PRIMARY KEY)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    capture = captured("public.t,public.u", envelope=EnvelopeName.PLAIN)
    capture.catch_up()
    execute(
        database,
        f"ALTER PUBLICATION skylog_{capture.prefix} DROP TABLE t",
        "INSERT INTO t VALUES (3, 3)",
        "DELETE FROM t WHERE id = 1",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CaptureRun, "run", interrupt)  # it dies right after it has published the table again
        with pytest.raises(InterruptionError):
            capture.catch_up()
    capture.catch_up()
    assert keys(capture) == [(2, 2), (3, 3)]


def test_tables_are_read_anew_if_somebody_drops_the_publication(database: str, captured: Make) -> None:
    """A transaction that was open meanwhile has changes that PostgreSQL cannot send any more."""
    execute(database, CREATE, "INSERT INTO t VALUES (1, 1)")
    capture = captured("public.t", envelope=EnvelopeName.PLAIN)
    drop = f"DROP PUBLICATION skylog_{capture.prefix}"
    with capture.running(), psycopg.connect(database) as long:
        wait_until(lambda: capture.statuses and keys(capture) == [(1, 1)], "the first row", PATIENCE_S)
        long.execute("INSERT INTO t VALUES (9, 9)")
        execute(database, drop, "INSERT INTO t VALUES (2, 2)", "DELETE FROM t WHERE id = 1")
        wait_until(lambda: capture.statuses[-1].failures, "it is noticed", PATIENCE_S)
        long.commit()
        wait_until(lambda: keys(capture) == [(2, 2), (9, 9)], "the rows of both", PATIENCE_S)
        assert "the publication was dropped" in str(capture.statuses[-1].last_error)
    execute(database, "INSERT INTO t VALUES (3, 3)", drop, "INSERT INTO t VALUES (4, 4)", "DELETE FROM t WHERE id = 2")
    capture.catch_up()
    assert keys(capture) == [(3, 3), (4, 4), (9, 9)]
    execute(database, "INSERT INTO t VALUES (5, 5)")
    capture.catch_up()
    assert keys(capture) == [(3, 3), (4, 4), (5, 5), (9, 9)]


def test_a_table_with_heirs_is_refused_with_the_fix(database: str, captured: Make) -> None:
    execute(database, CREATE, "CREATE TABLE heir () INHERITS (t)")
    with pytest.raises(CaptureError, match=r"NO INHERIT public\.t"):
        captured("public.t").catch_up()


def test_a_policy_that_hides_rows_is_an_error(database: str, captured: Make) -> None:
    user = f"r{time.monotonic_ns()}"
    with psycopg.connect(database) as connection:
        name = connection.info.dbname
    execute(
        database,
        CREATE,
        "INSERT INTO t VALUES (1, 1), (2, 2)",
        f"CREATE ROLE {user} LOGIN REPLICATION",
        f"GRANT CREATE ON DATABASE {name} TO {user}",
        f"ALTER TABLE t OWNER TO {user}",
        "ALTER TABLE t ENABLE ROW LEVEL SECURITY",
        "ALTER TABLE t FORCE ROW LEVEL SECURITY",
        "CREATE POLICY one ON t USING (id = 1)",
    )
    capture = captured("public.t")
    url = database.replace("postgres@", f"{user}@")
    settings = type(capture.settings)(url, ["public.t"], capture.prefix, capture.bootstrap)
    with pytest.raises(CaptureError, match="row-level security"):
        run_capture(settings, ThreadEvent(), lambda _: None, once=True)


def test_truncate_also_removes_rows_of_a_chunk_that_is_being_read(
    database: str, captured: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic has no row yet, so the rows of the chunk are all that there is to remove."""
    execute(database, CREATE, "INSERT INTO t VALUES (1, 1)")
    capture = captured("public.t", envelope=EnvelopeName.PLAIN)
    read = chunks.TableReader._read

    def read_and_truncate(self: chunks.TableReader, *place: Any) -> Chunk:
        chunk = read(self, *place)
        if chunk.rows:
            execute(database, "TRUNCATE t", "INSERT INTO t VALUES (2, 2)")
            time.sleep(1.0)  # the stream has it before the chunk is answered
        return chunk

    monkeypatch.setattr(chunks.TableReader, "_read", read_and_truncate)
    capture.catch_up()
    assert keys(capture) == [(2, 2)]


def test_a_truncation_is_continued_if_the_capture_dies_in_it(database: str, captured: Make) -> None:
    """It is committed in parts. What is removed already is not removed a second time."""
    execute(database, CREATE, "INSERT INTO t SELECT i, i FROM generate_series(1, 3000) AS i")
    capture = captured("public.t", envelope=EnvelopeName.PLAIN, limits=Limits(split_s=0.0))
    capture.catch_up()
    execute(database, "TRUNCATE t", "INSERT INTO t VALUES (7, 7)")
    send, sent = Sink.send, 0

    def send_some(self: Sink, records: list[Any]) -> None:
        nonlocal sent
        sent += sum(value is None for _, _, value in records)
        if sent > 1200:
            raise InterruptionError
        send(self, records)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sink, "send", send_some)
        with pytest.raises(InterruptionError):
            capture.catch_up()
    assert 0 < sum(value is None for _, value in capture.events("public.t")) < 3000
    capture.catch_up()
    assert keys(capture) == [(7, 7)]
    assert sum(value is None for _, value in capture.events("public.t")) == 3000


LARGE = "SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 400)"  # cannot be compressed: TOAST


def test_a_large_value_is_read_although_another_column_is_gone(database: str, captured: Make) -> None:
    execute(
        database,
        "CREATE TABLE t (id int PRIMARY KEY, body text, views int, note text)",
        f"INSERT INTO t VALUES (1, ({LARGE}), 0, '')",
    )
    capture = captured("public.t", envelope=EnvelopeName.PLAIN)
    capture.catch_up()
    execute(database, "UPDATE t SET views = 1", "ALTER TABLE t DROP COLUMN note")
    capture.catch_up()
    before, after = (value for _, value in capture.events("public.t"))
    assert after == {**before, "views": 1}


def test_a_large_value_is_read_although_another_large_one_is_gone(database: str, captured: Make) -> None:
    execute(
        database,
        "CREATE TABLE t (id int PRIMARY KEY, body text, views int, note text)",
        f"INSERT INTO t VALUES (1, ({LARGE}), 0, ({LARGE}))",
    )
    capture = captured("public.t", envelope=EnvelopeName.PLAIN)
    capture.catch_up()
    execute(database, "UPDATE t SET views = 1", "ALTER TABLE t DROP COLUMN note")
    capture.catch_up()
    before, after = (value for _, value in capture.events("public.t"))
    assert after == {**before, "views": 1, "note": "__debezium_unavailable_value"}


def test_a_connection_that_is_lost_leaves_no_large_value_out(
    database: str, captured: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(
        database, "CREATE TABLE t (id int PRIMARY KEY, body text, views int)", f"INSERT INTO t VALUES (1, ({LARGE}), 0)"
    )
    capture = captured("public.t", envelope=EnvelopeName.PLAIN)
    capture.catch_up()
    make = chunks.missing_values
    lost: list[int] = []

    def lose_connection_once(source: Source) -> Any:
        read = make(source)

        def read_or_lose(*row: Any) -> Any:
            if not lost:
                lost.append(source.connection.info.backend_pid)
                execute(database, f"SELECT pg_terminate_backend({lost[0]}, 5000)")
            return read(*row)

        return read_or_lose

    monkeypatch.setattr("skylog.capture.capture.missing_values", lose_connection_once)
    execute(database, "UPDATE t SET views = 1")
    capture.catch_up()
    before, after = (value for _, value in capture.events("public.t"))
    assert after == {**before, "views": 1}
    assert lost


def test_a_database_that_was_restored_from_a_backup_is_an_error_with_the_fix(database: str, captured: Make) -> None:
    execute(database, CREATE)
    capture = captured("public.t")
    capture.catch_up()
    sink = Sink(capture.bootstrap, capture.prefix)
    try:
        position = sink.position()
        assert position is not None
        ahead = Position(position.system, position.lsn + (1 << 40), None, position.tables)
        sink.commit(ahead)
    finally:
        sink.close()
    with pytest.raises(CaptureError, match=r"restored from a backup: skylog capture drop"):
        capture.catch_up()


def test_a_snapshot_waits_for_the_newest_transaction_too(database: str) -> None:
    execute(database, CREATE)
    source = Source(database, "newest")
    try:
        with psycopg.connect(database) as connection:
            connection.execute("INSERT INTO t VALUES (1, 1)")
            ((xid,),) = connection.execute("SELECT pg_current_xact_id()::text").fetchall()
            until = source.running_until()
            assert source.oldest_running() <= int(xid) < until
        assert source.oldest_running() >= until
    finally:
        source.close()


def test_a_failing_capture_shows_its_error(database: str, captured: Make) -> None:
    execute(database, CREATE)
    capture = captured("public.t")
    end = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = 'skylog_{}'"
    with capture.running():
        wait_until(lambda: capture.statuses, "the capture", PATIENCE_S)
        execute(database, end.format(capture.prefix))
        wait_until(lambda: any(each.failures for each in capture.statuses), "the failure", PATIENCE_S)
        failed = next(each for each in capture.statuses if each.failures)
        assert not failed.is_running
        assert failed.last_error
        wait_until(lambda: capture.statuses[-1].is_running, "the next run", PATIENCE_S)
        assert capture.statuses[-1].last_error


def test_a_topic_that_is_deleted_under_a_running_capture_gets_its_rows_again(database: str, captured: Make) -> None:
    execute(database, CREATE, "INSERT INTO t VALUES (1, 1), (2, 2)")
    capture = captured("public.t", envelope=EnvelopeName.PLAIN)
    topic = f"{capture.prefix}.public.t"
    with capture.running():
        wait_until(lambda: capture.statuses and keys(capture) == [(1, 1), (2, 2)], "the rows", PATIENCE_S)
        Admin(capture.bootstrap).delete_topics([topic])
        execute(database, "INSERT INTO t VALUES (3, 3)")
        wait_until(
            lambda: has_topic(capture, topic) and keys(capture) == [(1, 1), (2, 2), (3, 3)], "all rows", PATIENCE_S
        )
        wait_until(lambda: capture.statuses[-1].is_running, "it runs again", PATIENCE_S)
    assert capture.statuses[-1].last_error == f"the topic {topic} was deleted under the capture"
    configs = {each.name: each.value for each in Admin(capture.bootstrap).describe_configs(topic)}
    assert configs["cleanup.policy"] == "compact"


def test_a_topic_that_was_deleted_while_the_capture_was_stopped_gets_its_rows_again(
    database: str, captured: Make, caplog: pytest.LogCaptureFixture
) -> None:
    execute(database, CREATE, "INSERT INTO t VALUES (1, 1), (2, 2)")
    capture = captured("public.t", envelope=EnvelopeName.PLAIN)
    capture.catch_up()
    admin, topic = Admin(capture.bootstrap), f"{capture.prefix}.public.t"
    admin.delete_topics([topic])
    admin.create_topic(topic, 1)
    execute(database, "UPDATE t SET v = 20 WHERE id = 2")
    capture.catch_up()
    assert keys(capture) == [(1, 1), (2, 20)]
    assert f"the topic {topic} was deleted, and its rows with it: the table public.t is read anew" in caplog.text
    caplog.clear()
    execute(database, "DELETE FROM t WHERE id = 1")
    capture.catch_up()
    assert keys(capture) == [(2, 20)]
    assert not caplog.text


def test_the_positions_that_are_deleted_under_a_running_capture_are_noticed(database: str, captured: Make) -> None:
    execute(database, CREATE, "INSERT INTO t VALUES (1, 1)")
    capture = captured("public.t", envelope=EnvelopeName.PLAIN)
    with capture.running():
        wait_until(lambda: capture.statuses and keys(capture) == [(1, 1)], "the row", PATIENCE_S)
        Admin(capture.bootstrap).delete_topics([positions_topic(capture.prefix)])
        wait_until(lambda: capture.statuses[-1].last_error, "an error", PATIENCE_S)
        execute(database, "INSERT INTO t VALUES (2, 2)", "DELETE FROM t WHERE id = 1")
        wait_until(lambda: keys(capture) == [(2, 2)], "the rows", PATIENCE_S)
    assert "_skylog_capture" in str(capture.statuses[-1].last_error)


def has_topic(capture: Captured, topic: str) -> bool:
    return bool(Admin(capture.bootstrap).topic_ids([topic]))
