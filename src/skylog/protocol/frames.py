"""Frames: the unit on a connection is an int32 size followed by header and body of that size."""

from __future__ import annotations

from typing import Final

from skylog.protocol.apis import API_SPECS
from skylog.protocol.headers import RequestHeader, request_header, response_header
from skylog.protocol.schema import Message

SIZE_BYTES: Final = 4
"""The size in front of a frame, not counted in it."""


def request_frame(header: RequestHeader, request: Message) -> bytearray:
    """Build a request, ready to send."""
    out = bytearray(SIZE_BYTES)
    out += request_header(header)
    request.write_into(out, header.api_version)
    return seal(out)


def response_frame(correlation_id: int, response: Message, version: int) -> bytearray:
    """Build the response to a request of `version`, ready to send."""
    out = bytearray(SIZE_BYTES)
    out += response_header(correlation_id, API_SPECS[response.api_key].response_header_version(version))
    response.write_into(out, version)
    return seal(out)


def seal(out: bytearray) -> bytearray:
    """Fill in the size of a frame that starts with `SIZE_BYTES` reserved bytes."""
    out[:SIZE_BYTES] = (len(out) - SIZE_BYTES).to_bytes(SIZE_BYTES, "big")
    return out
