"""Rows as Avro. What to do with each column is decided when the table is described, not for each row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from skylog.capture.avro_types import avro_type
from skylog.capture.pgoutput import Column, Value
from skylog.capture.rows import Rows
from skylog.capture.table import CaptureError

NULL: Final = b"\0"
"""An optional value that is null: the first branch of its union."""

SOME: Final = b"\2"
"""Before an optional value that is not null: the second branch."""


class AvroRows(Rows):
    """Encodes rows with the schemas of `avro_schemas`: columns of the key are required, the others optional."""

    def __init__(
        self, columns: Sequence[Column], key: Sequence[str], key_prefix: bytes, row_prefix: bytes, value_prefix: bytes
    ) -> None:
        """The prefixes begin a key, a row, and the envelope around rows."""
        super().__init__(columns, key)
        self.value_prefix = value_prefix
        self._key_prefix, self._row_prefix = key_prefix, row_prefix
        types = [avro_type(column) for column in columns]
        self._encoders = [
            (each.encode, b"" if column.name in key else SOME, SOME + each.unavailable if each.unavailable else NULL)
            for column, each in zip(columns, types, strict=True)
        ]
        self._key_encoders = [(at, types[at].encode) for at in self._key_at]

    def row(self, values: Sequence[Value]) -> bytes:
        parts = [self._row_prefix]
        append = parts.append
        for (encode, some, unavailable), value in zip(self._encoders, values, strict=True):
            if type(value) is bytes:
                encoded = encode(value)
                if encoded is None:
                    append(NULL)
                else:
                    append(some)
                    append(encoded)
            else:
                append(NULL if value is None else unavailable)
        return b"".join(parts)

    def key(self, values: Sequence[Value]) -> bytes:
        """Return the key of a row. Raises CaptureError if it has a value that Avro does not have."""
        found = self._key_prefix
        for at, encode in self._key_encoders:
            value = values[at]
            assert type(value) is bytes, "a row without a key"
            encoded = encode(value)
            if encoded is None:
                raise CaptureError(
                    f"the column {self.columns[at].name} of a primary key has the value {value.decode()}, which Avro "
                    "does not have: change the row, or use --format json"
                )
            found += encoded
        return found
