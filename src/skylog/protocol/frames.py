"""Frames: the unit on a connection is an int32 size followed by header and body of that size."""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Final

from skylog.protocol.apis import API_SPECS
from skylog.protocol.headers import RequestHeader, request_header, response_header
from skylog.protocol.schema import Message

SIZE_BYTES: Final = 4
"""The size in front of a frame, not counted in it."""

_START: Final = Struct(">ihhi")  # size, API, version, correlation id
_START_BYTES: Final = _START.size - SIZE_BYTES


def request_frame(header: RequestHeader, request: Message) -> bytearray:
    """Build a request, ready to send."""
    out = bytearray(SIZE_BYTES)
    out += request_header(header)
    request.write_into(out, header.api_version)
    return seal(out)


def encoded_request_frame(header: RequestHeader, body: bytes) -> bytes:
    """Build a request whose body is encoded already."""
    api_key, version, correlation_id, client_id = header
    rest = _rest_of_header(api_key, version, client_id)
    return _START.pack(_START_BYTES + len(rest) + len(body), api_key, version, correlation_id) + rest + body


@lru_cache(maxsize=64)
def _rest_of_header(api_key: int, version: int, client_id: str | None) -> bytes:
    """Encode what follows the correlation id in the headers of all requests of an API on a connection."""
    return request_header(RequestHeader(api_key, version, 0, client_id))[_START_BYTES:]


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
