"""Frames: what travels on a connection is an int32 size and then so many bytes of header and body."""

from __future__ import annotations

from typing import Final

from skylog.errors import MalformedRequestError
from skylog.protocol.apis import API_SPECS
from skylog.protocol.headers import RequestHeader, request_header, response_header
from skylog.protocol.primitives import Buffer
from skylog.protocol.schema import Message

SIZE_BYTES: Final = 4
"""The size in front of a frame, not counted in it."""


def read_frame_size(buf: Buffer, max_bytes: int, pos: int = 0) -> int:
    """The size of the frame whose four size bytes stand at `pos`; refused when negative or above `max_bytes`."""
    size = int.from_bytes(buf[pos : pos + SIZE_BYTES], "big", signed=True)
    if not 0 <= size <= max_bytes:
        raise MalformedRequestError(f"a frame of {size} bytes; this side takes up to {max_bytes}")
    return size


def request_frame(header: RequestHeader, request: Message) -> bytearray:
    """A request, ready to send."""
    out = bytearray(SIZE_BYTES)
    out += request_header(header)
    request.write_into(out, header.api_version)
    return seal(out)


def response_frame(correlation_id: int, response: Message, version: int) -> bytearray:
    """The response to a request of `version`, ready to send."""
    out = bytearray(SIZE_BYTES)
    out += response_header(correlation_id, API_SPECS[response.api_key].response_header_version(version))
    response.write_into(out, version)
    return seal(out)


def seal(out: bytearray) -> bytearray:
    """Fill in the size of a frame that was begun with `SIZE_BYTES` bytes of room for it."""
    out[:SIZE_BYTES] = (len(out) - SIZE_BYTES).to_bytes(SIZE_BYTES, "big")
    return out
