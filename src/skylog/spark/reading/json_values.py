"""Parses JSON values into the struct column `event`. The text of values that do not match goes to `_corrupt`.

Parsing is strict: if one field has another type than in the schema, the whole value is corrupt. Fields that are not in
the schema are ignored, and missing fields are null. Both columns are null if there is no value. Use Spark's `from_json`
for lenient parsing. Uses orjson, because Arrow's JSON reader crashes on some inputs, such as a bare null.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import orjson
import pyarrow as pa

from skylog.spark.errors import OptionError
from skylog.spark.schema import EVENT

Convert = Callable[[Any], Any]
"""Converts a JSON value for Arrow. Raises ValueError or OverflowError for a value of another type."""


class JsonValues:
    """Adds the two columns to record batches. They are the last two columns of `schema`, the resulting schema.

    Raises OptionError for a schema with an unsupported type.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._type = schema.field(EVENT).type
        self._convert = _struct(self._type)

    def extend(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        texts = batch["value"].to_pylist()
        events = [self._parse(text) for text in texts]
        corrupt = [
            text.decode(errors="replace") if event is None and text is not None else None
            for event, text in zip(events, texts, strict=True)
        ]
        added = [pa.array(events, self._type), pa.array(corrupt, pa.string())]
        return pa.RecordBatch.from_arrays([*batch.columns, *added], schema=self._schema)

    def _parse(self, text: bytes | None) -> Any:
        if text is None:
            return None
        try:
            return self._convert(orjson.loads(text))
        except (ValueError, OverflowError):
            return None


def _converter(kind: pa.DataType) -> Convert:
    if pa.types.is_string(kind):
        return _string
    if pa.types.is_boolean(kind):
        return _boolean
    if pa.types.is_signed_integer(kind):
        return _integer(kind.bit_width)
    if pa.types.is_floating(kind):
        return _float
    if pa.types.is_timestamp(kind):
        return _time
    if pa.types.is_list(kind):
        return _list(kind)
    if pa.types.is_struct(kind):
        return _struct(kind)
    raise OptionError(f"valueSchema: type {kind} is not supported for JSON values; use STRING and cast it")


def _string(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise ValueError(value)


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError(value)


def _integer(bits: int) -> Convert:
    limit = 1 << (bits - 1)

    def convert(value: Any) -> int:
        if type(value) is int and -limit <= value < limit:  # `type`, because a bool is an int
            return value
        raise ValueError(value)

    return convert


def _float(value: Any) -> float:
    if type(value) in (int, float):
        return float(value)
    raise ValueError(value)


def _time(value: Any) -> int:
    """Return microseconds since 1970, from ISO 8601 (UTC if it has no zone) or from milliseconds since 1970."""
    if isinstance(value, str):
        found = datetime.fromisoformat(value)
        since = (found if found.tzinfo is not None else found.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
        return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    if type(value) in (int, float) and -(2**53) < value < 2**53:
        return int(value * 1000)
    raise ValueError(value)


def _list(kind: pa.ListType) -> Convert:
    convert_item = _converter(kind.value_type)

    def convert(value: Any) -> list[Any]:
        if isinstance(value, list):
            return [None if item is None else convert_item(item) for item in value]
        raise ValueError(value)

    return convert


def _struct(kind: pa.StructType) -> Convert:
    fields = [(field.name, _converter(field.type)) for field in kind]

    def convert(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ValueError(value)
        found = {}
        for name, convert_field in fields:
            if (item := value.get(name)) is not None:
                found[name] = convert_field(item)
        return found

    return convert
