"""The wire format of Confluent's serializers: a zero byte, the id of the schema in four bytes, then the message.

Protobuf messages have the position of the message type in its file between the id and the message. It is part of what
`unframe` returns as the payload.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from skylog.errors import SkylogError

MAGIC: Final = 0
_PREFIX: Final = Struct(">BI")
PREFIX_BYTES: Final = _PREFIX.size


class FrameError(SkylogError):
    """A value that does not begin with the id of a schema."""


class Frame(NamedTuple):
    """A message and the id of the schema that it was written with."""

    schema_id: int
    payload: memoryview


def frame(schema_id: int, payload: bytes) -> bytes:
    return prefix(schema_id) + payload


def prefix(schema_id: int) -> bytes:
    """Return the five bytes before a message."""
    return _PREFIX.pack(MAGIC, schema_id)


def unframe(value: bytes | memoryview) -> Frame:
    """Split a value. The payload is a view of it. Raises FrameError."""
    if len(value) < PREFIX_BYTES:
        raise FrameError(
            f"the value has {len(value)} bytes, too few for the id of a schema; was it sent without a schema registry?"
        )
    magic, schema_id = _PREFIX.unpack_from(value)
    if magic != MAGIC:
        raise FrameError(
            f"the value begins with byte {magic:#04x}, not with 0x00 and the id of a schema; was it sent without a "
            "schema registry?"
        )
    return Frame(schema_id, memoryview(value)[PREFIX_BYTES:])
