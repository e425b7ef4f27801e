"""The records of a change: plain rows, or Debezium's envelope. Both end a row with a tombstone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import orjson

from skylog import __version__
from skylog.capture.pgoutput import Begin, Values
from skylog.capture.table import Table

Record = tuple[str, bytes, bytes | None]
"""Topic, key, value."""

Emit = Callable[[Record], None]

_EPOCH_US: Final = 946_684_800_000_000  # 2000, where PostgreSQL's time begins


class Envelope(Protocol):
    """Turns changes of rows to records. The whole row is known, as far as PostgreSQL has logged it."""

    fills: bool
    """Whether values that PostgreSQL has not logged are to be read from the table."""

    def begin(self, begin: Begin) -> None:
        """Note the transaction of the changes that follow."""

    def read(self, table: Table, key: bytes, row: bytes, emit: Emit) -> None:
        """A row of a snapshot."""

    def insert(self, table: Table, new: Values, lsn: int, emit: Emit) -> bytes: ...

    def update(self, table: Table, old: Values | None, new: Values, lsn: int, emit: Emit) -> tuple[bytes, bytes]: ...

    def delete(self, table: Table, old: Values, lsn: int, emit: Emit) -> bytes: ...

    def erase(self, table: Table, key: bytes, lsn: int, emit: Emit) -> None:
        """A row that TRUNCATE has removed, of which only the key is known."""


class Plain:
    """The row itself as the value, and a tombstone for a row that is gone."""

    fills = True

    def begin(self, begin: Begin) -> None: ...

    def read(self, table: Table, key: bytes, row: bytes, emit: Emit) -> None:
        emit((table.topic, key, row))

    def insert(self, table: Table, new: Values, _lsn: int, emit: Emit) -> bytes:
        key = table.key(new)
        emit((table.topic, key, table.row(new)))
        return key

    def update(self, table: Table, old: Values | None, new: Values, _lsn: int, emit: Emit) -> tuple[bytes, bytes]:
        key = table.key(new)
        before = key if old is None else table.key(old)
        if before != key:
            emit((table.topic, before, None))
        emit((table.topic, key, table.row(new)))
        return before, key

    def delete(self, table: Table, old: Values, _lsn: int, emit: Emit) -> bytes:
        key = table.key(old)
        emit((table.topic, key, None))
        return key

    def erase(self, table: Table, key: bytes, _lsn: int, emit: Emit) -> None:
        emit((table.topic, key, None))


class Debezium:
    """Debezium's envelope without its schema: before, after, source, op, ts_ms. A tombstone follows a delete."""

    fills = False
    null = b"null"

    def __init__(self, prefix: str, database: str, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._source = b'{"version":%b,"connector":"postgresql","name":%b,"db":%b,' % (
            orjson.dumps(f"skylog {__version__}"),
            orjson.dumps(prefix),
            orjson.dumps(database),
        )
        self._sources: dict[Table, bytes] = {}
        self._commit_ms = self._ts_ms = now_ms()  # of rows that are erased before the first transaction
        self._xid = b"null"

    def begin(self, begin: Begin) -> None:
        self._commit_ms = (begin.commit_time_us + _EPOCH_US) // 1000
        self._ts_ms = self._now_ms()
        self._xid = b"%d" % begin.xid
        self._sources.clear()

    def read(self, table: Table, key: bytes, row: bytes, emit: Emit) -> None:
        now_ms = self._now_ms()
        source = self._source_of(table, b"true", now_ms, b"null")
        value = b'{"before":null,"after":%b,"source":%bnull},"op":"r","ts_ms":%d}' % (row, source, now_ms)
        emit((table.topic, key, value))

    def insert(self, table: Table, new: Values, lsn: int, emit: Emit) -> bytes:
        key = table.key(new)
        emit((table.topic, key, self._value(table, self.null, table.row(new), b"c", lsn)))
        return key

    def update(self, table: Table, old: Values | None, new: Values, lsn: int, emit: Emit) -> tuple[bytes, bytes]:
        key = table.key(new)
        if old is None:
            emit((table.topic, key, self._value(table, self.null, table.row(new), b"u", lsn)))
            return key, key
        before = table.key(old)
        if before == key:
            emit((table.topic, key, self._value(table, table.row(old), table.row(new), b"u", lsn)))
        else:
            self.delete(table, old, lsn, emit)
            self.insert(table, new, lsn, emit)
        return before, key

    def delete(self, table: Table, old: Values, lsn: int, emit: Emit) -> bytes:
        key = table.key(old)
        emit((table.topic, key, self._value(table, table.row(old), self.null, b"d", lsn)))
        emit((table.topic, key, None))
        return key

    def erase(self, table: Table, key: bytes, lsn: int, emit: Emit) -> None:
        emit((table.topic, key, self._value(table, self.null, self.null, b"d", lsn)))
        emit((table.topic, key, None))

    def _value(self, table: Table, before: bytes, after: bytes, op: bytes, lsn: int) -> bytes:
        source = self._sources.get(table)
        if source is None:
            source = self._sources[table] = self._source_of(table, b"false", self._commit_ms, self._xid)
        return b'{"before":%b,"after":%b,"source":%b%d},"op":"%b","ts_ms":%d}' % (
            before,
            after,
            source,
            lsn,
            op,
            self._ts_ms,
        )

    def _source_of(self, table: Table, snapshot: bytes, ts_ms: int, xid: bytes) -> bytes:
        return b'%b"snapshot":"%b","ts_ms":%d,"schema":%b,"table":%b,"txId":%b,"lsn":' % (
            self._source,
            snapshot,
            ts_ms,
            orjson.dumps(table.schema),
            orjson.dumps(table.table),
            xid,
        )
