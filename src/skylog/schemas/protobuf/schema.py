"""Makes a `Schema` of a Protobuf schema: a .proto text, or a FileDescriptorProto in base64.

Both come from clients: confluent-kafka's serializer for Python registers descriptors, others register texts.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Final

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from skylog.schemas.protobuf.compiler import MAIN, compile_files
from skylog.schemas.protobuf.options import with_known_options
from skylog.schemas.protobuf.printer import proto_text
from skylog.schemas.protobuf.types import ProtoTypes
from skylog.schemas.schema import InvalidSchema, Schema, SchemaType

_BASE64: Final = re.compile(r"[A-Za-z0-9+/\s]+=*\s*")


def parse_protobuf(text: str, references: Mapping[str, str]) -> Schema:
    """Parse a Protobuf schema. The name of a reference is the name by which it is imported."""
    texts = {name: _as_text(name, other) for name, other in references.items()}
    if _BASE64.fullmatch(text):
        file, others = _from_descriptor(text, texts)
    else:
        file, others = _from_text(text, texts)
    if not file.message_type and not file.enum_type:
        raise InvalidSchema("the schema defines no message")
    described = with_known_options(file, others)
    first = file.message_type[0].name if file.message_type else None
    return Schema(
        kind=SchemaType.PROTOBUF,
        text=text,
        canonical=proto_text(described),
        normalized=proto_text(described, normalize=True),
        name=f"{file.package}.{first}" if first and file.package else first,
        parsed=ProtoTypes(file, others),
    )


def serialized(schema: Schema) -> str:
    """The schema as a FileDescriptorProto in base64, which some clients ask for (`format=serialized`)."""
    assert isinstance(schema.parsed, ProtoTypes)
    return base64.b64encode(schema.parsed.file.SerializeToString(deterministic=True)).decode()


def _from_text(text: str, texts: Mapping[str, str]) -> tuple[FileDescriptorProto, list[FileDescriptorProto]]:
    *others, file = compile_files({**texts, MAIN: text}, [MAIN])
    file.ClearField("name")
    return file, others


def _from_descriptor(text: str, texts: Mapping[str, str]) -> tuple[FileDescriptorProto, list[FileDescriptorProto]]:
    file = _decoded(text, "")
    others = compile_files(texts, file.dependency)
    pool = DescriptorPool()
    named = FileDescriptorProto()
    named.CopyFrom(file)
    named.name = MAIN
    try:
        for other in (*others, named):
            pool.Add(other)
    except TypeError as error:
        raise InvalidSchema(f"the descriptor is not valid: {error}") from None
    return file, others


def _decoded(text: str, origin: str) -> FileDescriptorProto:
    try:
        return FileDescriptorProto.FromString(base64.b64decode(text, validate=False))
    except (binascii.Error, DecodeError):
        raise InvalidSchema(f"{origin}neither a .proto text nor a FileDescriptorProto in base64") from None


def _as_text(name: str, text: str) -> str:
    return proto_text(_decoded(text, f"in the reference {name}: ")) if _BASE64.fullmatch(text) else text
