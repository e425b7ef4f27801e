"""The variable-length types of Kafka's encoding, each checked against the end of the buffer.

Every function that reads takes the buffer and a position, and returns the value and the position after it. Truncated or
inconsistent input raises only `MalformedRequestError`. Fixed-size integers have no function here: the generated codecs
(see `reader` and `writer`) handle them in runs, with one `struct` call per run.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final, TypeAlias
from uuid import UUID

from skylog.errors import MalformedRequestError

Buffer: TypeAlias = bytes | bytearray | memoryview

ZERO_UUID: Final = UUID(int=0)
"""Kafka's value for "no topic id"."""

_MAX_UVARINT_BYTES: Final = 5
_INT16: Final = struct.Struct(">h")


def read_uvarint(buf: Buffer, pos: int) -> tuple[int, int]:
    """Read an unsigned varint: seven bits a byte, least significant first, at most five bytes."""
    try:
        first = buf[pos]
    except IndexError:
        raise MalformedRequestError("the input ends where a varint should start") from None
    if first < 0x80:
        return first, pos + 1
    return read_uvarint_rest(buf, pos + 1, first)


def read_uvarint_rest(buf: Buffer, pos: int, first: int) -> tuple[int, int]:
    """Read the rest of a varint whose first byte, with the continuation bit set, has been read already."""
    value = first & 0x7F
    shift = 7
    for index in range(pos, pos + _MAX_UVARINT_BYTES - 1):
        try:
            byte = buf[index]
        except IndexError:
            raise MalformedRequestError("the input ends inside a varint") from None
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, index + 1
        shift += 7
    raise MalformedRequestError(f"a varint is longer than {_MAX_UVARINT_BYTES} bytes")


_ONE_BYTE: Final = tuple(bytes([value]) for value in range(0x80))


def uvarint(value: int) -> bytes:
    """Encode `value` as an unsigned varint."""
    if 0 <= value < 0x80:
        return _ONE_BYTE[value]
    if 0x80 <= value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_nullable_string(buf: Buffer, pos: int) -> tuple[str | None, int]:
    """Read a string after an int16 length, -1 for null: the format of headers in all versions."""
    try:
        (length,) = _INT16.unpack_from(buf, pos)
    except struct.error:
        raise MalformedRequestError("the input ends where a string should start") from None
    start = pos + 2
    if length < 0:
        if length != -1:
            raise MalformedRequestError(f"a string has the length {length}")
        return None, start
    stop = start + length
    if stop > len(buf):
        raise MalformedRequestError(f"a string of {length} bytes does not fit the input")
    try:
        return str(buf[start:stop], "utf-8"), stop
    except UnicodeDecodeError:
        raise MalformedRequestError("a string is not UTF-8") from None


def nullable_string(value: str | None) -> bytes:
    """Encode `value` after an int16 length, -1 for null."""
    if value is None:
        return b"\xff\xff"
    data = value.encode()
    return _INT16.pack(len(data)) + data


def skip_tagged_fields(buf: Buffer, pos: int, count: int) -> int:
    """Return the position after `count` unknown tagged fields. Raises if they exceed the buffer."""
    end = len(buf)
    for _ in range(count):
        _tag, pos = read_uvarint(buf, pos)
        size, pos = read_uvarint(buf, pos)
        pos += size
        if pos > end:
            raise MalformedRequestError(f"a tagged field of {size} bytes does not fit the input")
    return pos


def append_tagged_fields(out: bytearray, fields: list[tuple[int, bytearray]]) -> None:
    """Append a tagged section: the number of fields, then tag, size and content of each; tags must ascend."""
    out += uvarint(len(fields))
    for tag, content in fields:
        out += uvarint(tag)
        out += uvarint(len(content))
        out += content


@lru_cache(maxsize=4096)
def uuid_from_bytes(raw: bytes) -> UUID:
    """Return the UUID of 16 bytes. Cached, because building one costs a microsecond and topic ids repeat."""
    return UUID(bytes=raw)
