"""The types of a Protobuf schema and of all that it imports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)


@dataclass(frozen=True, slots=True, eq=False)
class ProtoType:
    """A message or an enum."""

    proto: DescriptorProto | EnumDescriptorProto
    path: tuple[str, ...]
    """Its name and those of the messages around it, without the package."""
    syntax: str
    is_own: bool
    """Whether the schema itself defines it, not one that it imports."""

    @property
    def is_map(self) -> bool:
        """Whether it is the pair of key and value that the compiler makes of a map."""
        return isinstance(self.proto, DescriptorProto) and self.proto.options.map_entry


class ProtoTypes:
    """A compiled schema, with its types by full name."""

    def __init__(self, file: FileDescriptorProto, others: Iterable[FileDescriptorProto]) -> None:
        self.file = file
        self._by_name: dict[str, ProtoType] = {}
        for each in (*others, file):
            prefix = f".{each.package}." if each.package else "."
            for found in _types(each, is_own=each is file):
                self._by_name[prefix + ".".join(found.path)] = found

    def of_field(self, field: FieldDescriptorProto) -> ProtoType | None:
        """The message or enum that is the type of a field."""
        return self._by_name.get(field.type_name)


def _types(file: FileDescriptorProto, *, is_own: bool) -> Iterator[ProtoType]:
    def walk(message: DescriptorProto, outer: tuple[str, ...]) -> Iterator[ProtoType]:
        path = (*outer, message.name)
        yield ProtoType(message, path, file.syntax, is_own)
        for nested in message.nested_type:
            yield from walk(nested, path)
        for enum in message.enum_type:
            yield ProtoType(enum, (*path, enum.name), file.syntax, is_own)

    for message in file.message_type:
        yield from walk(message, ())
    for enum in file.enum_type:
        yield ProtoType(enum, (enum.name,), file.syntax, is_own)


def in_oneof(field: FieldDescriptorProto) -> bool:
    """Whether a field belongs to a oneof. (The compiler makes one for each `optional` of proto3, which is none.)"""
    return field.HasField("oneof_index") and not field.proto3_optional
