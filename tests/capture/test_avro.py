"""Captures in Avro: of a real PostgreSQL, with the schemas of a real registry, read by Confluent's deserializer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import psycopg
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from skylog.capture.capture import EnvelopeName, FormatName
from skylog.capture.drop import drop_capture
from skylog.capture.table import CaptureError
from skylog.testing import BrokerProcess, consume, wait_until
from tests.capture.captured import Captured, Event
from tests.registry.registry_process import Api, RegistryProcess, running_registry, wait_for_writer

Make = Callable[..., Captured]
PATIENCE_S = 120


@pytest.fixture(scope="module")
def registry(skylog_broker: BrokerProcess) -> Iterator[RegistryProcess]:
    with running_registry(skylog_broker.bootstrap) as registry:
        wait_for_writer(Api(registry.url))
        yield registry


@pytest.fixture
def in_avro(captured: Make, registry: RegistryProcess) -> Make:
    return lambda tables, **options: captured(tables, format=FormatName.AVRO, registry=registry.url, **options)


def execute(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


def events(capture: Captured, table: str) -> list[Event]:
    assert capture.settings.registry is not None
    topic = f"{capture.prefix}.{table}"
    decode = AvroDeserializer(SchemaRegistryClient({"url": capture.settings.registry}))

    def read(data: bytes | None, part: MessageField) -> Any:
        return decode(data, SerializationContext(topic, part))

    messages = consume(capture.bootstrap, topic)
    return [Event(read(each.key, MessageField.KEY), read(each.value, MessageField.VALUE)) for each in messages]


def versions(capture: Captured, subject: str) -> Any:
    assert capture.settings.registry is not None
    return Api(capture.settings.registry).get(f"/subjects/{capture.prefix}.{subject}/versions")


def test_rows_of_the_snapshot_and_of_the_stream_have_the_values_of_the_database(database: str, in_avro: Make) -> None:
    execute(
        database,
        "CREATE DOMAIN price AS numeric(12, 3)",
        """CREATE TABLE v (a bigint, "b %" text, c numeric(20, 5), d price, e numeric, f boolean, g timestamptz,
            h timestamp, i date, j bytea, k jsonb, l uuid, m real, n smallint, PRIMARY KEY ("b %", d, a))""",
        """INSERT INTO v VALUES (9007199254740993, 'ü', -12345678901234.5, 0.125, 1.50, false,
            '2024-05-01 14:00:00.5+02', '2024-05-01 14:00:00', '2024-05-01', '\\x00ff', '{"x": 1}',
            'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'NaN', NULL)""",
    )
    capture = in_avro("public.v", envelope=EnvelopeName.PLAIN)
    capture.catch_up()
    execute(database, "UPDATE v SET m = 1.5, n = -7", "DELETE FROM v")
    capture.catch_up()
    first, second, third = events(capture, "public.v")
    row = {
        "a": 9007199254740993,
        "b__": "ü",
        "c": Decimal("-12345678901234.50000"),
        "d": Decimal("0.125"),
        "e": "1.50",
        "f": False,
        "g": datetime(2024, 5, 1, 12, 0, 0, 500_000, UTC),
        "h": datetime(2024, 5, 1, 14, tzinfo=UTC),
        "i": date(2024, 5, 1),
        "j": b"\0\xff",
        "k": '{"x": 1}',
        "l": UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        "m": 1.5,
        "n": -7,
    }
    key = {"b__": "ü", "d": Decimal("0.125"), "a": 9007199254740993}
    assert str(first.value.pop("m")) == "nan"
    assert first == Event(key, {name: None if name == "n" else row[name] for name in row if name != "m"})
    assert second == Event(key, row)
    assert third == Event(key, None)
    raw = {message.key for message in consume(capture.bootstrap, f"{capture.prefix}.public.v")}
    assert len(raw) == 1  # the same bytes, so that compaction finds them
    assert versions(capture, "public.v-key") == versions(capture, "public.v-value") == [1]


