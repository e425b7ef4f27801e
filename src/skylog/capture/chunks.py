"""Reads tables: chunks of a snapshot, in a thread with a connection of its own, and single rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

import psycopg
from psycopg import pq, sql

from skylog.capture.merge import Chunk, ChunkRow, VisibleTransactions
from skylog.capture.pgoutput import UNCHANGED, Column, Values, parse_lsn
from skylog.capture.replication import conninfo
from skylog.capture.source import Source
from skylog.capture.table import CaptureError, Table, TableChangedError, Tables

_BEGIN: Final = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_UNDEFINED_COLUMN: Final = b"42703"
_UNDEFINED_TABLE: Final = b"42P01"
_GENERATED: Final = b"SELECT attname FROM pg_attribute WHERE attrelid = $1::regclass AND attgenerated <> ''"


class TableReader:
    """Reads chunks of tables, one at a time."""

    def __init__(self, url: str, tables: Tables, keys: Mapping[str, Sequence[str]], rows: int) -> None:
        self._url = url
        self._tables = tables
        self._keys = keys
        self._rows = rows
        self._connection: psycopg.Connection | None = None
        self._thread = ThreadPoolExecutor(1, "skylog-capture-snapshot")

    def ask(self, name: str, after: Sequence[str] | None) -> Future[Chunk]:
        """Begin to read the rows of a table after a key, from the first one if it is None."""
        return self._thread.submit(self._read, name, after)

    def close(self) -> None:
        connection = self._connection
        if connection is not None:
            connection.cancel_safe(timeout=1.0)
        self._thread.shutdown(wait=True, cancel_futures=True)
        if self._connection is not None:
            self._connection.close()

    def _read(self, name: str, after: Sequence[str] | None) -> Chunk:
        if self._connection is None:
            self._connection = psycopg.connect(conninfo(self._url), autocommit=True)
        session = self._connection.pgconn
        key = self._keys[name]
        query = _chunk_query(name, key, after is not None, self._rows).as_bytes(self._connection)
        _run(session, name, _BEGIN)
        try:
            visible = _run(session, name, b"SELECT pg_current_snapshot()").get_value(0, 0) or b""
            generated = _run(session, name, _GENERATED, [_regclass(name).as_bytes(self._connection)])
            result = _run(session, name, query, [value.encode() for value in after or ()])
        finally:
            _run(session, name, b"COMMIT")
        high = _run(session, name, b"SELECT pg_current_wal_insert_lsn()").get_value(0, 0) or b""
        places = _streamed_places(result, generated)
        table = table_of_result(self._tables, name, key, result, places)
        rows, last = _rows_of(table, result, places)
        return Chunk(
            rows,
            VisibleTransactions.parse(visible.decode()),
            parse_lsn(high.decode()),
            last,
            result.ntuples < self._rows,
            table,
        )


def current_table(source: Source, tables: Tables, name: str, key: Sequence[str]) -> Table:
    """Return a table as it is now."""
    connection = source.connection
    query = sql.SQL("SELECT * FROM {} LIMIT 0").format(sql.Identifier(*name.split(".", 1)))
    generated = _run(connection.pgconn, name, _GENERATED, [_regclass(name).as_bytes(connection)])
    result = _run(connection.pgconn, name, query.as_bytes(connection))
    return table_of_result(tables, name, key, result, _streamed_places(result, generated))


def table_of_result(
    tables: Tables, name: str, key: Sequence[str], result: pq.abc.PGresult, places: Sequence[int]
) -> Table:
    """Return a table as a result of a query shows it. The types are no domains: PostgreSQL sends their base types."""
    columns = []
    for at in places:
        column = (result.fname(at) or b"").decode()
        columns.append(Column(column, result.ftype(at), column in key, result.fmod(at)))
    return tables.of(name, columns, key)


def _streamed_places(result: pq.abc.PGresult, generated: pq.abc.PGresult) -> list[int]:
    """Return the places of the columns that the stream has: those that are not generated."""
    left_out = {generated.get_value(at, 0) for at in range(generated.ntuples)}
    return [at for at in range(result.nfields) if result.fname(at) not in left_out]


def missing_values(source: Source) -> Callable[[Table, Values], Values]:
    """Return a function that reads from the table what an update has not changed.

    The table may be ahead of the stream. Then the values are those of a later change, which the stream will have too.
    If the row is gone, its values stay unknown, and the stream will remove it.
    """

    def read(table: Table, values: Values) -> Values:
        unknown = [at for at, value in enumerate(values) if value is UNCHANGED]
        names = [table.rows.columns[at].name for at in unknown]
        key = table.rows.key_names
        query = sql.SQL("SELECT {} FROM {} WHERE ({}) = ({})").format(
            sql.SQL(", ").join(map(sql.Identifier, names)),
            sql.Identifier(table.schema, table.table),
            sql.SQL(", ").join(map(sql.Identifier, key)),
            sql.SQL(", ").join(sql.SQL(f"${at}") for at in range(1, len(key) + 1)),
        )
        session = source.connection.pgconn
        result = session.exec_params(query.as_bytes(source.connection), list(table.rows.key_values(values)))
        if _state_of(result) == _UNDEFINED_COLUMN:  # a column is gone by now, and nobody can know its value
            return read_one_by_one(table, values, unknown) if len(unknown) > 1 else values
        _check(session, result, table.name)
        if not result.ntuples:
            return values
        found = list(values)
        for place, at in enumerate(unknown):
            found[at] = result.get_value(0, place)
        return found

    def read_one_by_one(table: Table, values: Values, unknown: Sequence[int]) -> Values:
        """Read each column alone, so that only those that are gone stay unknown."""
        found = list(values)
        for at in unknown:
            others = [b"" if each is UNCHANGED and place != at else each for place, each in enumerate(values)]
            found[at] = read(table, others)[at]
        return found

    return read


def _rows_of(
    table: Table, result: pq.abc.PGresult, places: Sequence[int]
) -> tuple[list[ChunkRow], tuple[str, ...] | None]:
    """Return the rows of a result and the text of the last key."""
    rows = []
    values: Values = []
    for at in range(result.ntuples):
        values = [result.get_value(at, column) for column in places]
        rows.append(ChunkRow(table.key(values), table.row(values)))
    last = tuple(value.decode() for value in table.rows.key_values(values)) if rows else None
    return rows, last


def _chunk_query(name: str, key: Sequence[str], is_later: bool, rows: int) -> sql.Composed:
    columns = sql.SQL(", ").join(map(sql.Identifier, key))
    parameters = sql.SQL(", ").join(sql.SQL(f"${at}") for at in range(1, len(key) + 1))
    where = sql.SQL("WHERE ({}) > ({})").format(columns, parameters) if is_later else sql.SQL("")
    return sql.SQL("SELECT * FROM {} {} ORDER BY {} LIMIT {}").format(
        _regclass(name), where, columns, sql.Literal(rows)
    )


def _regclass(name: str) -> sql.Identifier:
    return sql.Identifier(*name.split(".", 1))


def _run(session: pq.abc.PGconn, table: str, query: bytes, parameters: Sequence[bytes] = ()) -> pq.abc.PGresult:
    result = session.exec_params(query, list(parameters)) if parameters else session.exec_(query)
    _check(session, result, table)
    return result


def _check(session: pq.abc.PGconn, result: pq.abc.PGresult, table: str) -> None:
    """Raise psycopg.OperationalError if the connection is lost, and SkylogError if the query failed."""
    if result.status in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
        return
    text = " ".join(result.error_message.decode(errors="replace").split()) if result.error_message else "no answer"
    if session.status != pq.ConnStatus.OK:
        raise psycopg.OperationalError(text)
    if _state_of(result) in (_UNDEFINED_COLUMN, _UNDEFINED_TABLE):
        raise TableChangedError(table, text)
    raise CaptureError(f"cannot read the table {table}: {text}")


def _state_of(result: pq.abc.PGresult) -> bytes | None:
    return result.error_field(pq.DiagnosticField.SQLSTATE)
