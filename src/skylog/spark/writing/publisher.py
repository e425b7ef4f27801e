"""Sends staged batches to their partitions, each exactly once.

Batches have a producer id and sequences, so a broker rejects duplicates and gaps. After a missing or failed response,
the publisher checks the log: it reads the batch headers from its starting offset, finds the last sequence of its
producer, and continues after it. A publisher that resumes an interrupted micro-batch starts with this check.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from skylog.errors import ErrorCode, KafkaError, SkylogError
from skylog.model import TopicPartition
from skylog.protocol.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from skylog.spark.leaders import Leaders
from skylog.spark.reading.fetcher import FetchSettings, PartitionFetcher
from skylog.spark.wire import BrokerConnection, ConnectionLostError
from skylog.spark.writing.manifest import Manifest
from skylog.spark.writing.partition_queue import PartitionQueue
from skylog.spark.writing.write_options import WriteOptions

logger = logging.getLogger(__name__)

IN_FLIGHT: Final = 5
"""Brokers detect duplicates among the last five batches of a producer."""
_PRODUCE_VERSION: Final = 9
_ACKS_ALL: Final = -1
_SUCCESS: Final = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
# After these errors, as after retriable ones, the log is checked: another publisher of the same manifest was faster, or
# a response was lost. If an error repeats without progress, publishing fails after the delivery timeout.
_CHECK_LOG: Final = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.MESSAGE_TOO_LARGE,  # the next attempt is smaller
)


class RecordTooLargeError(SkylogError):
    """A single record is larger than its topic allows."""

    def __init__(self, partition: TopicPartition, size_bytes: int) -> None:
        super().__init__(
            f"{partition} rejects a record of {size_bytes} bytes: raise max.message.bytes of the topic and restart; "
            "a stream continues where it stopped"
        )


@dataclass(slots=True)
class Link:
    """A broker, the queues of the partitions it leads, and the partitions of each unanswered request."""

    connection: BrokerConnection
    version: int
    queues: deque[PartitionQueue]
    unanswered: deque[dict[TopicPartition, PartitionQueue]] = field(default_factory=deque)


class Publisher:
    """Publishes one manifest, once. For one thread."""

    def __init__(
        self, options: WriteOptions, leaders: Leaders, manifest: Manifest, transactional_id: str | None = None
    ) -> None:
        """With a `transactional_id`, the batches are part of its transaction, which the caller begins and ends."""
        self._options = options
        self._transactional_id = transactional_id
        self._leaders = leaders
        self._producer = manifest.producer
        self._manifest = manifest
        self._queues = {key: PartitionQueue(key, *start) for key, start in manifest.partitions.items()}
        self._deadline = 0.0

    def publish(self, *, resume: bool) -> None:
        """Send everything. Set `resume` if some of it may be in the log already.

        Raises KafkaError or ConnectionLostError if brokers reject batches, or after the delivery timeout without
        progress.
        """
        self._reset_deadline()
        with self._open_files():
            is_known = not resume
            while any(not queue.is_done for queue in self._queues.values()):
                try:
                    if not is_known:
                        self._skip_stored()
                    is_known = False
                    self._send_all()
                except (ConnectionLostError, KafkaError) as error:
                    for queue in self._queues.values():
                        queue.requeue()  # unanswered; the next log check finds those that were stored
                    self._leaders.back_off(error, self._deadline, also=_CHECK_LOG)

    # -- sending

    def _send_all(self) -> None:
        links = self._links()
        while links:
            for link in links:
                while len(link.unanswered) < IN_FLIGHT and self._send(link):
                    pass
            for link in links:
                if link.unanswered:
                    self._receive(link)
            links = [link for link in links if link.unanswered or link.queues]

    def _links(self) -> list[Link]:
        left = [queue for queue in self._queues.values() if not queue.is_done]
        self._leaders.refresh({queue.partition.topic for queue in left})
        found: dict[int, Link] = {}
        for queue in left:
            broker = self._leaders.leader(queue.partition)
            if broker not in found:
                connection = self._leaders.connection(broker)
                found[broker] = Link(connection, connection.version(ProduceRequest, _PRODUCE_VERSION), deque())
            found[broker].queues.append(queue)
        return list(found.values())

    def _send(self, link: Link) -> bool:
        """Send one request with the next batch of as many queues as fit. Return False if there is nothing to send."""
        taken: dict[TopicPartition, PartitionQueue] = {}
        topics: dict[str, TopicProduceData] = {}
        size_bytes = 0
        for _ in range(len(link.queues)):
            queue = link.queues[0]
            if taken and size_bytes + queue.waiting[0].size_bytes > self._options.max_request_bytes:
                break
            data = queue.next_batch().stamped(self._producer, is_transactional=self._transactional_id is not None)
            size_bytes += len(data)
            taken[queue.partition] = queue
            topic = topics.setdefault(
                queue.partition.topic, TopicProduceData(name=queue.partition.topic, partition_data=[])
            )
            topic.partition_data.append(PartitionProduceData(index=queue.partition.partition, records=data))
            link.queues.rotate(-1)
            if not queue.waiting:
                link.queues.remove(queue)
        if not taken:
            return False
        request = ProduceRequest(
            transactional_id=self._transactional_id,
            acks=_ACKS_ALL,
            timeout_ms=self._options.request_timeout_ms,
            topic_data=list(topics.values()),
        )
        link.unanswered.append(taken)
        link.connection.send(request, link.version)
        return True

    def _receive(self, link: Link) -> None:
        response = link.connection.receive(ProduceResponse)
        queues = link.unanswered.popleft()
        error: KafkaError | None = None
        for topic in response.responses:
            for row in topic.partition_responses:
                queue = queues[TopicPartition(topic.name, row.index)]
                code = ErrorCode(row.error_code)
                if code in _SUCCESS:
                    queue.acknowledge(row.base_offset)
                    self._reset_deadline()
                elif error is None:
                    error = self._refusal(queue, code, row.error_message)
        if error is not None:
            raise error

    def _refusal(self, queue: PartitionQueue, code: ErrorCode, reason: str | None) -> KafkaError:
        first = queue.in_flight[0]
        if code is ErrorCode.MESSAGE_TOO_LARGE:
            if first.record_count == 1:
                raise RecordTooLargeError(queue.partition, first.size_bytes)
            queue.limit_bytes = first.size_bytes // 2
        return KafkaError(
            code,
            f"{queue.partition} rejects the batch with sequence {first.base_sequence}: {reason or code.name}",
        )

    # -- recovery

    def _reset_deadline(self) -> None:
        self._deadline = time.monotonic() + self._options.delivery_timeout_s

    def _skip_stored(self) -> None:
        """Check the log and drop the batches that it has."""
        left = {key: queue for key, queue in self._queues.items() if not queue.is_done}
        self._leaders.refresh({key.topic for key in left})
        end_offsets = self._leaders.end_offsets(left)
        for key, queue in left.items():
            sequence = self._next_sequence_in_log(queue, end_offsets[key])
            if sequence > queue.next_sequence:
                logger.info("%s already has the records up to sequence %d", key, sequence - 1)
                queue.skip_to(sequence)
                self._reset_deadline()

    def _next_sequence_in_log(self, queue: PartitionQueue, end_offset: int) -> int:
        """Return the sequence after this producer's last batch in the log, or the queue's own if there is none."""
        start_offset = queue.scan_offset if queue.scan_offset <= end_offset else 0  # the topic was recreated
        settings = FetchSettings(
            self._options.bootstrap,
            patience_s=self._options.delivery_timeout_s,
            request_timeout_s=self._options.request_timeout_ms / 1000,
            fail_on_data_loss=False,
            security=self._options.security,
        )
        sequence = queue.next_sequence
        with closing(PartitionFetcher(settings, queue.partition)) as fetcher:
            for fetched in fetcher.batches(start_offset, end_offset):
                headers = fetched.headers
                mine = headers[
                    (headers["producer_id"] == self._producer.producer_id)
                    & (headers["producer_epoch"] == self._producer.epoch)
                ]
                ends = mine["base_sequence"].astype(np.int64) + mine["last_offset_delta"] + 1
                sequence = max(sequence, int(ends.max(initial=0)))
        return sequence

    # -- files

    @contextmanager
    def _open_files(self) -> Iterator[None]:
        opened: list[int] = []
        try:
            for path, batches in self._manifest.files:
                opened.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
                for batch in batches:
                    self._queues[batch.target].add(opened[-1], batch)
            yield
        finally:
            for file in opened:
                os.close(file)
