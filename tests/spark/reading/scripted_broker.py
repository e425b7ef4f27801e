"""A broker on a real socket that serves one crafted partition: what transactions leave in a log."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any, Self

from skylog.protocol.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from skylog.protocol.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from skylog.protocol.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from skylog.protocol.primitives import read_nullable_string
from skylog.records import BatchHeader

_SIZE = Struct(">i")
_HEADER = Struct(">hhi")
_REQUESTS = (ApiVersionsRequest, MetadataRequest, FetchRequest)
TOPIC = "crafted"


@dataclass(frozen=True)
class Aborted:
    """An aborted transaction: its producer, its first offset and the offset of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int


class ScriptedBroker:
    """Serves `batches`, a few in each response, for one connection after the other.

    As in Kafka, a response with isolation level 1 names the aborted transactions that overlap its batches.
    """

    def __init__(self, batches: Sequence[bytes | bytearray], aborted: Sequence[Aborted], per_response: int = 2) -> None:
        self._batches = [(BatchHeader.read(batch), bytes(batch)) for batch in batches]
        self._aborted = aborted
        self._per_response = per_response
        self._server = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self.isolation_levels: set[int] = set()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._server.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                with connection, connection.makefile("rwb") as stream:
                    while size := stream.read(_SIZE.size):
                        stream.write(self._answer(memoryview(stream.read(_SIZE.unpack(size)[0]))))
                        stream.flush()

    def _answer(self, frame: memoryview) -> bytes:
        api_key, version, number = _HEADER.unpack_from(frame)
        kind = next(each for each in _REQUESTS if each.api_key == api_key)
        _, position = read_nullable_string(frame, _HEADER.size)
        if version in kind.flexible:
            position += 1  # no tags
        request: Any = kind.read(frame, version, position)[0]
        response: Any
        match request:
            case ApiVersionsRequest():
                ranges = [
                    ApiVersion(api_key=each.api_key, min_version=each.versions.low, max_version=each.versions.high)
                    for each in _REQUESTS
                ]
                response = ApiVersionsResponse(api_keys=ranges)
            case MetadataRequest():
                response = self._metadata()
            case _:
                response = self._fetch(request)
        out = bytearray(_SIZE.pack(number))
        if version in type(response).flexible and api_key != ApiVersionsRequest.api_key:
            out += b"\0"
        response.write_into(out, version)
        return _SIZE.pack(len(out)) + bytes(out)

    def _metadata(self) -> MetadataResponse:
        row = MetadataResponsePartition(
            partition_index=0, leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1], offline_replicas=[]
        )
        host, port = self._server.getsockname()
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host=host, port=port)],
            controller_id=1,
            topics=[MetadataResponseTopic(name=TOPIC, partitions=[row])],
        )

    def _fetch(self, request: FetchRequest) -> FetchResponse:
        self.isolation_levels.add(request.isolation_level)
        offset = request.topics[0].partitions[0].fetch_offset
        chosen = [(header, batch) for header, batch in self._batches if header.last_offset >= offset]
        chosen = chosen[: self._per_response]
        aborted = None
        if request.isolation_level == 1:
            upper = chosen[-1][0].last_offset if chosen else -1
            aborted = [
                AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
                for each in self._aborted
                if each.last_offset >= offset and each.first_offset <= upper
            ]
        end = self._batches[-1][0].last_offset + 1
        data = PartitionData(
            partition_index=0,
            high_watermark=end,
            last_stable_offset=end,
            aborted_transactions=aborted,
            records=b"".join(batch for _, batch in chosen),
        )
        return FetchResponse(responses=[FetchableTopicResponse(topic=TOPIC, partitions=[data])])
