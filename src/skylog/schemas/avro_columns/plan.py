"""The plan for messages of one schema: a tree of nodes that read them into the columns of a shape.

Fields are matched by name. A field that the shape does not have is skipped, and one that the messages do not have gets
its default, or null. Types are promoted as Avro says. Names of records inside a message do not matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skylog.errors import SkylogError
from skylog.schemas.avro_columns.cursor import Cursor, Integers, Rows
from skylog.schemas.avro_columns.leaves import LeafNode
from skylog.schemas.avro_columns.shape import Shape, holds, leaf_type, not_null, union_member
from skylog.schemas.avro_columns.writer_types import Items, Leaf, Record, Union, WriterType

MOST_ITEMS: Final = 512
"""Messages with more items in an array are decoded one by one: every item costs a step for all messages."""


MOST_EMPTY_ITEMS: Final = 1 << 16
"""An array has no more items than bytes, unless its items are empty. Of those it may have this many."""

_NULL: Final = Leaf("null")


class UnresolvableError(SkylogError):
    """A field has a type that its column does not hold. The message names both."""


class Node(Protocol):
    """Reads one field of all messages of a cursor, and moves the cursor behind it."""

    def read(self, cursor: Cursor) -> pa.Array:
        """Return the values."""

    def skip(self, cursor: Cursor) -> None:
        """Only move the cursor."""


def plan(kind: WriterType, shape: Shape, path: str = "") -> Node:
    """Return the node that reads a type into a column. Raises UnresolvableError."""
    if isinstance(kind, Union):
        return UnionNode(kind, shape, path)
    if isinstance(kind, Record):
        _check(pa.types.is_struct(shape.arrow), kind, shape, path)
        return RecordNode(kind, shape, path)
    if isinstance(kind, Items):
        _check((pa.types.is_map if kind.is_map else pa.types.is_list)(shape.arrow), kind, shape, path)
        return ItemsNode(kind, shape, path)
    _check(kind.kind == "null" or holds(shape.arrow, leaf_type(kind)), kind, shape, path)
    return LeafNode(kind, shape.arrow)


class Skipper:
    """Skips a type that no column has. Made when it is first needed, because a record may contain itself."""

    def __init__(self, kind: WriterType) -> None:
        self._kind = kind

    def read(self, cursor: Cursor) -> pa.Array:
        raise AssertionError("a field without a column is skipped")

    def skip(self, cursor: Cursor) -> None:
        kind = self._kind
        if isinstance(kind, Leaf):
            LeafNode(kind, leaf_type(kind)).skip(cursor)
        elif isinstance(kind, Record):
            for each in kind.fields:
                Skipper(each.type).skip(cursor)
        elif isinstance(kind, Items):
            for rows in each_item(cursor, []):
                part = cursor.select(rows)
                if kind.is_map:
                    part.read_spans()
                Skipper(kind.item).skip(part)
                cursor.rejoin(rows, part)
        else:
            branches = read_branches(cursor, len(kind.branches))
            for number, branch in enumerate(kind.branches):
                rows = np.flatnonzero(branches == number)
                if len(rows):
                    part = cursor.select(rows)
                    Skipper(branch).skip(part)
                    cursor.rejoin(rows, part)


class Refusal:
    """A branch of a union that the column does not hold. Messages with it are bad."""

    def __init__(self, kind: WriterType, column: pa.DataType) -> None:
        self._kind = kind
        self._column = column

    def read(self, cursor: Cursor) -> pa.Array:
        cursor.fail(np.ones(len(cursor), np.bool_))
        self.skip(cursor)
        return pa.nulls(len(cursor), self._column)

    def skip(self, cursor: Cursor) -> None:
        Skipper(self._kind).skip(cursor)


class RecordNode:
    """A record as a struct."""

    def __init__(self, record: Record, shape: Shape, path: str) -> None:
        self._arrow = shape.arrow
        self._steps: list[tuple[str | None, Node]] = []
        for each in record.fields:
            part = shape.parts.get(each.name)
            if part is None:
                self._steps.append((None, Skipper(each.type)))
            else:
                self._steps.append((each.name, plan(each.type, part, f"{path}.{each.name}".lstrip("."))))
        written = {each.name for each in record.fields}
        self._constants = {
            name: constant(shape.defaults.get(name), part) for name, part in shape.parts.items() if name not in written
        }

    def read(self, cursor: Cursor) -> pa.Array:
        found: dict[str, pa.Array] = {}
        for name, node in self._steps:
            if name is None:
                node.skip(cursor)
            else:
                found[name] = node.read(cursor)
        count = len(cursor)
        for name, value in self._constants.items():
            found[name] = repeated(value, count)
        if not found:
            return pa.array([{}] * count, self._arrow)
        return pa.StructArray.from_arrays([found[each.name] for each in self._arrow], fields=list(self._arrow))

    def skip(self, cursor: Cursor) -> None:
        for _, node in self._steps:
            node.skip(cursor)


class ItemsNode:
    """An array as a list, or a map as a map: one step for the first items of all messages, one for the second, etc."""

    def __init__(self, kind: Items, shape: Shape, path: str) -> None:
        self._is_map = kind.is_map
        self._arrow = shape.arrow
        self._item = plan(kind.item, shape.parts[""], path)

    def read(self, cursor: Cursor) -> pa.Array:
        steps: list[Rows] = []
        keys: list[pa.Array] = []
        values: list[pa.Array] = []
        for rows in each_item(cursor, steps):
            part = cursor.select(rows)
            if self._is_map:
                keys.append(LeafNode(Leaf("string"), self._arrow.key_type).read(part))
            values.append(self._item.read(part))
            cursor.rejoin(rows, part)
        counts = np.zeros(len(cursor), np.int64)
        for rows in steps:
            counts[rows] += 1
        offsets = np.zeros(len(cursor) + 1, np.int32)
        np.cumsum(counts, out=offsets[1:])
        if self._is_map:
            fields = [self._arrow.key_field, self._arrow.item_field]
            columns = [_in_order(keys, steps, fields[0].type), _in_order(values, steps, fields[1].type)]
            children = pa.StructArray.from_arrays(columns, fields=fields)
        else:
            children = _in_order(values, steps, self._arrow.value_type)
        return pa.Array.from_buffers(self._arrow, len(cursor), [None, pa.py_buffer(offsets)], children=[children])

    def skip(self, cursor: Cursor) -> None:
        for rows in each_item(cursor, []):
            part = cursor.select(rows)
            if self._is_map:
                part.read_spans()
            self._item.skip(part)
            cursor.rejoin(rows, part)


class UnionNode:
    """A union as a nullable column, or as a struct with a field for each branch."""

    def __init__(self, union: Union, shape: Shape, path: str) -> None:
        self._arrow = shape.arrow
        self._branches: list[Node | None] = []
        self._has_members = has_members(union, shape)
        refusals: list[UnresolvableError] = []
        for branch in union.branches:
            if branch == _NULL:
                self._branches.append(None)
                continue
            number = sum(each is not None for each in self._branches)
            target = shape.parts[union_member(number)] if self._has_members else shape
            try:
                self._branches.append(plan(branch, target, path))
            except UnresolvableError as error:
                refusals.append(error)
                self._branches.append(Refusal(branch, target.arrow))
        if refusals and len(refusals) == len(not_null(union)):
            raise refusals[0]  # no message fits

    def read(self, cursor: Cursor) -> pa.Array:
        branches = read_branches(cursor, len(self._branches))
        count = len(cursor)
        parts: list[pa.Array] = []
        chosen: list[Rows] = []
        for number, node in enumerate(self._branches):
            if node is None:
                continue
            rows = np.flatnonzero(branches == number)
            if len(rows) == count and not self._has_members:
                return node.read(cursor)
            part = cursor.select(rows)
            parts.append(node.read(part))
            chosen.append(rows)
            cursor.rejoin(rows, part)
        if not self._has_members:
            return spread(parts, chosen, count, self._arrow)
        found = [spread([part], [rows], count, part.type) for part, rows in zip(parts, chosen, strict=True)]
        names = {union_member(number): member for number, member in enumerate(found)}
        members = [names[each.name] if each.name in names else pa.nulls(count, each.type) for each in self._arrow]
        is_null = np.ones(count, np.bool_)
        for rows in chosen:
            is_null[rows] = False
        return pa.StructArray.from_arrays(members, fields=list(self._arrow), mask=pa.array(is_null))

    def skip(self, cursor: Cursor) -> None:
        branches = read_branches(cursor, len(self._branches))
        for number, node in enumerate(self._branches):
            rows = np.flatnonzero(branches == number)
            if node is not None and len(rows):
                part = cursor.select(rows)
                node.skip(part)
                cursor.rejoin(rows, part)


def has_members(union: Union, shape: Shape) -> bool:
    """Return whether the column is a struct of the union's branches, and not one that holds all of them."""
    count = len(not_null(union))
    return count > 1 and all(union_member(number) in shape.parts for number in range(count))


