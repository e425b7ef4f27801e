"""One valid request for every API and version that the broker serves, as a start for what is not valid."""

from __future__ import annotations

from typing import Any, cast

from skylog.broker.handlers import APIS
from skylog.protocol.apis import API_SPECS, ApiKey
from skylog.protocol.describe_client_quotas import QuotaFilterComponent
from skylog.protocol.frames import request_frame
from skylog.protocol.headers import RequestHeader
from skylog.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from skylog.protocol.schema import Message

from ..broker.raw import batch_of
from ..protocol.strategies import full_message

SERVED = [(api.key, version) for api in APIS for version in range(api.low, api.high + 1)]
NEWEST = [(api.key, api.high) for api in APIS]
OLDEST = [(api.key, api.low) for api in APIS]


def valid_request(key: ApiKey, version: int, topic: str = "name") -> Message:
    """A request with something in every field. Most ask for a topic called "name"."""
    if key is ApiKey.PRODUCE:
        row = PartitionProduceData(index=0, records=bytes(batch_of(b"value")))
        return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=[row])])
    request: Any = full_message(API_SPECS[key].request, version)
    if key is ApiKey.FETCH:
        request.session_id = 0
        request.max_wait_ms = 1
    if key is ApiKey.ELECT_LEADERS:
        request.election_type = 0
    if key is ApiKey.DESCRIBE_CLIENT_QUOTAS:
        request.components = [QuotaFilterComponent(entity_type="user", match_type=0, match="name")]
    return cast(Message, request)


def valid_frame(key: ApiKey, version: int) -> bytes:
    return bytes(request_frame(RequestHeader(int(key), version, 1, "raw"), valid_request(key, version)))
