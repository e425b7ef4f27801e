"""Rows as JSON, straight from the text that PostgreSQL prints: a row costs one formatting of bytes.

boolean                              true, false
smallint, integer, bigint            a number
real, double precision               a number; "NaN", "Infinity", "-Infinity"
timestamp, timestamptz               a string in ISO 8601; timestamptz in UTC: "2024-05-01T12:00:00.5Z"
bytea                                a string in base64
arrays of basic types                an array
everything else                      a string: PostgreSQL's own text; numeric with all its digits
"""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final

import orjson

from skylog.capture.arrays import ELEMENTS, array_encoder
from skylog.capture.pgoutput import UNCHANGED, Column, Value, Values

Encode = Callable[[bytes], bytes]

UNAVAILABLE: Final = b'"__debezium_unavailable_value"'
"""What Debezium writes for a value that PostgreSQL has not logged."""

_BOOL: Final = 16
_BYTEA: Final = 17
_INTEGERS: Final = frozenset({20, 21, 23, 26})
_FLOATS: Final = frozenset({700, 701})
_TIMESTAMP: Final = 1114
_TIMESTAMPTZ: Final = 1184
_NOT_NUMBERS: Final = frozenset({b"NaN", b"Infinity", b"-Infinity"})


def _text(value: bytes) -> bytes:
    return orjson.dumps(value.decode())


def _float(value: bytes) -> bytes:
    return b'"%b"' % value if value in _NOT_NUMBERS else value


def _bool(value: bytes) -> bytes:
    return b"true" if value == b"t" else b"false"


def _bytea(value: bytes) -> bytes:
    return b'"%b"' % base64.b64encode(bytes.fromhex(value[2:].decode()))


def _timestamp(value: bytes) -> bytes:
    return b'"%b"' % value.replace(b" ", b"T", 1) if value[:1].isdigit() and value[-2:] != b"BC" else _text(value)


def _timestamptz(value: bytes) -> bytes:
    if value[:1].isdigit() and value.endswith(b"+00"):
        return b'"%bZ"' % value[:-3].replace(b" ", b"T", 1)
    return _text(value)


def encoder_of(type_oid: int) -> Encode | None:
    """Return the function that turns a value of a type to JSON; None if its text is JSON already."""
    if type_oid in ELEMENTS:
        return array_encoder(encoder_of(ELEMENTS[type_oid]))
    if type_oid in _INTEGERS:
        return None
    if type_oid in _FLOATS:
        return _float
    return {_BOOL: _bool, _BYTEA: _bytea, _TIMESTAMP: _timestamp, _TIMESTAMPTZ: _timestamptz}.get(type_oid, _text)


class Rows(ABC):
    """Encodes rows of a table, whole and by the columns of their key."""

    value_prefix: bytes = b""
    """What begins the envelope around rows."""

    def __init__(self, columns: Sequence[Column], key: Sequence[str]) -> None:
        names = [column.name for column in columns]
        self.columns = tuple(columns)
        self.key_names = tuple(key)
        self._key_at = [names.index(name) for name in key]

    @abstractmethod
    def row(self, values: Sequence[Value]) -> bytes:
        """Encode a row. A value that is not known is written as Debezium does."""

    @abstractmethod
    def key(self, values: Sequence[Value]) -> bytes:
        """Encode the key of a row."""

    def key_values(self, values: Sequence[Value]) -> list[bytes]:
        """Return the text of the columns of the key, which are never NULL."""
        found = [values[at] for at in self._key_at]
        assert all(type(value) is bytes for value in found), "a row without a key"
        return found  # type: ignore[return-value]

    def filled(self, old: Values | None, new: Values, is_whole: bool) -> Values:
        """Return the new values, with those that an update has not changed from the old ones, as far as they are known.

        Unless the old row is whole, it has the columns of the key only.
        """
        if old is None or UNCHANGED not in new:
            return new
        return [
            before if value is UNCHANGED and (is_whole or column.is_key) else value
            for column, before, value in zip(self.columns, old, new, strict=True)
        ]


class JsonRows(Rows):
    """Rows as JSON objects."""

    def __init__(self, columns: Sequence[Column], key: Sequence[str]) -> None:
        super().__init__(columns, key)
        self._encoders = [encoder_of(column.type_oid) for column in columns]
        self._template = _template([column.name for column in columns])
        self._key_encoders = [self._encoders[at] for at in self._key_at]
        self._key_template = _template(key)

    def row(self, values: Sequence[Value]) -> bytes:
        return self._template % tuple(
            [
                b"null"
                if value is None
                else (UNAVAILABLE if type(value) is not bytes else value if encode is None else encode(value))
                for encode, value in zip(self._encoders, values, strict=True)
            ]
        )

    def key(self, values: Sequence[Value]) -> bytes:
        return self._key_template % tuple(
            [
                value if encode is None else encode(value)
                for encode, value in zip(self._key_encoders, self.key_values(values), strict=True)
            ]
        )


def _template(names: Sequence[str]) -> bytes:
    return b"{%b}" % b",".join(b"%b:%%b" % orjson.dumps(name).replace(b"%", b"%%") for name in names)
