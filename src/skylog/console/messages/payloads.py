"""Messages of the three formats as JSON. Libraries are imported when a message of their format is shown."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from datetime import date, datetime
from datetime import time as time_of_day
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

CACHED: Final = 200

References = tuple[tuple[str, str], ...]


def decode_payload(kind: str, text: str, references: References, payload: bytes) -> str:
    """Return a message as JSON. Raises whatever its library raises if it does not fit the schema."""
    if kind == "JSON":
        document = payload.decode()
        json.loads(document)
        return document
    if kind == "AVRO":
        return _decode_avro(text, references, payload)
    if kind == "PROTOBUF":
        return _decode_protobuf(text, references, payload)
    raise ValueError(f"the format {kind} is not known")


def _decode_avro(text: str, references: References, payload: bytes) -> str:
    from fastavro import schemaless_reader

    found = schemaless_reader(io.BytesIO(payload), _avro_schema(text, references), None)
    return json.dumps(found, default=_plain, ensure_ascii=False)


@lru_cache(CACHED)
def _avro_schema(text: str, references: References) -> Any:
    from fastavro.schema import parse_schema

    named: dict[str, Any] = {}
    for _, other in references:
        parse_schema(json.loads(other), named)
    return parse_schema(json.loads(text), named)


def _plain(value: object) -> object:
    """Return a value of Avro's that JSON does not have: bytes as text or hexadecimal, numbers and times as text."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return f"0x{value.hex()}"
    if isinstance(value, Decimal | UUID):
        return str(value)
    if isinstance(value, datetime | date | time_of_day):
        return value.isoformat()
    raise TypeError(f"cannot show a {type(value).__name__}")


def _decode_protobuf(text: str, references: References, payload: bytes) -> str:
    from google.protobuf.json_format import MessageToJson

    path, start = _message_path(payload)
    message = _message_class(text, references, path)()
    message.ParseFromString(payload[start:])
    return MessageToJson(message, preserving_proto_field_name=True, ensure_ascii=False)


def _message_path(payload: bytes) -> tuple[tuple[int, ...], int]:
    """Return the position of the message type in its file, and where the message begins. One zero byte is the first."""
    count, at = _zigzag(payload, 0)
    if count == 0:
        return (0,), at
    path = []
    for _ in range(count):
        index, at = _zigzag(payload, at)
        path.append(index)
    return tuple(path), at


def _zigzag(payload: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = payload[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7


@lru_cache(CACHED)
def _message_class(text: str, references: References, path: tuple[int, ...]) -> Any:
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message_factory import GetMessageClass

    from skylog.schemas.protobuf.compiler import MAIN, compile_files

    texts: Mapping[str, str] = {**dict(references), MAIN: text}
    pool = DescriptorPool()
    for file in compile_files(texts, [MAIN]):
        pool.Add(file)
    types: Any = list(pool.FindFileByName(MAIN).message_types_by_name.values())
    for depth, index in enumerate(path):
        found = types[index]
        types = found.nested_types if depth < len(path) - 1 else ()
    return GetMessageClass(found)
