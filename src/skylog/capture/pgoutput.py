"""Decodes the messages of pgoutput, PostgreSQL's own output plugin, in version 1 of its protocol.

A transaction arrives when it has been committed: Begin, its changes in their order, Commit. Values are the text that
PostgreSQL prints, as bytes. None is NULL, and UNCHANGED is a large value outside of the row (TOAST) that an update has
not changed, so PostgreSQL has not logged it.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from skylog.errors import SkylogError


class PgoutputError(SkylogError):
    """Bytes that are not a message of pgoutput."""


class Unchanged:
    """The type of UNCHANGED."""

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = Unchanged()

Value = bytes | Unchanged | None
Values = list[Value]


class Begin(NamedTuple):
    """The start of a transaction, with the place of its commit record in the WAL."""

    commit_lsn: int
    commit_time_us: int  # since 2000
    xid: int


class Commit(NamedTuple):
    """The end of a transaction. `end_lsn` is the place after its commit record."""

    commit_lsn: int
    end_lsn: int
    commit_time_us: int


class Column(NamedTuple):
    """A column of a table. `is_key`: part of the replica identity; with REPLICA IDENTITY FULL every column is."""

    name: str
    type_oid: int
    is_key: bool
    type_modifier: int = -1  # the precision of a numeric, for example; -1: none


class Relation(NamedTuple):
    """A table, as the changes after it describe its rows. Sent before the first of them, and after a change of it."""

    id: int
    schema: str
    table: str
    identity: str  # d: primary key, f: full, i: an index, n: nothing
    columns: tuple[Column, ...]


class Insert(NamedTuple):
    relation: int
    new: Values


class Update(NamedTuple):
    """`old` is None unless the key has changed or the replica identity is FULL; only then `is_whole`, else the key."""

    relation: int
    old: Values | None
    new: Values
    is_whole: bool


class Delete(NamedTuple):
    """`old` has the key, and NULL for all else, unless the replica identity is FULL."""

    relation: int
    old: Values


class Truncate(NamedTuple):
    relations: tuple[int, ...]


class Other(NamedTuple):
    """A message that changes no row: a type, an origin, a message of an application."""

    kind: str


Message = Begin | Commit | Relation | Insert | Update | Delete | Truncate | Other

_BEGIN: Final = struct.Struct(">QqI")
_COMMIT: Final = struct.Struct(">xQQq")
_TYPE: Final = struct.Struct(">Ii")
_U32: Final = struct.Struct(">I")
_U16: Final = struct.Struct(">H")
_OLD: Final = b"KO"
_OTHERS: Final = b"YOM"


def decode(data: bytes, at: int = 0) -> Message:
    """Decode the message that begins at `at`. Raises PgoutputError."""
    try:
        kind = data[at]
        if kind == 73:  # I
            new, end = _tuple(data, at + 6)
            message: Message = Insert(_U32.unpack_from(data, at + 1)[0], new)
        elif kind == 85:  # U
            old, end = _tuple(data, at + 6) if data[at + 5] in _OLD else (None, at + 5)
            new, end = _tuple(data, end + 1)
            message = Update(_U32.unpack_from(data, at + 1)[0], old, new, data[at + 5] == 79)
        elif kind == 68:  # D
            gone, end = _tuple(data, at + 6)
            message = Delete(_U32.unpack_from(data, at + 1)[0], gone)
        elif kind == 66:  # B
            message, end = Begin(*_BEGIN.unpack_from(data, at + 1)), at + 1 + _BEGIN.size
        elif kind == 67:  # C
            message, end = Commit(*_COMMIT.unpack_from(data, at + 1)), at + 1 + _COMMIT.size
        elif kind == 82:  # R
            message, end = _relation(data, at + 1)
        elif kind == 84:  # T
            count = _U32.unpack_from(data, at + 1)[0]
            message = Truncate(struct.unpack_from(f">{count}I", data, at + 6))
            end = at + 6 + 4 * count
        elif kind in _OTHERS:
            return Other(chr(kind))
        else:
            raise PgoutputError(f"an unknown message {chr(kind)!r}")
    except (struct.error, IndexError, UnicodeDecodeError, ValueError) as error:
        raise PgoutputError(f"a message that ends early or is damaged: {error}") from error
    if end != len(data):
        raise PgoutputError(f"a message of {len(data) - at} bytes that should have {end - at}")
    return message


def _tuple(data: bytes, at: int) -> tuple[Values, int]:
    """Return the values of a row and the place after them."""
    values: Values = []
    append = values.append
    (count,) = _U16.unpack_from(data, at)
    at += 2
    for _ in range(count):
        kind = data[at]
        if kind == 116:  # t: text
            start = at + 5
            at = start + int.from_bytes(data[at + 1 : start], "big")
            append(data[start:at])
        elif kind == 110:  # n: NULL
            append(None)
            at += 1
        elif kind == 117:  # u: unchanged
            append(UNCHANGED)
            at += 1
        else:
            raise PgoutputError(f"an unknown kind {chr(kind)!r} of a value")
    if at > len(data):
        raise PgoutputError("a row that ends early")
    return values, at


def _relation(data: bytes, at: int) -> tuple[Relation, int]:
    (relation,) = _U32.unpack_from(data, at)
    schema, at = _text(data, at + 4)
    table, at = _text(data, at)
    identity = chr(data[at])
    (count,) = _U16.unpack_from(data, at + 1)
    at += 3
    columns = []
    for _ in range(count):
        is_key = bool(data[at] & 1)
        name, at = _text(data, at + 1)
        type_oid, type_modifier = _TYPE.unpack_from(data, at)
        columns.append(Column(name, type_oid, is_key, type_modifier))
        at += _TYPE.size
    return Relation(relation, schema or "pg_catalog", table, identity, tuple(columns)), at


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(0, at)
    return data[at:end].decode(), end + 1


def format_lsn(lsn: int) -> str:
    """Return an LSN as PostgreSQL writes it: 16/B374D848."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def parse_lsn(text: str) -> int:
    """Parse an LSN as PostgreSQL writes it."""
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)
