"""Record batches of one partition between two offsets, as they lie in the log, straight from the leader.

Finds the leader and finds it again when it moves. While one answer is worked on, the next is already asked for.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skylog.errors import ErrorCode, KafkaError
from skylog.model import TopicPartition
from skylog.protocol.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
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
from skylog.spark.wire import BrokerConnection, ConnectionLostError, any_broker

logger = logging.getLogger(__name__)

FIRST_FETCH_BYTES: Final = 1 << 20
MAX_WAIT_MS: Final = 500
AGAIN_S: Final = 0.1
_EARLIEST: Final = -2
_LATEST: Final = -1
_NAMES_UNTIL: Final = 12  # from Fetch 13 on topics are known by id alone
_METADATA_VERSION: Final = 12
_LIST_OFFSETS_VERSION: Final = 6


class Fetched(NamedTuple):
    """Whole batches and where they lie in `records`, which is valid until the next is taken.

    The first may begin before `offset`, which is where this part of the log is read from.
    """

    offset: int
    records: memoryview
    headers: NDArray[Any]
    positions: NDArray[np.int64]


class FetchSettings(NamedTuple):
    """How executors read. `patience_s` is for how long a broker may give nothing before the task fails."""

    bootstrap: str
    max_bytes: int = 8 << 20
    patience_s: float = 120.0
    request_timeout_s: float = 30.0
    fail_on_data_loss: bool = True


class PartitionFetcher:
    """Reads one partition once. Serves one thread."""

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
        """Everything between the offsets; the first and the last batch may reach beyond them.

        Raises DataLossError where the log no longer has them all, unless that is accepted.
        """
        offset, size_bytes, is_asked = start_offset, FIRST_FETCH_BYTES, False
        self._be_patient()
        while offset < end_offset:
            try:
                if not is_asked:
                    self._ask(offset, size_bytes)
                is_asked = False
                answer = self._answer()
            except ConnectionLostError as error:
                self._wait_out(error)
                continue
            if answer.error_code:
                offset = self._after_error(ErrorCode(answer.error_code), offset, end_offset)
                continue
            records = memoryview(answer.records or b"")
            headers, positions = cut(records, self._partition)
            if not len(positions):
                if self._is_over(answer, offset, end_offset):
                    return
                continue
            self._be_patient()
            following = int(headers["base_offset"][-1] + headers["last_offset_delta"][-1]) + 1
            size_bytes = self._next_size(len(records), following - offset, end_offset - following)
            fetched = Fetched(offset, records, headers, positions)
            offset = following
            if offset < end_offset:
                is_asked = self._try_ask(offset, size_bytes)
            yield fetched

    # -- one request

    def _ask(self, offset: int, size_bytes: int) -> None:
        connection = self._leader()
        row = FetchPartition(partition=self._partition.partition, fetch_offset=offset, partition_max_bytes=size_bytes)
        topic = FetchTopic(topic=self._partition.topic, topic_id=self._topic_id, partitions=[row])
        request = FetchRequest(max_wait_ms=MAX_WAIT_MS, min_bytes=1, max_bytes=size_bytes, topics=[topic])
        connection.send(request, self._fetch_version)

    def _try_ask(self, offset: int, size_bytes: int) -> bool:
        """Ask ahead. A connection that is lost now is noticed when the answer is missing."""
        try:
            self._ask(offset, size_bytes)
        except ConnectionLostError:
            self.close()
            return False
        return True

    def _answer(self) -> PartitionData:
        assert self._connection is not None
        answer = self._connection.receive(FetchResponse)
        if answer.error_code:
            return PartitionData(partition_index=0, error_code=answer.error_code, high_watermark=-1)
        return answer.responses[0].partitions[0]

    def _next_size(self, size_bytes: int, offsets: int, offsets_left: int) -> int:
        """Enough for what is left, going by what was read: a short range next to a long log stays a short read."""
        expected = size_bytes * offsets_left // max(offsets, 1)
        return min(self._settings.max_bytes, max(expected + expected // 8, 64 << 10))

    # -- when it does not go well

    def _after_error(self, code: ErrorCode, offset: int, end_offset: int) -> int:
        """Where to go on. Raises what cannot be waited out."""
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            log_start_offset = self._list_offset(_EARLIEST)
            if log_start_offset > offset:
                if self._settings.fail_on_data_loss:
                    raise DataLossError(self._partition, offset, log_start_offset)
                logger.warning("%s: offsets %d to %d are lost", self._partition, offset, log_start_offset - 1)
                return min(log_start_offset, end_offset)
            if self._settings.fail_on_data_loss:
                raise ShortenedLogError(self._partition, offset, self._list_offset(_LATEST))
            logger.warning("%s: offsets %d to %d are not there", self._partition, offset, end_offset - 1)
            return end_offset
        error = KafkaError(code, f"{self._partition} cannot be read at offset {offset}: {code.name}")
        if not code.retriable:
            raise error
        self._wait_out(error)
        return offset

    def _wait_out(self, error: KafkaError | ConnectionLostError) -> None:
        """Begin anew with another look for the leader, as long as there is patience."""
        self.close()
        if time.monotonic() > self._deadline:
            raise error
        logger.info("%s is read again: %s", self._partition, error)
        time.sleep(AGAIN_S)

    def _be_patient(self) -> None:
        self._deadline = time.monotonic() + self._settings.patience_s

    def _is_over(self, answer: PartitionData, offset: int, end_offset: int) -> bool:
        """Nothing came: is that all there will be? Raises ShortenedLogError after waiting in vain."""
        if time.monotonic() <= self._deadline:
            return False
        if self._settings.fail_on_data_loss:
            raise ShortenedLogError(self._partition, end_offset - 1, answer.high_watermark)
        logger.warning("%s ends at offset %d: %d is not there", self._partition, offset, end_offset - 1)
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
        first = any_broker(self._settings.bootstrap, self._settings.request_timeout_s)
        answer = first.ask(request, first.version(MetadataRequest, _METADATA_VERSION), MetadataResponse)
        first.close()
        leaders = {row.partition_index: row.leader_id for row in answer.topics[0].partitions}
        addresses = {row.node_id: (row.host, row.port) for row in answer.brokers}
        if leaders.get(number) not in addresses:
            raise ConnectionLostError(f"{self._partition} has no leader: {ErrorCode(answer.topics[0].error_code).name}")
        self._topic_id = answer.topics[0].topic_id
        return BrokerConnection(*addresses[leaders[number]], self._settings.request_timeout_s)

    def _list_offset(self, timestamp: int) -> int:
        connection = self._leader()
        row = ListOffsetsPartition(partition_index=self._partition.partition, timestamp=timestamp)
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=self._partition.topic, partitions=[row])])
        version = connection.version(ListOffsetsRequest, _LIST_OFFSETS_VERSION)
        return connection.ask(request, version, ListOffsetsResponse).topics[0].partitions[0].offset
