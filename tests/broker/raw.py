"""A client that can send anything: any API in any version, any bytes. It returns the responses."""

from __future__ import annotations

import itertools
import select
import socket
import struct
from typing import Any, Self
from uuid import UUID

from skylog.protocol.apis import API_SPECS
from skylog.protocol.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from skylog.protocol.frames import request_frame
from skylog.protocol.headers import RequestHeader, read_response_header
from skylog.protocol.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from skylog.protocol.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseTopic
from skylog.protocol.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from skylog.protocol.schema import Message
from skylog.records import Record, build_batch, iterate_batches, read_records

TIMEOUT_SECONDS = 20.0


class ClosedByBrokerError(Exception):
    """The broker has closed the connection."""


class RawClient:
    """One connection. `ask` sends a request and reads its response; `send` and `receive` do so one by one."""

    def __init__(
        self,
        port: int,
        timeout_seconds: float = TIMEOUT_SECONDS,
        receive_buffer_bytes: int = 0,
        *,
        host: str = "127.0.0.1",
    ) -> None:
        self.socket = socket.socket()
        if receive_buffer_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(timeout_seconds)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.connect((host, port))
        self._numbers = itertools.count(1)
        self._waiting: list[tuple[int, type[Message], int]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    # -- any bytes

    def send_bytes(self, data: bytes | bytearray) -> None:
        try:
            self.socket.sendall(data)
        except ConnectionError as error:
            raise ClosedByBrokerError from error

    def read_frame(self) -> bytes:
        (length,) = struct.unpack(">i", self._read(4))
        return self._read(length)

    def _read(self, length: int) -> bytes:
        data = bytearray()
        while len(data) < length:
            try:
                more = self.socket.recv(length - len(data))
            except ConnectionError as error:
                raise ClosedByBrokerError from error
            if not more:
                raise ClosedByBrokerError
            data += more
        return bytes(data)

    def is_closed(self, within_seconds: float = TIMEOUT_SECONDS) -> bool:
        """Return whether the broker closes the connection within `seconds`. Bytes sent before are dropped."""
        self.socket.settimeout(within_seconds)
        try:
            while self.socket.recv(65536):
                pass
        except TimeoutError:
            return False
        except ConnectionError:
            return True
        return True

    def has_answer(self, within_seconds: float) -> bool:
        return bool(select.select([self.socket], [], [], within_seconds)[0])

    # -- messages

    def encode(self, request: Message, version: int, client_id: str | None = "raw") -> bytes:
        """Return a request's frame, and expect its response after those of earlier requests."""
        correlation_id = next(self._numbers)
        if not (isinstance(request, ProduceRequest) and request.acks == 0):
            self._waiting.append((correlation_id, API_SPECS[request.api_key].response, version))
        return bytes(request_frame(RequestHeader(request.api_key, version, correlation_id, client_id), request))

    def send(self, request: Message, version: int) -> None:
        self.send_bytes(self.encode(request, version))

    def receive(self) -> Any:
        """The response that is due next; it must carry that request's correlation id and nothing behind its body."""
        expected_id, response_type, version = self._waiting.pop(0)
        frame = self.read_frame()
        header_version = API_SPECS[response_type.api_key].response_header_version(version)
        correlation_id, position = read_response_header(frame, header_version)
        assert correlation_id == expected_id, f"answer {correlation_id} where {expected_id} was due"
        response, end = response_type.read(frame, version, position)
        assert end == len(frame), f"{len(frame) - end} bytes behind the {response_type.__name__}"
        return response

    def ask(self, request: Message, version: int) -> Any:
        self.send(request, version)
        return self.receive()

    # -- frequent requests

    def produce(
        self, topic: str, batch: bytes | bytearray | None, *, partition: int = 0, acks: int = -1, version: int = 9
    ) -> PartitionProduceResponse:
        response = self.ask(produce_request(topic, batch, partition=partition, acks=acks), version)
        (topic_response,) = response.responses
        assert topic_response.name == topic
        (row,) = topic_response.partition_responses
        assert row.index == partition
        result: PartitionProduceResponse = row
        return result

    def fetch(self, topic: str | UUID, offset: int, **options: Any) -> PartitionData:
        """One partition's answer. Options are those of `fetch_request`, and `version`."""
        version = options.pop("version", 12)
        response: FetchResponse = self.ask(fetch_request(topic, offset, **options), version)
        assert response.error_code == 0
        assert response.session_id == 0
        return response.responses[0].partitions[0]

    def list_offset(
        self, topic: str, timestamp: int, *, partition: int = 0, version: int = 7, epoch: int = -1, isolation: int = 0
    ) -> ListOffsetsPartitionResponse:
        row = ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch)
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[row])], isolation_level=isolation)
        found: ListOffsetsPartitionResponse = self.ask(request, version).topics[0].partitions[0]
        return found

    def metadata(self, *names: str, version: int = 12, create: bool = False) -> MetadataResponse:
        """About the named topics; about all where none is named."""
        topics = [MetadataRequestTopic(name=name) for name in names] or ([] if version == 0 else None)
        response: MetadataResponse = self.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=create), version)
        return response

    def topic(self, name: str) -> MetadataResponseTopic:
        (found,) = self.metadata(name).topics
        return found

    def end_offset(self, topic: str, partition: int = 0) -> int:
        return self.list_offset(topic, -1, partition=partition).offset


def produce_request(
    topic: str, batch: bytes | bytearray | None, *, partition: int = 0, acks: int = -1, timeout_ms: int = 10_000
) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=None if batch is None else bytes(batch))
    return ProduceRequest(
        acks=acks, timeout_ms=timeout_ms, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )


def fetch_request(
    topic: str | UUID,
    offset: int,
    *,
    partition: int = 0,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 0x7FFFFFFF,
    partition_max_bytes: int = 1024 * 1024,
    epoch: int = -1,
    isolation: int = 0,
    session_id: int = 0,
    session_epoch: int = -1,
) -> FetchRequest:
    row = FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=partition_max_bytes, current_leader_epoch=epoch
    )
    named = {"topic": topic} if isinstance(topic, str) else {"topic_id": topic}
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[FetchTopic(partitions=[row], **named)],
    )


def batch_of(*values: bytes, timestamp: int = 1000, **options: Any) -> bytearray:
    """A batch with these values under the key "k"; record i has the time `timestamp + i`."""
    return build_batch([Record(value, b"k", timestamp + i) for i, value in enumerate(values)], **options)


def values_in(data: Any) -> list[tuple[int, bytes | None]]:
    """Offset and value of each record in a fetch answer; its batches must be whole."""
    data = bytes(data)
    found: list[tuple[int, bytes | None]] = []
    end = 0
    for position, header in iterate_batches(data):
        batch = data[position : position + header.size_bytes]
        found += [(record.offset, record.value) for record in read_records(batch)]
        end = position + header.size_bytes
    assert end == len(data), "a batch is cut"
    return found
