"""Fetches the record batches of one partition between two offsets, unparsed, from its leader.

Finds the leader, also after it moves. Requests the next response while the caller processes the current one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skylog.errors import ErrorCode, KafkaError
from skylog.model import TopicPartition
from skylog.protocol.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from skylog.protocol.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from skylog.protocol.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from skylog.protocol.schema import ZERO_UUID
from skylog.spark.errors import DataLossError, ShortenedLogError
from skylog.spark.reading.batches import cut
from skylog.spark.security import PLAINTEXT, Security
from skylog.spark.wire import BrokerConnection, ConnectionLostError, any_broker

logger = logging.getLogger(__name__)

FIRST_FETCH_BYTES: Final = 1 << 20
MAX_WAIT_MS: Final = 500
RETRY_DELAY_S: Final = 0.1
_EARLIEST: Final = -2
_LATEST: Final = -1
_NAMES_UNTIL: Final = 12  # Fetch 13 and later identify topics by id only
_METADATA_VERSION: Final = 12
_LIST_OFFSETS_VERSION: Final = 6


class Fetched(NamedTuple):
    """Complete batches and their positions in `records`, which is valid until the next iteration.

    `offset` is the first requested offset. The first batch may begin before it. `aborted` has the aborted transactions
    that overlap the batches, for read_committed.
    """

    offset: int
    records: memoryview
    headers: NDArray[Any]
    positions: NDArray[np.int64]
    aborted: Sequence[AbortedTransaction] = ()


class FetchSettings(NamedTuple):
    """How executors read. `patience_s` is the time without any records after which the task fails."""

    bootstrap: str
    max_bytes: int = 8 << 20
    patience_s: float = 120.0
    request_timeout_s: float = 30.0
    fail_on_data_loss: bool = True
    read_committed: bool = False
    security: Security = PLAINTEXT


class PartitionFetcher:
    """Reads one partition once. For one thread."""

    def __init__(self, settings: FetchSettings, partition: TopicPartition) -> None:
        self._settings = settings
        self._partition = partition
        self._connection: BrokerConnection | None = None
        self._topic_id = ZERO_UUID
        self._fetch_version = _NAMES_UNTIL
        self._deadline = 0.0

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def batches(self, start_offset: int, end_offset: int) -> Iterator[Fetched]:
        """Yield all batches between the offsets. The first and the last batch may extend beyond them.

        Raises DataLossError or ShortenedLogError if offsets are missing, unless `fail_on_data_loss` is off.
        """
        offset, size_bytes, is_sent = start_offset, FIRST_FETCH_BYTES, False
        self._reset_deadline()
        while offset < end_offset:
            try:
                if not is_sent:
                    self._send_fetch(offset, size_bytes)
                is_sent = False
                response = self._receive()
            except ConnectionLostError as error:
                self._back_off(error)
                continue
            if response.error_code:
                offset = self._handle_error(ErrorCode(response.error_code), offset, end_offset)
                continue
            records = memoryview(response.records or b"")
            headers, positions = cut(records, self._partition)
            if not len(positions):
                if self._is_at_end(response, offset, end_offset):
                    return
                continue
            self._reset_deadline()
            following = int(headers["base_offset"][-1] + headers["last_offset_delta"][-1]) + 1
            size_bytes = self._next_size(len(records), following - offset, end_offset - following)
            fetched = Fetched(offset, records, headers, positions, response.aborted_transactions or ())
            offset = following
            if offset < end_offset:
                is_sent = self._try_prefetch(offset, size_bytes)
            yield fetched

    # -- one request

    def _send_fetch(self, offset: int, size_bytes: int) -> None:
        connection = self._leader()
        row = FetchPartition(partition=self._partition.partition, fetch_offset=offset, partition_max_bytes=size_bytes)
        topic = FetchTopic(topic=self._partition.topic, topic_id=self._topic_id, partitions=[row])
        request = FetchRequest(
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=size_bytes,
            isolation_level=int(self._settings.read_committed),
            topics=[topic],
        )
        connection.send(request, self._fetch_version)

    def _try_prefetch(self, offset: int, size_bytes: int) -> bool:
        """Send the next request early. Return False if the connection is lost; the caller then sends it again."""
        try:
            self._send_fetch(offset, size_bytes)
        except ConnectionLostError:
            self.close()
            return False
        return True

    def _receive(self) -> PartitionData:
        assert self._connection is not None
        response = self._connection.receive(FetchResponse)
        if response.error_code or not response.responses:  # empty: above the quota of the client
            code = response.error_code or ErrorCode.THROTTLING_QUOTA_EXCEEDED
            return PartitionData(partition_index=0, error_code=code, high_watermark=-1)
        return response.responses[0].partitions[0]

    def _next_size(self, size_bytes: int, offsets: int, offsets_left: int) -> int:
        """Estimate the bytes for the remaining offsets, so that a short range of a long log is a short read."""
        expected = size_bytes * offsets_left // max(offsets, 1)
        return min(self._settings.max_bytes, max(expected + expected // 8, 64 << 10))

    # -- errors

    def _handle_error(self, code: ErrorCode, offset: int, end_offset: int) -> int:
        """Return the offset to continue from. Raises if the error is not retriable."""
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            log_start_offset = self._list_offset(_EARLIEST)
            if log_start_offset > offset:
                if self._settings.fail_on_data_loss:
                    raise DataLossError(self._partition, offset, log_start_offset)
                logger.warning("%s: offsets %d to %d were deleted", self._partition, offset, log_start_offset - 1)
                return min(log_start_offset, end_offset)
            if self._settings.fail_on_data_loss:
                raise ShortenedLogError(self._partition, offset, self._list_offset(_LATEST))
            logger.warning("%s: offsets %d to %d do not exist", self._partition, offset, end_offset - 1)
            return end_offset
        error = KafkaError(code, f"cannot read {self._partition} at offset {offset}: {code.name}")
        if not code.retriable:
            raise error
        self._back_off(error)
        return offset

    def _back_off(self, error: KafkaError | ConnectionLostError) -> None:
        """Close the connection and wait briefly. The next request finds the leader again. Raises `error` after the
        deadline."""
        self.close()
        if time.monotonic() > self._deadline:
            raise error
        logger.info("%s: retrying after: %s", self._partition, error)
        time.sleep(RETRY_DELAY_S)

    def _reset_deadline(self) -> None:
        self._deadline = time.monotonic() + self._settings.patience_s

    def _is_at_end(self, response: PartitionData, offset: int, end_offset: int) -> bool:
        """Return whether to stop after an empty response. Before the deadline the fetch is repeated; after it, the log
        has ended. Raises ShortenedLogError then, unless `fail_on_data_loss` is off."""
        if time.monotonic() <= self._deadline:
            return False
        if self._settings.fail_on_data_loss:
            readable = response.last_stable_offset if self._settings.read_committed else response.high_watermark
            raise ShortenedLogError(self._partition, end_offset - 1, readable)
        logger.warning("%s ends at offset %d; offset %d does not exist", self._partition, offset, end_offset - 1)
        return True

    # -- finding the leader

    def _leader(self) -> BrokerConnection:
        if self._connection is None:
            self._connection = self._find_leader()
            self._fetch_version = self._connection.version(FetchRequest, _NAMES_UNTIL)
        return self._connection

    def _find_leader(self) -> BrokerConnection:
        topic, number = self._partition
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        first = any_broker(self._settings.bootstrap, self._settings.request_timeout_s, self._settings.security)
        response = first.ask(request, first.version(MetadataRequest, _METADATA_VERSION), MetadataResponse)
        first.close()
        leaders = {row.partition_index: row.leader_id for row in response.topics[0].partitions}
        addresses = {row.node_id: (row.host, row.port) for row in response.brokers}
        if leaders.get(number) not in addresses:
            raise ConnectionLostError(
                f"{self._partition} has no leader: {ErrorCode(response.topics[0].error_code).name}"
            )
        self._topic_id = response.topics[0].topic_id
        return BrokerConnection(*addresses[leaders[number]], self._settings.request_timeout_s, self._settings.security)

    def _list_offset(self, timestamp: int) -> int:
        connection = self._leader()
        row = ListOffsetsPartition(partition_index=self._partition.partition, timestamp=timestamp)
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=self._partition.topic, partitions=[row])])
        version = connection.version(ListOffsetsRequest, _LIST_OFFSETS_VERSION)
        return connection.ask(request, version, ListOffsetsResponse).topics[0].partitions[0].offset
