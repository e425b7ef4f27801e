"""Whether data of one Protobuf schema can be read with another, by the registry's rules.

`original` is the writer's schema, `update` the reader's. Fields are matched by number, messages by name. Only
differences that break readers are recorded: fields and enums may come and go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FieldDescriptorProto

from skylog.schemas.difference import Difference
from skylog.schemas.pairs import Pairs
from skylog.schemas.protobuf.sentences import difference
from skylog.schemas.protobuf.types import ProtoType, ProtoTypes, in_oneof
from skylog.schemas.schema import Schema

_SCALAR_KINDS: Final = {
    number: kind
    for kind, names in {
        "number": ("INT32", "INT64", "UINT32", "UINT64", "BOOL", "ENUM"),
        "signed number": ("SINT32", "SINT64"),
        "text": ("STRING", "BYTES"),
        "fixed32": ("FIXED32", "SFIXED32"),
        "fixed64": ("FIXED64", "SFIXED64"),
        "float": ("FLOAT",),
        "double": ("DOUBLE",),
    }.items()
    for number in (FieldDescriptorProto.Type.Value(f"TYPE_{name}") for name in names)
}
"""Types of the same kind read each other's encoding."""


def protobuf_differences(reader: Schema, writer: Schema) -> list[Difference]:
    """Why data of `writer` cannot be read with `reader`."""
    assert isinstance(reader.parsed, ProtoTypes)
    assert isinstance(writer.parsed, ProtoTypes)
    return _Comparison(writer.parsed, reader.parsed).files()


_Path = tuple[str, ...]


class _Side(NamedTuple):
    """A message of one of the two schemas, by its fields' numbers."""

    message: DescriptorProto
    syntax: str
    fields: dict[int, FieldDescriptorProto]

    @classmethod
    def of(cls, message: DescriptorProto, syntax: str) -> _Side:
        return cls(message, syntax, {field.number: field for field in message.field})

    def oneof(self, field: FieldDescriptorProto) -> str | None:
        return self.message.oneof_decl[field.oneof_index].name if in_oneof(field) else None

    def label(self, field: FieldDescriptorProto) -> int | None:
        """The label as it is written. proto3 and oneofs need none."""
        if in_oneof(field):
            return None
        is_written = (
            self.syntax in ("", "proto2") or field.label == FieldDescriptorProto.LABEL_REPEATED or field.proto3_optional
        )
        return field.label if is_written else None


class _Comparison:
    def __init__(self, original: ProtoTypes, update: ProtoTypes) -> None:
        self._original = original
        self._update = update
        self._imported = Pairs[tuple[int, int], Difference]()

    def files(self) -> list[Difference]:
        before, after = self._original.file, self._update.file
        found = [] if before.package == after.package else [difference("PACKAGE_CHANGED", ())]
        return [*found, *self._messages(before.message_type, after.message_type, ())]

    def _messages(
        self, original: Iterable[DescriptorProto], update: Iterable[DescriptorProto], path: _Path
    ) -> Iterator[Difference]:
        others = {message.name: message for message in update}
        for message in original:
            if message.options.map_entry:
                continue
            where = (*path, message.name)
            if message.name not in others:
                yield difference("MESSAGE_REMOVED", where)
            else:
                before = _Side.of(message, self._original.file.syntax)
                after = _Side.of(others[message.name], self._update.file.syntax)
                yield from self._message(before, after, where)

    def _message(self, original: _Side, update: _Side, path: _Path) -> Iterator[Difference]:
        yield from _new_exclusions(original, update, path)
        for number in sorted({*original.fields, *update.fields}):
            before, after = original.fields.get(number), update.fields.get(number)
            if before is None and after is not None:
                if after.label == FieldDescriptorProto.LABEL_REQUIRED:
                    yield difference("REQUIRED_FIELD_ADDED", (*path, str(number)))
            elif before is not None and after is None:
                yield from _removed(original, update, before, path)
            elif before is not None and after is not None:
                oneof = update.oneof(after)
                where = (*path, *((oneof,) if oneof else ()), str(number))
                yield from self._fields(before, after, where)
                yield from _labels(original.label(before), update.label(after), before, after, where)
        yield from self._messages(original.message.nested_type, update.message.nested_type, path)

    def _fields(
        self, original: FieldDescriptorProto, update: FieldDescriptorProto, path: _Path
    ) -> Iterator[Difference]:
        before, after = self._original.of_field(original), self._update.of_field(update)
        kinds = _kind(original, before), _kind(update, after)
        if kinds[0] != kinds[1]:
            yield difference("FIELD_KIND_CHANGED", path)
        elif kinds[0] == "scalar":
            if _SCALAR_KINDS[original.type] != _SCALAR_KINDS[update.type]:
                yield difference("FIELD_SCALAR_KIND_CHANGED", path)
        elif before is not None and after is not None:
            if kinds[0] == "map":
                for one, other in zip(before.proto.field, after.proto.field, strict=True):  # type: ignore[union-attr]
                    yield from self._fields(one, other, path)
            else:
                yield from self._message_types(before, after, path)

    def _message_types(self, original: ProtoType, update: ProtoType, path: _Path) -> Iterator[Difference]:
        if original.path != update.path:
            yield difference("FIELD_NAMED_TYPE_CHANGED", path)
        elif not (original.is_own and update.is_own):  # own messages are compared by name
            found = self._imported.compare(
                (id(original), id(update)),
                lambda: list(self._message(_side(original), _side(update), original.path)),
            )
            yield from found
            if found:
                yield difference("FIELD_NAMED_TYPE_CHANGED", path)


