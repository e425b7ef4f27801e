"""Debezium's envelope in Avro, with the schema of `avro_schemas`."""

from __future__ import annotations

from collections.abc import Callable

from skylog import __version__
from skylog.capture.avro_rows import NULL, SOME
from skylog.capture.avro_types import encoded_bytes, encoded_long
from skylog.capture.envelope import Debezium, Emit
from skylog.capture.pgoutput import Begin
from skylog.capture.table import Table


class AvroDebezium(Debezium):
    """A row begins with its branch of the optional fields before and after."""

    null = NULL

    def __init__(self, prefix: str, database: str, now_ms: Callable[[], int]) -> None:
        super().__init__(prefix, database, now_ms)
        texts = (f"skylog {__version__}", "postgresql", prefix, database)
        self._source = b"".join(encoded_bytes(text.encode()) for text in texts)
        self._xid = NULL
        self._end = SOME + encoded_long(self._ts_ms)  # the field ts_ms of the transaction

    def begin(self, begin: Begin) -> None:
        super().begin(begin)
        self._xid = SOME + encoded_long(begin.xid)
        self._end = SOME + encoded_long(self._ts_ms)

    def read(self, table: Table, key: bytes, row: bytes, emit: Emit) -> None:
        now_ms = self._now_ms()
        source = self._source_of(table, b"true", now_ms, NULL) + NULL
        emit((table.topic, key, b"%b\0%b%b\2r\2%b" % (table.value_prefix, row, source, encoded_long(now_ms))))

    def _value(self, table: Table, before: bytes, after: bytes, op: bytes, lsn: int) -> bytes:
        source = self._sources.get(table)
        if source is None:
            source = self._sources[table] = self._source_of(table, b"false", self._commit_ms, self._xid)
        return b"%b%b%b%b\2%b\2%b%b" % (table.value_prefix, before, after, source, encoded_long(lsn), op, self._end)

    def _source_of(self, table: Table, snapshot: bytes, ts_ms: int, xid: bytes) -> bytes:
        return b"%b%b%b%b%b%b" % (
            self._source,
            encoded_bytes(snapshot),
            encoded_long(ts_ms),
            encoded_bytes(table.schema.encode()),
            encoded_bytes(table.table.encode()),
            xid,
        )
