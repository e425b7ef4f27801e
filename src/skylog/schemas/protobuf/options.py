"""Options of Protobuf definitions, and how they are written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass


def with_known_options(file: FileDescriptorProto, others: Iterable[FileDescriptorProto]) -> FileDescriptorProto:
    """The same descriptor, with options read that its imports define."""
    pool = DescriptorPool()
    imported = set()
    for other in others:
        pool.Add(other)
        imported.add(other.name)
    if "google/protobuf/descriptor.proto" not in imported:
        return file
    cls = GetMessageClass(pool.FindMessageTypeByName("google.protobuf.FileDescriptorProto"))
    return cls.FromString(file.SerializeToString())  # type: ignore[return-value]


def field_options(field: FieldDescriptorProto) -> list[tuple[str, str]]:
    found = []
    if field.HasField("default_value"):
        is_text = field.type in (field.TYPE_STRING, field.TYPE_BYTES)
        raw = field.default_value
        # the descriptor has bytes already escaped
        value = raw if not is_text else f'"{raw}"' if field.type == field.TYPE_BYTES else _quoted(raw)
        found.append(("default", value))
    if field.json_name and field.json_name != _default_json_name(field.name):
        found.append(("json_name", _quoted(field.json_name)))
    return found + options_of(field.options)


def _default_json_name(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in others)


def options_of(options: Any) -> list[tuple[str, str]]:
    """The options of a definition with their values."""
    found = []
    for field, value in options.ListFields():
        if field.name in ("uninterpreted_option", "map_entry"):
            continue
        name = f"({field.full_name})" if field.is_extension else field.name
        values = value if field.is_repeated else [value]
        found += [(name, _option_value(field, each)) for each in values]
    return found


def _option_value(field: FieldDescriptor, value: Any) -> str:
    if field.message_type is not None:
        inner = text_format.MessageToString(value, as_one_line=True)
        return f"{{ {inner} }}" if inner else "{ }"
    if field.enum_type is not None:
        return field.enum_type.values_by_number[value].name
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, bytes):
        return '"' + "".join(f"\\x{byte:02x}" for byte in value) + '"'
    return repr(value)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t") + '"'


def option_lines(options: Any) -> Iterator[str]:
    return (f"option {name} = {value};" for name, value in options_of(options))


def inline_options(options: list[tuple[str, str]]) -> str:
    return f" [{', '.join(f'{name} = {value}' for name, value in options)}]" if options else ""
