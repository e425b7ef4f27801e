"""Headers and frames, against kio's headers."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.request_header.v1.header import RequestHeader as KioRequestHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as KioRequestHeaderV2
from kio.schema.response_header.v0.header import ResponseHeader as KioResponseHeaderV0
from kio.schema.response_header.v1.header import ResponseHeader as KioResponseHeaderV1
from kio.serial import entity_writer

from skylog.errors import MalformedRequestError
from skylog.protocol.api_versions import ApiVersion, ApiVersionsResponse
from skylog.protocol.apis import ApiKey
from skylog.protocol.frames import SIZE_BYTES, encoded_request_frame, request_frame, response_frame
from skylog.protocol.headers import (
    RequestHeader,
    read_request_header,
    read_response_header,
    request_header,
    response_header,
)
from skylog.protocol.heartbeat import HeartbeatResponse
from skylog.protocol.metadata import MetadataRequest

from .strategies import full_message

CLIENT_IDS = st.none() | st.text(max_size=20)
CORRELATION_IDS = st.integers(-(2**31), 2**31 - 1)


@pytest.mark.parametrize(
    ("version", "kio_header"), [(8, KioRequestHeaderV1), (9, KioRequestHeaderV2)], ids=["header 1", "header 2"]
)
@given(correlation_id=CORRELATION_IDS, client_id=CLIENT_IDS)
def test_a_request_header_has_kios_bytes_and_reads_back(
    version: int, kio_header: type, correlation_id: int, client_id: str | None
) -> None:
    header = RequestHeader(ApiKey.PRODUCE, version, correlation_id, client_id)
    out = io.BytesIO()
    entity_writer(kio_header)(
        out,
        kio_header(request_api_key=0, request_api_version=version, correlation_id=correlation_id, client_id=client_id),
    )
    data = request_header(header)
    assert data == out.getvalue()
    assert read_request_header(b"?" + data + b"body", 1) == (header, 1 + len(data))


@pytest.mark.parametrize(("header_version", "kio_header"), [(0, KioResponseHeaderV0), (1, KioResponseHeaderV1)])
@given(correlation_id=CORRELATION_IDS)
def test_a_response_header_has_kios_bytes_and_reads_back(
    header_version: int, kio_header: type, correlation_id: int
) -> None:
    out = io.BytesIO()
    entity_writer(kio_header)(out, kio_header(correlation_id=correlation_id))
    data = response_header(correlation_id, header_version)
    assert data == out.getvalue()
    assert read_response_header(b"?" + data + b"body", header_version, 1) == (correlation_id, 1 + len(data))


def test_tagged_fields_in_a_header_are_skipped() -> None:
    data = request_header(RequestHeader(ApiKey.METADATA, 9, 5, "me"))[:-1] + b"\x01\x07\x03abc"
    assert read_request_header(data) == (RequestHeader(ApiKey.METADATA, 9, 5, "me"), len(data))


@pytest.mark.parametrize("api", [(3, 5), (3, 9), (18, 99), (7, 0), (9999, 3)])
def test_a_header_cut_short_anywhere_is_refused(api: tuple[int, int]) -> None:
    whole = request_header(RequestHeader(*api, 5, "client"))
    for length in range(len(whole)):
        with pytest.raises(MalformedRequestError):
            read_request_header(whole[:length])
    with pytest.raises(MalformedRequestError):
        read_response_header(b"\0\0\0", 0)


def test_a_header_of_an_unknown_api_or_version_is_still_read() -> None:
    for header in (RequestHeader(9999, 3, 1, "me"), RequestHeader(18, 99, 2, "me"), RequestHeader(3, -1, 3, None)):
        assert read_request_header(request_header(header) + b"body of the future")[0] == header


def test_the_one_request_without_a_client_id_is_read() -> None:
    assert read_request_header(b"\0\x07\0\0\0\0\0\x05") == (RequestHeader(7, 0, 5, None), 8)


def test_a_request_frame_is_size_header_and_body() -> None:
    request = full_message(MetadataRequest, 9)
    header = RequestHeader(ApiKey.METADATA, 9, 5, "me")
    frame = request_frame(header, request)
    assert int.from_bytes(frame[:SIZE_BYTES], "big") == len(frame) - SIZE_BYTES
    assert frame[SIZE_BYTES:] == request_header(header) + request.write(9)


@pytest.mark.parametrize(("version", "header"), [(3, b"\0\0\0\x05"), (4, b"\0\0\0\x05\0")])
def test_a_response_frame_has_the_header_of_its_version(version: int, header: bytes) -> None:
    response = HeartbeatResponse(error_code=27)
    frame = response_frame(5, response, version)
    assert frame[SIZE_BYTES:] == header + response.write(version)
    assert int.from_bytes(frame[:SIZE_BYTES], "big") == len(frame) - SIZE_BYTES


def test_the_api_versions_response_keeps_the_old_header_in_flexible_versions() -> None:
    response = ApiVersionsResponse(api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)])
    assert response_frame(5, response, 3)[SIZE_BYTES:] == b"\0\0\0\x05" + response.write(3)


@pytest.mark.parametrize("version", [8, 9], ids=["without tags", "flexible"])
@pytest.mark.parametrize("client_id", ["broker-1", "", None])
def test_a_frame_around_an_encoded_body_is_that_of_the_message(version: int, client_id: str | None) -> None:
    request = MetadataRequest(topics=None)
    body = bytearray()
    request.write_into(body, version)
    for correlation_id in (0, 1, 0x7FFFFFFF):
        header = RequestHeader(request.api_key, version, correlation_id, client_id)
        assert encoded_request_frame(header, bytes(body)) == request_frame(header, request)