def read_branches(cursor: Cursor, count: int) -> Integers:
    """Read the number of a union's branch. Messages with an impossible one are bad."""
    found = cursor.read_longs()
    wrong = (found < 0) | (found >= count)
    if wrong.any():
        cursor.fail(wrong)
    return found


def each_item(cursor: Cursor, steps: list[Rows]) -> Iterator[Rows]:
    """Yield the rows that have another item, for each item, and add them to `steps`. The caller reads the item."""
    active = np.arange(len(cursor))
    taken = 0
    while len(active):
        active, counts = _next_block(cursor, active)
        rows, left = active, counts
        while len(rows):
            taken += 1
            if taken > MOST_ITEMS:
                part = cursor.select(rows)
                part.give_up(np.ones(len(rows), np.bool_))
                active = np.setdiff1d(active, rows, assume_unique=True)
                break
            steps.append(rows)
            yield rows
            left = left - 1
            rows, left = rows[left > 0], left[left > 0]


def _next_block(cursor: Cursor, active: Rows) -> tuple[Rows, Integers]:
    """Read the count of the next block of items. Return the rows that have a block, and their counts."""
    part = cursor.select(active)
    counts = part.read_longs()
    sized = np.flatnonzero(counts < 0)  # followed by the block's size in bytes
    if len(sized):
        those = part.select(sized)
        those.read_longs()
        part.rejoin(sized, those)
        counts = np.abs(counts)
    wrong = (counts < 0) | (counts > part.ends - part.at)  # an item has at least one byte
    if wrong.any():
        part.fail(wrong & ((counts < 0) | (counts > MOST_EMPTY_ITEMS)))
        part.give_up(wrong)
        counts = np.where(wrong, 0, counts)
    cursor.rejoin(active, part)
    has_block = counts > 0
    return active[has_block], counts[has_block]


