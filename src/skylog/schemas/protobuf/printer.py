"""Writes a file descriptor as .proto text, in one notation.

Comments, the order of definitions of different kinds, and how a name was qualified are not part of it. Normalized
text also has sorted imports, and fields and constants in the order of their numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    Edition,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    ServiceDescriptorProto,
)

from skylog.schemas.protobuf.options import field_options, inline_options, option_lines, options_of
from skylog.schemas.protobuf.types import in_oneof

_MAX_NUMBER: Final = 1 << 29
_MAX_ENUM: Final = (1 << 31) - 1
_LABELS: Final = {1: "optional ", 2: "required ", 3: "repeated "}
_SCALARS: Final = {number: name.removeprefix("TYPE_").lower() for name, number in FieldDescriptorProto.Type.items()}


def proto_text(file: FileDescriptorProto, *, normalize: bool = False) -> str:
    """The text of a file descriptor."""
    return "\n".join(_Printer(file, normalize).lines()) + "\n"


class _Printer:
    def __init__(self, file: FileDescriptorProto, normalize: bool) -> None:
        self._file = file
        self._normalize = normalize
        self._syntax = file.syntax or "proto2"

    def lines(self) -> Iterator[str]:
        file = self._file
        if self._syntax == "editions":
            yield f'edition = "{Edition.Name(file.edition).removeprefix("EDITION_")}";'
        else:
            yield f'syntax = "{self._syntax}";'
        if file.package:
            yield f"package {file.package};"
        yield from self._imports()
        yield from option_lines(file.options)
        for service in file.service:
            yield from self._service(service)
        for enum in file.enum_type:
            yield from self._enum(enum)
        for message in file.message_type:
            yield from self._block(f"message {message.name}", self._message(message))
        yield from self._extensions(file.extension, [])

    def _imports(self) -> Iterator[str]:
        public, weak = set(self._file.public_dependency), set(self._file.weak_dependency)
        found = []
        for index, name in enumerate(self._file.dependency):
            word = "public " if index in public else "weak " if index in weak else ""
            found.append(f'import {word}"{name}";')
        yield from sorted(found) if self._normalize else found

    def _block(self, head: str, lines: Iterable[str]) -> Iterator[str]:
        yield head + " {"
        for line in lines:
            yield "  " + line
        yield "}"

    def _message(self, message: DescriptorProto) -> Iterator[str]:
        yield from option_lines(message.options)
        yield from self._reserved(
            [(each.start, each.end - 1) for each in message.reserved_range], message.reserved_name, _MAX_NUMBER - 1
        )
        for each in message.extension_range:
            yield f"extensions {_range(each.start, each.end - 1, _MAX_NUMBER - 1)};"
        groups = {field.type_name for field in (*message.field, *message.extension) if field.type == field.TYPE_GROUP}
        yield from self._fields(message)
        for enum in message.enum_type:
            yield from self._enum(enum)
        for nested in message.nested_type:
            if not nested.options.map_entry and not any(
                name.endswith(f".{message.name}.{nested.name}") for name in groups
            ):
                yield from self._block(f"message {nested.name}", self._message(nested))
        yield from self._extensions(message.extension, message.nested_type)

    def _reserved(self, ranges: list[tuple[int, int]], names: Sequence[str], largest: int) -> Iterator[str]:
        order = sorted if self._normalize else list
        if ranges:
            yield f"reserved {', '.join(_range(low, high, largest) for low, high in order(ranges))};"
        if names:
            quoted = [name if self._syntax == "editions" else f'"{name}"' for name in names]
            yield f"reserved {', '.join(order(quoted))};"

    def _fields(self, message: DescriptorProto) -> Iterator[str]:
        fields = sorted(message.field, key=lambda field: field.number) if self._normalize else list(message.field)
        written = set()
        for field in fields:
            if not in_oneof(field):
                yield from self._field(field, message.nested_type)
            elif field.oneof_index not in written:
                written.add(field.oneof_index)
                members = [each for each in fields if in_oneof(each) and each.oneof_index == field.oneof_index]
                yield from self._oneof(message, members)

    def _oneof(self, message: DescriptorProto, members: list[FieldDescriptorProto]) -> Iterator[str]:
        oneof = message.oneof_decl[members[0].oneof_index]
        lines = [*option_lines(oneof.options)]
        for member in members:
            lines += self._field(member, message.nested_type)
        yield from self._block(f"oneof {oneof.name}", lines)

    def _field(self, field: FieldDescriptorProto, nested: Iterable[DescriptorProto]) -> Iterator[str]:
        types = {each.name: each for each in nested}
        own = types.get(field.type_name.rpartition(".")[2])
        options = inline_options(field_options(field))
        if field.type == field.TYPE_MESSAGE and own is not None and own.options.map_entry:
            key, value = (_type_name(each) for each in own.field)
            yield f"map<{key}, {value}> {field.name} = {field.number}{options};"
        elif field.type == field.TYPE_GROUP and own is not None:
            yield from self._block(
                f"{self._label(field)}group {own.name} = {field.number}{options}", self._message(own)
            )
        else:
            yield f"{self._label(field)}{_type_name(field)} {field.name} = {field.number}{options};"

    def _label(self, field: FieldDescriptorProto) -> str:
        if in_oneof(field):
            return ""
        if self._syntax == "proto2" or field.label == field.LABEL_REPEATED or field.proto3_optional:
            return _LABELS[field.label]
        return ""

    def _enum(self, enum: EnumDescriptorProto) -> Iterator[str]:
        lines = [*option_lines(enum.options)]
        lines += self._reserved([(each.start, each.end) for each in enum.reserved_range], enum.reserved_name, _MAX_ENUM)
        values = sorted(enum.value, key=lambda value: value.number) if self._normalize else enum.value
        if self._normalize and self._syntax != "proto2" and values and values[0].number != 0:
            values = sorted(values, key=lambda value: value.number != 0)  # zero must be the first
        for value in values:
            lines.append(f"{value.name} = {value.number}{inline_options(options_of(value.options))};")
        yield from self._block(f"enum {enum.name}", lines)

    def _service(self, service: ServiceDescriptorProto) -> Iterator[str]:
        lines = [*option_lines(service.options)]
        for method in service.method:
            takes = "stream " * method.client_streaming + method.input_type
            gives = "stream " * method.server_streaming + method.output_type
            head = f"rpc {method.name} ({takes}) returns ({gives})"
            options = list(option_lines(method.options))
            lines += self._block(head, options) if options else [head + ";"]
        yield from self._block(f"service {service.name}", lines)

    def _extensions(self, fields: Iterable[FieldDescriptorProto], nested: Iterable[DescriptorProto]) -> Iterator[str]:
        for field in fields:
            yield from self._block(f"extend {field.extendee}", self._field(field, nested))


def _type_name(field: FieldDescriptorProto) -> str:
    return field.type_name or _SCALARS[field.type]


def _range(low: int, high: int, largest: int) -> str:
    end = "max" if high == largest else str(high)
    return str(low) if low == high else f"{low} to {end}"
