"""Framed messages of any schemas as one struct column, with the reason for every message that is no part of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skylog.schemas.avro_columns.cursor import Buffer, Cursor, Integers, Rows
from skylog.schemas.avro_columns.plan import Node, UnresolvableError, plan, spread
from skylog.schemas.avro_columns.shape import Shape
from skylog.schemas.avro_columns.single import SingleReader
from skylog.schemas.avro_columns.writer_types import WriterType, WriterTypeError
from skylog.schemas.framing import MAGIC, PREFIX_BYTES
from skylog.schemas.registry_client import SchemaNotFoundError

FindSchema = Callable[[int], WriterType]
"""Returns the schema of an id. Raises SchemaNotFoundError, and WriterTypeError for one that cannot be columns."""

MALFORMED: Final = "the bytes do not match schema {}"


class Decoded(NamedTuple):
    """The messages as structs, and why some are null; the reason is null for the others, and if there is no value."""

    events: pa.Array
    reasons: pa.Array


class MessageDecoder:
    """Decodes messages to `shape`. Keeps a plan for every schema that it has met. Raises errors of the registry."""

    def __init__(self, shape: Shape, find_schema: FindSchema) -> None:
        self._shape = shape
        self._find_schema = find_schema
        self._plans: dict[int, SchemaPlan | str] = {}

    def decode(self, values: pa.Array) -> Decoded:
        """Decode an array of binary values. Null values give null."""
        count = len(values)
        if not count:
            return Decoded(pa.array([], self._shape.arrow), pa.array([], pa.string()))
        starts, ends, raw = _spans(values)
        buffer = Buffer(raw)
        present = (
            np.ones(count, np.bool_) if not values.null_count else values.is_valid().to_numpy(zero_copy_only=False)
        )
        framed = present & (ends - starts >= PREFIX_BYTES)
        framed &= buffer.bytes.take(starts, mode="clip") == MAGIC
        reasons = np.full(count, None, object)
        reasons[present & ~framed] = "the value does not begin with the id of a schema"
        ids = buffer.words(">u4")[np.minimum(starts + 1, buffer.end)]
        parts: list[pa.Array] = []
        chosen: list[Rows] = []
        for schema_id in np.unique(ids[framed]).tolist():
            rows = np.flatnonzero(framed & (ids == schema_id))
            found = self._plan(schema_id)
            if isinstance(found, str):
                reasons[rows] = found
                continue
            array, good = found.decode(buffer, starts[rows] + PREFIX_BYTES, ends[rows])
            reasons[rows[~good]] = MALFORMED.format(schema_id)
            parts.append(array)
            chosen.append(rows[good])
        whole = len(parts) == 1 and len(parts[0]) == count
        events = parts[0] if whole else spread(parts, chosen, count, self._shape.arrow)
        return Decoded(events, pa.array(reasons, pa.string()) if not whole else pa.nulls(count, pa.string()))

    def _plan(self, schema_id: int) -> SchemaPlan | str:
        """Return the plan for a schema, or why there is none. Unknown ids are asked for again with the next batch."""
        known = self._plans.get(schema_id)
        if known is not None:
            return known
        try:
            found: SchemaPlan | str = SchemaPlan(self._find_schema(schema_id), self._shape)
        except SchemaNotFoundError:
            return f"schema {schema_id} is not in the registry"
        except (UnresolvableError, WriterTypeError) as error:
            found = f"schema {schema_id}: {error}"
        self._plans[schema_id] = found
        return found


class SchemaPlan:
    """Decodes messages of one schema. Raises UnresolvableError if no message of it fits the shape."""

    def __init__(self, kind: WriterType, shape: Shape) -> None:
        self._kind = kind
        self._shape = shape
        self._node: Node = plan(kind, shape)

    def decode(self, buffer: Buffer, starts: Integers, ends: Integers) -> tuple[pa.Array, NDArray[np.bool_]]:
        """Return the good messages, and which those are."""
        count = len(starts)
        bad, slow = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
        array, rows = self._columns(buffer, starts, ends, bad, slow)
        slow &= ~bad
        if not slow.any():
            return array, ~bad
        singles, kept = self._one_by_one(buffer, starts, ends, np.flatnonzero(slow))
        bad[slow] = True
        bad[kept] = False
        both = spread([array, singles], [rows, kept], count, self._shape.arrow)
        return both.filter(pa.array(~bad)), ~bad

    def _columns(
        self,
        buffer: Buffer,
        starts: Integers,
        ends: Integers,
        bad: NDArray[np.bool_],
        slow: NDArray[np.bool_],
    ) -> tuple[pa.Array, Rows]:
        """Decode all messages that are neither bad nor slow, and note those that are. Return their rows too.

        Values of the same pass as a bad message may be nonsense, so the others are decoded again without it.
        """
        while True:
            rows = np.flatnonzero(~(bad | slow))
            cursor = Cursor(buffer, starts[rows], ends[rows], rows, bad, slow)
            try:
                array = self._node.read(cursor)
            except RecursionError:
                slow[rows] = True
                continue
            cursor.fail(cursor.at > cursor.ends)
            if not (bad | slow)[rows].any():
                return array, rows

    def _one_by_one(self, buffer: Buffer, starts: Integers, ends: Integers, rows: Rows) -> tuple[pa.Array, Rows]:
        found, kept = [], []
        for row in rows.tolist():
            try:
                value = SingleReader(buffer.bytes[starts[row] : ends[row]].tobytes()).read(self._kind, self._shape)
                found.append(pa.array([value], self._shape.arrow))
            except (ValueError, OverflowError, RecursionError, pa.ArrowException):
                continue
            kept.append(row)
        empty = pa.array([], self._shape.arrow)
        return (pa.concat_arrays(found) if found else empty), np.array(kept, np.intp)


def _spans(values: pa.Array) -> tuple[Integers, Integers, pa.Buffer | bytes]:
    """Return begin and end of every value, and the buffer that they are in."""
    _, offsets, data = values.buffers()
    edges = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    return edges[:-1], edges[1:], data if data is not None else b""