def _side(found: ProtoType) -> _Side:
    assert isinstance(found.proto, DescriptorProto)
    return _Side.of(found.proto, found.syntax)


def _kind(field: FieldDescriptorProto, found: ProtoType | None) -> str:
    if field.type not in (FieldDescriptorProto.TYPE_MESSAGE, FieldDescriptorProto.TYPE_GROUP) or (
        found and isinstance(found.proto, EnumDescriptorProto)
    ):
        return "scalar"
    return "map" if found is not None and found.is_map else "message"


def _labels(
    before: int | None, after: int | None, original: FieldDescriptorProto, update: FieldDescriptorProto, path: _Path
) -> Iterator[Difference]:
    """A number that becomes repeated, or no longer is. Texts and messages may."""
    if before is None or after is None or before == after:
        return
    kind = _SCALAR_KINDS.get(original.type)
    if kind not in (None, "text") and kind == _SCALAR_KINDS.get(update.type):
        yield difference("FIELD_NUMERIC_LABEL_CHANGED", path)


def _removed(original: _Side, update: _Side, field: FieldDescriptorProto, path: _Path) -> Iterator[Difference]:
    """A field that is gone. One of a oneof may go only together with the whole oneof."""
    oneof = original.oneof(field)
    if oneof is None:
        if field.label == FieldDescriptorProto.LABEL_REQUIRED:
            yield difference("REQUIRED_FIELD_REMOVED", (*path, str(field.number)))
        return
    remains = any(update.oneof(each) == oneof for each in update.fields.values())
    survives = any(original.oneof(each) == oneof and each.number in update.fields for each in original.fields.values())
    if remains or survives:
        yield difference("ONEOF_FIELD_REMOVED", (*path, oneof, str(field.number)))


def _new_exclusions(original: _Side, update: _Side, path: _Path) -> Iterator[Difference]:
    """Oneofs that exclude fields from each other which old data may have together."""
    members: dict[str, list[int]] = {}
    for field in update.fields.values():
        oneof = update.oneof(field)
        if oneof is not None:
            members.setdefault(oneof, []).append(field.number)
    for oneof, numbers in members.items():
        known = [original.fields[number] for number in numbers if number in original.fields]
        groups = {original.oneof(field) or field.number for field in known}
        alone = [field for field in known if original.oneof(field) is None]
        if len(groups) > 1:
            kind = "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if len(alone) > 1 else "FIELD_MOVED_TO_EXISTING_ONEOF"
            yield difference(kind, (*path, oneof))
