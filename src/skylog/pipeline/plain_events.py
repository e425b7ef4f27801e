"""Parses plain events in Arrow batches, without Spark. `event_parser` says what an event is; this is a faster way.

A value is *plain* if it surely parses, and to the fields that `event_parser` gives it. That holds for what most writers
of JSON write. Everything else is left to `event_parser`, also what may not parse: escapes of quotes in other forms than
usual, names that come twice, numbers with a fraction as text, very long values. A schema is plain if its types are
STRING, DOUBLE, INT, BIGINT, BOOLEAN, and structs of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.types import BooleanType, DataType, DoubleType, IntegerType, LongType, StringType, StructType

_LONGEST: Final = 50_000  # as long as a name may be in Spark
_LONG_NUMBER: Final = re.compile(rb"[0-9]{500}")  # of more than 1,000 characters it may not
_QUOTES: Final = (b'\\"', b"\\u0022")
_FIRST_BEYOND_BMP: Final = 0xF0  # in UTF-8; Spark writes such characters as two escapes
_AT_ONCE: Final = 2_000  # objects of more values do not fit into a processor's cache, and take twice as long
_EXACT: Final = frozenset({str, int, bool, NoneType})

Doubts = set[int]
"""The numbers of values that are not plain after all."""


@dataclass(frozen=True)
class PlainEvents:
    """Parses the values of batches. It is sent to tasks."""

    schema: StructType

    @classmethod
    def of(cls, schema: StructType) -> PlainEvents | None:
        """Return the parser, or None if the schema is not plain."""
        return cls(schema) if _is_plain(schema) else None

    def parse(self, values: pa.Array) -> tuple[NDArray[np.bool_], list[pa.Array]]:
        """Return which values are plain, and the columns of their fields."""
        parts = [self._parse(values.slice(at, _AT_ONCE)) for at in range(0, len(values), _AT_ONCE)]
        columns = [pa.concat_arrays(pieces) for pieces in zip(*(found for _, found in parts), strict=True)]
        return np.concatenate([np.empty(0, dtype=bool), *(is_plain for is_plain, _ in parts)]), columns

    def _parse(self, values: pa.Array) -> tuple[NDArray[np.bool_], list[pa.Array]]:
        texts = values.to_pylist()
        parsed = [_plain_object(text) for text in texts]
        doubts = {number for number, found in enumerate(parsed) if found is None}
        objects = [found or {} for found in parsed]
        columns = [_column(each.dataType)([found.get(each.name) for found in objects], doubts) for each in self.schema]
        is_plain = np.ones(len(texts), dtype=bool)
        if doubts:
            is_plain[list(doubts)] = False
            columns = [column.filter(pa.array(is_plain)) for column in columns]
        return is_plain, columns


def _is_plain(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return all(_is_plain(each.dataType) for each in kind)
    return isinstance(kind, (StringType, DoubleType, IntegerType, LongType, BooleanType))


def _plain_object(text: bytes | None) -> dict[str, Any] | None:
    """Return the object, or None if Spark may see another one, or none.

    Other parsers keep the first of two fields with one name, or check both. Then the text has more quotes than that of
    the parsed object, unless it writes quotes in several ways.
    """
    if text is None or len(text) >= _LONGEST:
        return None
    try:
        found = orjson.loads(text)
        if type(found) is not dict:
            return None
        again = orjson.dumps(found)
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):  # the latter if it is nested too deeply
        return None
    if again == text:
        return found
    if b"\\" in text and any(quote in text for quote in _QUOTES):
        return None
    return found if again.count(b'"') == text.count(b'"') and not _LONG_NUMBER.search(text) else None


def _column(kind: DataType) -> Callable[[list[Any], Doubts], pa.Array]:
    match kind:
        case StructType():
            return lambda values, doubts: _structs(kind, values, doubts)
        case StringType():
            return _texts
        case DoubleType():
            return _doubles
        case BooleanType():
            return lambda values, doubts: pa.array(_only((bool,), values, doubts), pa.bool_())
    bits = 31 if isinstance(kind, IntegerType) else 63
    return lambda values, doubts: _integers(bits, values, doubts)


def _only(kinds: Sequence[type], values: list[Any], doubts: Doubts) -> list[Any]:
    """Return the values without those of other types, which are in doubt."""
    if set(map(type, values)) <= {*kinds, NoneType}:
        return values
    return _without(doubts, values, lambda value: type(value) not in kinds)


def _without(doubts: Doubts, values: list[Any], is_doubtful: Callable[[Any], bool]) -> list[Any]:
    found = {number for number, value in enumerate(values) if value is not None and is_doubtful(value)}
    doubts |= found
    return [None if number in found else value for number, value in enumerate(values)] if found else values


def _structs(kind: StructType, values: list[Any], doubts: Doubts) -> pa.Array:
    values = _only((dict,), values, doubts)
    objects = [value or {} for value in values]
    columns = [_column(each.dataType)([found.get(each.name) for found in objects], doubts) for each in kind]
    is_null = pa.array([value is None for value in values], pa.bool_())
    return pa.StructArray.from_arrays(columns, names=kind.names, mask=is_null)


def _doubles(values: list[Any], doubts: Doubts) -> pa.Array:
    numbers = [None if value is None else float(value) for value in _only((float, int), values, doubts)]
    return pa.array(numbers, pa.float64())


def _integers(bits: int, values: list[Any], doubts: Doubts) -> pa.Array:
    limit = 1 << bits
    found = _without(doubts, _only((int,), values, doubts), lambda value: not -limit <= value < limit)
    return pa.array(found, pa.int32() if bits < 32 else pa.int64())


def _texts(values: list[Any], doubts: Doubts) -> pa.Array:
    if not set(map(type, values)) <= {str, NoneType}:
        values = _without(doubts, list(map(_text, values)), lambda value: value is _DOUBTFUL)
    return pa.array(values, pa.string())


_DOUBTFUL: Final = object()


def _text(value: Any) -> Any:
    """Return the JSON text of a value that is not a text, as Spark writes it, or _DOUBTFUL."""
    if value is None or type(value) is str:
        return value
    if not _is_exact(value):
        return _DOUBTFUL
    text = orjson.dumps(value)
    is_escaped = b"\\u" in text or (not text.isascii() and max(text) >= _FIRST_BEYOND_BMP)
    return _DOUBTFUL if is_escaped else text.decode()


def _is_exact(value: Any) -> bool:
    """Return whether all numbers are integers. Fractions have several texts, and so does the zero."""
    kind = type(value)
    if kind not in (dict, list):
        return kind in _EXACT
    items = value.values() if kind is dict else value
    return set(map(type, items)) <= _EXACT or all(map(_is_exact, items))
