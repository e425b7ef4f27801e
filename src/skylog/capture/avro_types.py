"""Avro for PostgreSQL's types: the type of a column in a schema, and the function that encodes PostgreSQL's text.

smallint, integer                    int
bigint, oid                          long
real, double precision               float, double
boolean                              boolean
numeric with a precision             bytes with the logical type decimal; NaN, which that cannot be, is null
timestamp, timestamptz               long with the logical type timestamp-micros; timestamp as if it were in UTC
date                                 int with the logical type date
uuid                                 string with the logical type uuid
bytea                                bytes
everything else                      string: PostgreSQL's own text
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime
from struct import Struct
from typing import Any, Final, NamedTuple

from skylog.capture.pgoutput import Column

Encode = Callable[[bytes], bytes | None]
"""Turns PostgreSQL's text to Avro. None: there is no such value in Avro."""

UNAVAILABLE: Final = b"__debezium_unavailable_value"
"""What Debezium writes for a value that PostgreSQL has not logged."""


class AvroType(NamedTuple):
    """`unavailable` is written for a value that PostgreSQL has not logged. None: null."""

    schema: Any
    encode: Encode
    unavailable: bytes | None = None


_NUMERIC: Final = 1700
_MODIFIER_OFFSET: Final = 4
_SMALL: Final = 1 << 14
_MORE: Final = tuple(bytes((low | 128, high | 128)) for high in range(128) for low in range(128))
"""The encodings of 14 bits, if more follow."""
_LAST: Final = tuple(bytes((low | 128, high) if high else (low,)) for high in range(128) for low in range(128))
"""The encodings of the last 14 bits."""
_FLOAT: Final = Struct("<f").pack
_DOUBLE: Final = Struct("<d").pack
_EPOCH: Final = datetime(1970, 1, 1)
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_LARGEST: Final = (1 << 63) - 1  # in the year 294247; PostgreSQL's years go to 294276
_DAY_US: Final = 86_400_000_000
_TIME: Final = re.compile(rb"(\d+)-(\d\d)-(\d\d)(?: (\d\d):(\d\d):(\d\d)(?:\.(\d+))?)?(?:\+00)?( BC)?")
_GREGORIAN_YEARS: Final = 400
_GREGORIAN_DAYS: Final = 146_097  # in 400 years


def encoded_long(number: int) -> bytes:
    """Return an int or a long of Avro: seven bits a byte, the lowest first, the sign in the lowest bit."""
    left = (number << 1) ^ (number >> 63)
    if left < _SMALL:
        return _LAST[left]
    found = _MORE[left & 16383]
    left >>= 14
    while left >= _SMALL:
        found += _MORE[left & 16383]
        left >>= 14
    return found + _LAST[left]


def encoded_bytes(value: bytes) -> bytes:
    """Return bytes or a string of Avro."""
    size = len(value) << 1
    return (_LAST[size] if size < _SMALL else encoded_long(size >> 1)) + value


def _integer(value: bytes) -> bytes:
    return encoded_long(int(value))


def _float(value: bytes) -> bytes:
    return _FLOAT(float(value))


def _double(value: bytes) -> bytes:
    return _DOUBLE(float(value))


def _bool(value: bytes) -> bytes:
    return b"\1" if value == b"t" else b"\0"


def _bytea(value: bytes) -> bytes:
    return encoded_bytes(bytes.fromhex(value[2:].decode()))


def _timestamp(value: bytes) -> bytes:
    try:
        moment = datetime.fromisoformat(value.removesuffix(b"+00").decode())
    except ValueError:  # infinity, before the year 1, or after 9999
        return encoded_long(_far(value, 63) if value.endswith(b"infinity") else min(_far_us(value), _LARGEST))
    since = moment - _EPOCH
    return encoded_long(since.days * _DAY_US + since.seconds * 1_000_000 + since.microseconds)


def _date(value: bytes) -> bytes:
    try:
        return encoded_long(date.fromisoformat(value.decode()).toordinal() - _EPOCH_DAY)
    except ValueError:
        return encoded_long(_far(value, 31) if value.endswith(b"infinity") else _far_us(value) // _DAY_US)


def _far(value: bytes, bits: int) -> int:
    """Return what PostgreSQL itself stores for infinity and -infinity."""
    return -(1 << bits) if value.startswith(b"-") else (1 << bits) - 1


def _far_us(value: bytes) -> int:
    """Return the microseconds since 1970 of a moment in any year, in the Gregorian calendar."""
    found = _TIME.fullmatch(value)
    if found is None:
        raise ValueError(f"not a date or a time of PostgreSQL: {value!r}")
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups()[:6])
    if found[8]:
        year = 1 - year
    cycles, in_cycle = divmod(year - 1, _GREGORIAN_YEARS)
    days = cycles * _GREGORIAN_DAYS + date(in_cycle + 1, month, day).toordinal() - _EPOCH_DAY
    fraction = int((found[7] or b"").ljust(6, b"0"))
    return days * _DAY_US + ((hour * 60 + minute) * 60 + second) * 1_000_000 + fraction


def _decimal(precision: int, scale: int) -> AvroType:
    def encode(value: bytes) -> bytes | None:
        whole, _, fraction = value.partition(b".")
        try:
            number = int(whole + fraction.ljust(scale, b"0"))
        except ValueError:  # NaN
            return None
        return encoded_bytes(number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True))

    return AvroType({"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}, encode)


_STRING: Final = AvroType("string", encoded_bytes, encoded_bytes(UNAVAILABLE))
_MICROS: Final = AvroType({"type": "long", "logicalType": "timestamp-micros"}, _timestamp)
_TYPES: Final = {
    16: AvroType("boolean", _bool),
    17: AvroType("bytes", _bytea, encoded_bytes(UNAVAILABLE)),
    20: AvroType("long", _integer),
    21: AvroType("int", _integer),
    23: AvroType("int", _integer),
    26: AvroType("long", _integer),
    700: AvroType("float", _float),
    701: AvroType("double", _double),
    1082: AvroType({"type": "int", "logicalType": "date"}, _date),
    1114: _MICROS,
    1184: _MICROS,
    2950: AvroType({"type": "string", "logicalType": "uuid"}, encoded_bytes),
}


def avro_type(column: Column) -> AvroType:
    """Return the type of a column that is not null."""
    if column.type_oid == _NUMERIC and column.type_modifier >= _MODIFIER_OFFSET:
        packed = column.type_modifier - _MODIFIER_OFFSET
        precision, scale = packed >> 16 & 0xFFFF, packed & 0x7FF
        if scale <= precision:  # PostgreSQL has other scales too, also negative ones; Avro does not
            return _decimal(precision, scale)
    return _TYPES.get(column.type_oid, _STRING)
