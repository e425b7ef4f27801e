"""Whether a reader's Avro schema resolves what a writer's has written: Avro's schema resolution, for all data."""

from __future__ import annotations

from typing import Final

from skylog.schemas.avro.types import Array, AvroType, Enum, Field, Fixed, Map, Named, Record, Union
from skylog.schemas.difference import Difference
from skylog.schemas.json_text import pointer
from skylog.schemas.pairs import Pairs
from skylog.schemas.schema import Schema

_PROMOTIONS: Final = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "bytes": ("string",),
    "string": ("bytes",),
}
"""What each type reads besides itself."""


def avro_differences(reader: Schema, writer: Schema) -> list[Difference]:
    """Why data of `writer` cannot be read with `reader`."""
    return _Comparison().compare(reader.parsed, writer.parsed, ())  # type: ignore[arg-type]


_Path = tuple[str, ...]


class _Comparison:
    def __init__(self) -> None:
        self._pairs = Pairs[tuple[int, int], Difference]()

    def compare(self, reader: AvroType, writer: AvroType, path: _Path) -> list[Difference]:
        return self._pairs.compare((id(reader), id(writer)), lambda: self._compare(reader, writer, path))

    def _compare(self, reader: AvroType, writer: AvroType, path: _Path) -> list[Difference]:
        match reader, writer:
            case Union(), Union():
                return self._unions(reader, writer, path)
            case _, Union():
                return [found for branch in writer.branches for found in self.compare(reader, branch, path)]
            case Union(), _:
                readable = any(not self.compare(branch, writer, path) for branch in reader.branches)
                return [] if readable else [_missing_branch(writer, path)]
            case Array(), Array():
                return self.compare(reader.items, writer.items, (*path, "items"))
            case Map(), Map():
                return self.compare(reader.values, writer.values, (*path, "values"))
            case Fixed(), Fixed():
                return [*_names(reader, writer, path), *_sizes(reader, writer, path)]
            case Enum(), Enum():
                return [*_names(reader, writer, path), *_symbols(reader, writer, path)]
            case Record(), Record():
                return [*_names(reader, writer, path), *self._fields(reader, writer, path)]
        if reader.kind == writer.kind or writer.kind in _PROMOTIONS.get(reader.kind, ()):
            return []
        return [_type_mismatch(reader, writer, path)]

    def _unions(self, reader: Union, writer: Union, path: _Path) -> list[Difference]:
        return [
            _missing_branch(branch, (*path, str(index)))
            for index, branch in enumerate(writer.branches)
            if self.compare(reader, branch, path)
        ]

    def _fields(self, reader: Record, writer: Record, path: _Path) -> list[Difference]:
        found = []
        written = {field.name: field for field in writer.fields}
        for index, field in enumerate(reader.fields):
            where = (*path, "fields", str(index))
            matches = [written[name] for name in dict.fromkeys((field.name, *field.aliases)) if name in written]
            if len(matches) > 1:
                found.append(_ambiguous(field, matches, where))
            elif matches:
                found += self.compare(field.type, matches[0].type, (*where, "type"))
            elif not field.has_default:
                found.append(_missing_default(field, where))
        return found


def _names(reader: Named, writer: Named, path: _Path) -> list[Difference]:
    """Names are equal without their namespaces, or the reader has the writer's full name as an alias."""
    if reader.name.name == writer.name.name or writer.name in reader.aliases:
        return []
    where = pointer((*path, "name"))
    sentence = f"The name of the schema has changed (path '{where}')"
    return [Difference("NAME_MISMATCH", where, sentence, f"expected: {writer.name.full}")]


def _sizes(reader: Fixed, writer: Fixed, path: _Path) -> list[Difference]:
    if reader.size == writer.size:
        return []
    where = pointer((*path, "size"))
    sentence = (
        f"The size of FIXED type field at path '{where}' in the {{reader}} schema does not match with the {{writer}} "
        "schema"
    )
    return [Difference("FIXED_SIZE_MISMATCH", where, sentence, f"expected: {writer.size}, found: {reader.size}")]


def _symbols(reader: Enum, writer: Enum, path: _Path) -> list[Difference]:
    missing = sorted(set(writer.symbols) - set(reader.symbols))
    if not missing or reader.default is not None:
        return []
    where = pointer((*path, "symbols"))
    shown = f"[{', '.join(missing)}]"
    sentence = f"The {{reader}} schema is missing enum symbols '{shown}' at path '{where}' in the {{writer}} schema"
    return [Difference("MISSING_ENUM_SYMBOLS", where, sentence, shown)]


def _missing_default(field: Field, path: _Path) -> Difference:
    where = pointer(path)
    sentence = (
        f"The field '{field.name}' at path '{where}' in the {{reader}} schema has no default value and is missing in "
        "the {writer} schema"
    )
    return Difference("READER_FIELD_MISSING_DEFAULT_VALUE", where, sentence, field.name)


def _ambiguous(field: Field, matches: list[Field], path: _Path) -> Difference:
    where = pointer(path)
    sentence = (
        f"The field '{field.name}' at path '{where}' in the {{reader}} schema matches several fields of the {{writer}} "
        "schema, by its name and aliases"
    )
    return Difference("READER_FIELD_AMBIGUOUS", where, sentence, ", ".join(match.name for match in matches))


def _missing_branch(writer: AvroType, path: _Path) -> Difference:
    where = pointer(path)
    sentence = (
        f"The {{reader}} schema is missing a type inside a union field at path '{where}' in the {{writer}} schema"
    )
    return Difference("MISSING_UNION_BRANCH", where, sentence, f"reader union lacking writer type: {_kind(writer)}")


def _type_mismatch(reader: AvroType, writer: AvroType, path: _Path) -> Difference:
    where = pointer(path)
    sentence = (
        f"The type (path '{where}') of a field in the {{reader}} schema does not match with the {{writer}} schema"
    )
    detail = f"reader type: {_kind(reader)} not compatible with writer type: {_kind(writer)}"
    return Difference("TYPE_MISMATCH", where, sentence, detail)


def _kind(kind: AvroType) -> str:
    return kind.kind.upper()
