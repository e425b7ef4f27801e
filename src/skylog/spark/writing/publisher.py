"""Sends staged batches to their partitions, each exactly once.

Batches carry a producer id and sequences, so a broker refuses what it has and what leaves a gap. Where an answer is
missing or bad, the publisher asks the log itself: it reads the batch headers behind the offset where it began, finds
the last sequence of its producer, and goes on after it. A publisher that takes over from one that died begins that way.
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
from skylog.spark.writing.lane import Lane
from skylog.spark.writing.manifest import Manifest
from skylog.spark.writing.write_options import WriteOptions

logger = logging.getLogger(__name__)

IN_FLIGHT: Final = 5
"""Brokers remember as many batches of a producer, and recognise a repetition among them."""
_PRODUCE_VERSION: Final = 9
_ACKS_ALL: Final = -1
_SUCCESS: Final = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
# After these the log tells what to do, as after errors that pass: another publisher of the same manifest was faster, or
# an answer was lost. If the same comes back without any progress, patience runs out.
_LOOK_AGAIN: Final = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.MESSAGE_TOO_LARGE,  # the next attempt is smaller
)


class RecordTooLargeError(SkylogError):
    """A single record that its topic does not take."""

    def __init__(self, partition: TopicPartition, size_bytes: int) -> None:
        super().__init__(
            f"{partition} does not take a record of {size_bytes} bytes: raise max.message.bytes of the topic and start "
            "again, which goes on where this ends"
        )


@dataclass(slots=True)
class Link:
    """A broker, the lanes it leads, and the partitions of each request that it has not answered."""

    connection: BrokerConnection
    version: int
    lanes: deque[Lane]
    unanswered: deque[dict[TopicPartition, Lane]] = field(default_factory=deque)


class Publisher:
    """Publishes one manifest. Serves one thread, once."""

    def __init__(self, options: WriteOptions, leaders: Leaders, manifest: Manifest) -> None:
        self._options = options
        self._leaders = leaders
        self._producer = manifest.producer
        self._manifest = manifest
        self._lanes = {key: Lane(key, *start) for key, start in manifest.lanes.items()}
        self._deadline = 0.0

    def publish(self, *, resume: bool) -> None:
        """Returns when the log has everything. `resume` if some of it may be there already.

        Raises KafkaError or ConnectionLostError when brokers refuse, or give no sign of progress for too long.
        """
        self._be_patient()
        with self._open_files():
            is_known = not resume
            while any(not lane.is_done for lane in self._lanes.values()):
                try:
                    if not is_known:
                        self._look()
                    is_known = False
                    self._send_all()
                except (ConnectionLostError, KafkaError) as error:
                    for lane in self._lanes.values():
                        lane.take_back()  # unanswered; the log will tell
                    self._leaders.wait_out(error, self._deadline, also=_LOOK_AGAIN)

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
            links = [link for link in links if link.unanswered or link.lanes]

    def _links(self) -> list[Link]:
        left = [lane for lane in self._lanes.values() if not lane.is_done]
        self._leaders.learn({lane.partition.topic for lane in left})
        found: dict[int, Link] = {}
        for lane in left:
            broker = self._leaders.leader(lane.partition)
            if broker not in found:
                connection = self._leaders.connection(broker)
                found[broker] = Link(connection, connection.version(ProduceRequest, _PRODUCE_VERSION), deque())
            found[broker].lanes.append(lane)
        return list(found.values())

    def _send(self, link: Link) -> bool:
        """One request with the next batch of each lane, as many as go in. False if there is nothing to send."""
        taken: dict[TopicPartition, Lane] = {}
        topics: dict[str, TopicProduceData] = {}
        size_bytes = 0
        for _ in range(len(link.lanes)):
            lane = link.lanes[0]
            if taken and size_bytes + lane.waiting[0].size_bytes > self._options.max_request_bytes:
                break
            data = lane.send().stamped(self._producer)
            size_bytes += len(data)
            taken[lane.partition] = lane
            topic = topics.setdefault(
                lane.partition.topic, TopicProduceData(name=lane.partition.topic, partition_data=[])
            )
            topic.partition_data.append(PartitionProduceData(index=lane.partition.partition, records=data))
            link.lanes.rotate(-1)
            if not lane.waiting:
                link.lanes.remove(lane)
        if not taken:
            return False
        request = ProduceRequest(
            acks=_ACKS_ALL, timeout_ms=self._options.request_timeout_ms, topic_data=list(topics.values())
        )
        link.unanswered.append(taken)
        link.connection.send(request, link.version)
        return True

    def _receive(self, link: Link) -> None:
        answer = link.connection.receive(ProduceResponse)
        lanes = link.unanswered.popleft()
        error: KafkaError | None = None
        for topic in answer.responses:
            for row in topic.partition_responses:
                lane = lanes[TopicPartition(topic.name, row.index)]
                code = ErrorCode(row.error_code)
                if code in _SUCCESS:
                    lane.acknowledge(row.base_offset)
                    self._be_patient()
                elif error is None:
                    error = self._refusal(lane, code, row.error_message)
        if error is not None:
            raise error

    def _refusal(self, lane: Lane, code: ErrorCode, reason: str | None) -> KafkaError:
        first = lane.flying[0]
        if code is ErrorCode.MESSAGE_TOO_LARGE:
            if first.record_count == 1:
                raise RecordTooLargeError(lane.partition, first.size_bytes)
            lane.limit_bytes = first.size_bytes // 2
        return KafkaError(
            code, f"{lane.partition} does not take the batch with sequence {first.base_sequence}: {reason or code.name}"
        )

    # -- when it does not go well

    def _be_patient(self) -> None:
        self._deadline = time.monotonic() + self._options.delivery_timeout_s

    def _look(self) -> None:
        """See how far the log is, and leave out what it has."""
        left = {key: lane for key, lane in self._lanes.items() if not lane.is_done}
        self._leaders.learn({key.topic for key in left})
        end_offsets = self._leaders.end_offsets(left)
        for key, lane in left.items():
            sequence = self._next_sequence_in_log(lane, end_offsets[key])
            if sequence > lane.next_sequence:
                logger.info("%s has the records up to sequence %d already", key, sequence - 1)
                lane.skip_to(sequence)
                self._be_patient()

    def _next_sequence_in_log(self, lane: Lane, end_offset: int) -> int:
        """The sequence after the last that the log has of this producer; the lane's own if there is none."""
        start_offset = lane.scan_offset if lane.scan_offset <= end_offset else 0  # 0: the topic was made anew
        settings = FetchSettings(
            self._options.bootstrap,
            patience_s=self._options.delivery_timeout_s,
            request_timeout_s=self._options.request_timeout_ms / 1000,
            fail_on_data_loss=False,
        )
        sequence = lane.next_sequence
        with closing(PartitionFetcher(settings, lane.partition)) as fetcher:
            for fetched in fetcher.batches(start_offset, end_offset):
                mine = fetched.headers[fetched.headers["producer_id"] == self._producer.producer_id]
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
                    self._lanes[batch.target].add(opened[-1], batch)
            yield
        finally:
            for file in opened:
                os.close(file)
