"""ApiVersions: the returned APIs are those that are served."""

from __future__ import annotations

import pytest

from skylog.broker.handlers import APIS
from skylog.errors import ErrorCode
from skylog.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from skylog.protocol.apis import ApiKey
from skylog.protocol.headers import RequestHeader, request_header

from .process import BrokerProcess
from .raw import RawClient

VERSIONS = range(5)
KNOWN = ApiVersionsRequest(client_software_name="raw", client_software_version="1.0")


def listed(response: ApiVersionsResponse) -> dict[int, tuple[int, int]]:
    return {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_list_is_the_table_of_handlers_with_produce_from_0(client: RawClient, version: int) -> None:
    response = client.ask(KNOWN, version)
    assert response.error_code == ErrorCode.NONE
    served = {int(api.key): (api.low, api.high) for api in APIS}
    assert listed(response) == {**served, ApiKey.PRODUCE: (0, served[ApiKey.PRODUCE][1])}


@pytest.mark.parametrize("version", [3, 4])
def test_the_features_are_the_metadata_version_of_kafka_3_9_and_the_consumer_protocol(
    client: RawClient, version: int
) -> None:
    """Any other would make clients expect something: transactions in Produce, a quorum of controllers.

    Clients that know only version 3 reject a lowest level of 0.
    """
    response = client.ask(KNOWN, version)
    consumer_protocol = [("group.version", 0, 1)] if version >= 4 else []
    assert [(each.name, each.min_version, each.max_version) for each in response.supported_features] == [
        ("metadata.version", 1, 21),
        *consumer_protocol,
    ]
    assert [(each.name, each.min_version_level, each.max_version_level) for each in response.finalized_features] == [
        ("metadata.version", 21, 21),
        ("group.version", 1, 1),
    ]
    assert response.finalized_features_epoch >= 0
    assert not response.zk_migration_ready


@pytest.mark.parametrize("version", [5, 9, 32767, -1])
@pytest.mark.parametrize("body", [b"", b"\x04from\x08the-future\x01\x02\x03", b"\xff" * 40], ids=["none", "odd", "ff"])
def test_a_version_from_the_future_is_answered_in_the_form_of_version_0(
    client: RawClient, version: int, body: bytes
) -> None:
    """KIP-511: the body may be in an unknown format, only the header is read."""
    header = request_header(RequestHeader(ApiKey.API_VERSIONS, version, 77, "raw"))
    client.send_bytes(len(header + body).to_bytes(4, "big") + header + body)
    frame = client.read_frame()
    assert frame[:4] == (77).to_bytes(4, "big")
    response, end = ApiVersionsResponse.read(frame, 0, 4)
    assert end == len(frame)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert listed(response)[ApiKey.API_VERSIONS] == (0, 4)
    assert client.ask(KNOWN, 3).error_code == ErrorCode.NONE, "the connection goes on"


@pytest.mark.parametrize("name", ["", "-x", "a b", "naïve"])
def test_a_client_with_an_invalid_name_gets_an_error(client: RawClient, name: str) -> None:
    response = client.ask(ApiVersionsRequest(client_software_name=name, client_software_version="1"), 3)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert client.ask(KNOWN, 3).error_code == ErrorCode.NONE


def test_produce_before_version_3_closes_the_connection_though_it_is_listed(broker: BrokerProcess) -> None:
    with RawClient(broker.port) as old:
        old.send_bytes(b"\0\0\0\x0a" + b"\0\0\0\x02\0\0\0\x01\xff\xff")
        assert old.is_closed()