def _in_order(parts: list[pa.Array], steps: list[Rows], kind: pa.DataType) -> pa.Array:
    """Return the items message by message. Each part has one item of each of its rows."""
    if not parts:
        return pa.array([], kind)
    if len(parts) == 1:
        return parts[0]
    order = np.argsort(np.concatenate(steps), kind="stable")
    return pa.concat_arrays(parts).take(pa.array(order))


def spread(parts: list[pa.Array], chosen: list[Rows], count: int, kind: pa.DataType) -> pa.Array:
    """Return a column in which each part has the rows that are chosen for it. The others are null."""
    if not any(map(len, parts)):
        return pa.nulls(count, kind)
    together = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
    index = np.full(count, -1, np.int64)
    index[np.concatenate(chosen)] = np.arange(len(together))
    missing: NDArray[np.bool_] = index < 0
    return together.take(pa.array(index, mask=missing if missing.any() else None))


def constant(default: Any, shape: Shape) -> pa.Array:
    """Return a default as an array of one value."""
    return pa.array([_python(default, shape)], shape.arrow)


def _python(value: Any, shape: Shape) -> Any:
    kind = shape.arrow
    if value is None:
        return None
    if pa.types.is_struct(kind):
        found = {name: value.get(name, shape.defaults.get(name)) for name in shape.parts}
        return {name: _python(each, shape.parts[name]) for name, each in found.items()}
    if pa.types.is_list(kind):
        return [_python(each, shape.parts[""]) for each in value]
    if pa.types.is_map(kind):
        return [(key, _python(each, shape.parts[""])) for key, each in value.items()]
    if pa.types.is_binary(kind):
        return value.encode("latin-1")
    if pa.types.is_decimal(kind):
        return Decimal(value)
    return float(value) if pa.types.is_floating(kind) else value


def repeated(value: pa.Array, count: int) -> pa.Array:
    if value.null_count:
        return pa.nulls(count, value.type)
    return value.take(pa.array(np.zeros(count, np.int64)))


def _check(is_resolvable: bool, kind: WriterType, shape: Shape, path: str) -> None:
    if not is_resolvable:
        raise UnresolvableError(f"field '{path}' is {_shown(kind)}, which its column, {shape.arrow}, cannot hold")


def _shown(kind: WriterType) -> str:
    if isinstance(kind, Leaf):
        return kind.logical or kind.kind
    return ("map" if kind.is_map else "array") if isinstance(kind, Items) else "a record"