def test_the_command_writes_debeziums_envelope_with_its_schema(database: str, in_avro: Make) -> None:
    execute(database, "CREATE TABLE t (id int PRIMARY KEY, name text NOT NULL)", "INSERT INTO t VALUES (1, 'Ada')")
    capture = in_avro("public.t")
    capture.catch_up()
    execute(
        database,
        "INSERT INTO t VALUES (2, 'Bob')",
        "UPDATE t SET name = 'Bo' WHERE id = 2",
        "DELETE FROM t WHERE id = 1",
        "TRUNCATE t",
    )
    capture.start("--format", "avro", "--registry", capture.settings.registry or "", "--once")
    wait_until(lambda: not capture.is_running, "the end of the command", PATIENCE_S)
    found = events(capture, "public.t")
    assert len(found) == 7, capture.log()
    assert [(key["id"], value and (value["op"], value["before"], value["after"])) for key, value in found] == [
        (1, ("r", None, {"id": 1, "name": "Ada"})),
        (2, ("c", None, {"id": 2, "name": "Bob"})),
        (2, ("u", None, {"id": 2, "name": "Bo"})),
        (1, ("d", {"id": 1, "name": None}, None)),
        (1, None),
        (2, ("d", None, None)),
        (2, None),
    ]
    snapshot, created = found[0].value, found[1].value
    assert [snapshot["source"][name] for name in ("snapshot", "lsn", "txId")] == ["true", None, None]
    source = created["source"]
    assert (source["connector"], source["name"], source["schema"], source["table"], source["snapshot"]) == (
        "postgresql",
        capture.prefix,
        "public",
        "t",
        "false",
    )
    assert source["db"] in database
    assert 0 < source["lsn"] < found[2].value["source"]["lsn"]
    assert source["txId"] > 0
    assert 0 <= created["ts_ms"] - source["ts_ms"] < 3_600_000


def test_a_changed_table_is_a_new_version_and_a_new_capture_ends_the_keys_of_the_one_before(
    database: str, in_avro: Make
) -> None:
    execute(database, "CREATE TABLE t (id int PRIMARY KEY, name text)", "INSERT INTO t VALUES (1, 'Ada')")
    capture = in_avro("public.t")
    capture.catch_up()
    assert versions(capture, "public.t-value") == [1]
    execute(
        database,
        "ALTER TABLE t ADD COLUMN age int NOT NULL DEFAULT 3",
        "INSERT INTO t VALUES (2, 'Bob', 40)",
        "ALTER TABLE t DROP COLUMN name",
        "INSERT INTO t VALUES (3, 50)",
    )
    capture.catch_up()
    assert [value["after"] for _, value in events(capture, "public.t")] == [
        {"id": 1, "name": "Ada"},
        {"id": 2, "name": "Bob", "age": 40},
        {"id": 3, "age": 50},
    ]
    assert (versions(capture, "public.t-key"), versions(capture, "public.t-value")) == ([1], [1, 2, 3])
    drop_capture(database, capture.prefix, capture.bootstrap)
    execute(database, "DELETE FROM t WHERE id < 3")
    capture.catch_up()
    live = {}
    for key, value in events(capture, "public.t"):
        live[key["id"]] = value and value["after"]
    assert live == {1: None, 2: None, 3: {"id": 3, "age": 50}}
    assert versions(capture, "public.t-value") == [1, 2, 3]


def test_a_type_that_does_not_fit_its_versions_is_an_error_with_the_fix(database: str, in_avro: Make) -> None:
    execute(database, "CREATE TABLE t (id int PRIMARY KEY, n int)")
    capture = in_avro("public.t", envelope=EnvelopeName.PLAIN)
    capture.catch_up()
    execute(database, "ALTER TABLE t ALTER COLUMN n TYPE text", "INSERT INTO t VALUES (1, 'one')")
    with pytest.raises(CaptureError, match=r"public.t-value.*set the compatibility of .*public.t-value to NONE"):
        capture.catch_up()
    assert capture.settings.registry is not None
    subject = f"{capture.prefix}.public.t-value"
    Api(capture.settings.registry).put(f"/config/{subject}", {"compatibility": "NONE"})
    capture.catch_up()
    assert events(capture, "public.t") == [Event({"id": 1}, {"id": 1, "n": "one"})]


def test_a_capture_goes_on_when_its_registry_is_back(
    database: str, in_avro: Make, registry: RegistryProcess, caplog: pytest.LogCaptureFixture
) -> None:
    execute(database, "CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE u (id int PRIMARY KEY)")
    capture = in_avro("public.t", envelope=EnvelopeName.PLAIN)
    capture.catch_up()
    with capture.running():
        wait_until(lambda: capture.statuses, "the capture", PATIENCE_S)
        registry.kill()
        try:
            execute(database, "INSERT INTO t VALUES (1)")
            wait_until(lambda: "no schema registry answered" in caplog.text, "a warning", PATIENCE_S)
            with pytest.raises(CaptureError, match="no schema registry answered"):
                in_avro("public.u").catch_up()
        finally:
            registry.start()
            wait_for_writer(Api(registry.url))
        wait_until(lambda: consume(capture.bootstrap, f"{capture.prefix}.public.t"), "the row", PATIENCE_S)
    assert events(capture, "public.t") == [Event({"id": 1}, {"id": 1})]
    with psycopg.connect(database) as connection:
        slots = "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
        assert connection.execute(slots).fetchall() == [(f"skylog_{capture.prefix}",)]  # none of the one that failed
