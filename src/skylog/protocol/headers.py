"""Request and response headers.

    request header 0    api_key int16, api_version int16, correlation_id int32
    request header 1    the same, client_id as an int16 nullable string
    request header 2    the same, tagged fields; `client_id` does not become compact
    response header 0   correlation_id int32
    response header 1   the same, tagged fields

Flexible versions of an API use request header 2 and response header 1, the others 1 and 0; the ApiVersions response
always uses 0. Only ControlledShutdown version 0, an old message of Kafka, has request header 0.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final, NamedTuple

from skylog.errors import MalformedRequestError
from skylog.protocol.apis import API_SPECS
from skylog.protocol.primitives import (
    Buffer,
    nullable_string,
    read_nullable_string,
    read_uvarint,
    skip_tagged_fields,
)

_FIXED: Final = struct.Struct(">hhi")
_CONTROLLED_SHUTDOWN: Final = 7


class RequestHeader(NamedTuple):
    """The header of a request. `client_id` is chosen by the client, for logs and quotas."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


@lru_cache(maxsize=1024)
def request_header_version(api_key: int, api_version: int) -> int:
    """Return the header version of a request. Cached, because every request needs it.

    It is unknown for an API or version that skylog does not know: 1 is assumed, which reads everything except the tags.
    """
    api = API_SPECS.get(api_key)
    if api is not None:
        return 2 if api.is_flexible(api_version) else 1
    return 0 if (api_key, api_version) == (_CONTROLLED_SHUTDOWN, 0) else 1


def read_request_header(buf: Buffer, pos: int = 0) -> tuple[RequestHeader, int]:
    """Read the header at `pos`; return it and the position of the body.

    Accepts any API key and version: the router answers those that are not supported.
    """
    try:
        api_key, api_version, correlation_id = _FIXED.unpack_from(buf, pos)
    except struct.error:
        raise MalformedRequestError("the request ends inside its header") from None
    pos += _FIXED.size
    header_version = request_header_version(api_key, api_version)
    if header_version == 0:
        return RequestHeader(api_key, api_version, correlation_id, None), pos
    client_id, pos = read_nullable_string(buf, pos)
    if header_version == 2:
        pos = _skip_tags(buf, pos)
    return RequestHeader(api_key, api_version, correlation_id, client_id), pos


def request_header(header: RequestHeader) -> bytes:
    """Encode `header`, in the version that its API requires."""
    header_version = request_header_version(header.api_key, header.api_version)
    fixed = _FIXED.pack(header.api_key, header.api_version, header.correlation_id)
    if header_version == 0:
        return fixed
    return fixed + nullable_string(header.client_id) + (b"\0" if header_version == 2 else b"")


def read_response_header(buf: Buffer, header_version: int, pos: int = 0) -> tuple[int, int]:
    """Read a response header; return the correlation id and the position of the body."""
    stop = pos + 4
    if stop > len(buf):
        raise MalformedRequestError("the response ends inside its header")
    correlation_id = int.from_bytes(buf[pos:stop], "big", signed=True)
    if not header_version:
        return correlation_id, stop
    return correlation_id, stop + 1 if stop < len(buf) and not buf[stop] else _skip_tags(buf, stop)


def response_header(correlation_id: int, header_version: int) -> bytes:
    """Encode a response header."""
    return correlation_id.to_bytes(4, "big", signed=True) + (b"\0" if header_version else b"")


def _skip_tags(buf: Buffer, pos: int) -> int:
    count, pos = read_uvarint(buf, pos)
    return skip_tagged_fields(buf, pos, count) if count else pos
