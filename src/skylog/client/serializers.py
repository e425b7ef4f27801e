"""From what an application sends to bytes, and back. Any function of that shape will do in their place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from skylog.client.errors import SerializeError

Serializer = Callable[[Any], bytes]
Deserializer = Callable[[bytes], Any]


def serialize(value: Any) -> bytes:
    """Bytes as they are, text as UTF-8, anything else as JSON. What a Producer does unless told otherwise."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    return to_json(value)


def to_json(value: Any) -> bytes:
    """JSON, with dataclasses, datetimes, UUIDs and enums as orjson writes them."""
    try:
        return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)
    except TypeError as error:
        raise SerializeError(
            f"a {type(value).__name__} cannot be sent: {error}; "
            "send bytes, text or what JSON can say, or give the producer a serializer"
        ) from error


def from_json(data: bytes) -> Any:
    return orjson.loads(data)


def to_text(value: str) -> bytes:
    return value.encode()


def from_text(data: bytes) -> str:
    return data.decode()
