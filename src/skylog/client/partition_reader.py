"""Reads partitions from given offsets, without a consumer group and without commits."""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError as LibraryError
from confluent_kafka import Message as LibraryMessage
from confluent_kafka import TopicPartition as LibraryPartition

from skylog.client.connection import Connection
from skylog.client.message import Message
from skylog.client.topic import OffsetRange
from skylog.model import TopicPartition

POLL_S: Final = 0.25
BATCH_COUNT: Final = 1000
PATIENCE_S: Final = 5.0

_SETTINGS: Final[dict[str, Any]] = {
    "group.id": "skylog-reader",  # required by the library, never used
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "allow.auto.create.topics": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "auto.offset.reset": "earliest",
    "fetch.wait.max.ms": 250,
    "fetch.queue.backoff.ms": 10,  # with the default, a reader that was slow for a moment waits for a second
}


class PartitionReader:
    """Reads messages of some partitions, each in order. `at_end` are the partitions whose end was reached.

    If the log no longer holds the next offset, reading continues with the oldest message; with `must_hold_starts`, it
    raises SkylogError instead.
    """

    def __init__(
        self,
        connection: Connection,
        starts: Mapping[TopicPartition, int],
        *,
        must_hold_starts: bool = False,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """`settings` are librdkafka settings, such as how much to prefetch."""
        self.at_end: set[TopicPartition] = set()
        self._lost_since: float | None = None
        self._connection = connection
        reset = {"auto.offset.reset": "error"} if must_hold_starts else {}
        self._consumer = connection.consumer({**_SETTINGS, **reset, **(settings or {})})
        self.partitions = set(starts)
        self._consumer.assign([LibraryPartition(*partition, offset) for partition, offset in starts.items()])

    def add(self, starts: Mapping[TopicPartition, int]) -> None:
        """Also read these partitions from now on."""
        if starts:
            self.partitions.update(starts)
            self._consumer.incremental_assign([LibraryPartition(*key, offset) for key, offset in starts.items()])

    def close(self) -> None:
        self._consumer.close()

    @property
    def lost_s(self) -> float:
        """Seconds without a reachable broker. A short time means nothing: a host name may have several addresses."""
        return 0.0 if self._lost_since is None else time.monotonic() - self._lost_since

    def read(self) -> list[Message]:
        """Return available messages, waiting briefly if there are none. Raises SkylogError for permanent errors."""
        first = self._consumer.poll(POLL_S)
        if self._connection.down_reason is None:
            self._lost_since = None
        elif self._lost_since is None:
            self._lost_since = time.monotonic()
        if first is None:
            return []
        messages = []
        for raw in (first, *self._consumer.consume(BATCH_COUNT, timeout=0)):
            error = raw.error()
            if error is None:
                message = Message(raw)
                messages.append(message)
                if self.at_end:
                    self.at_end.discard(message.topic_partition)  # in order: its end may come right after it, once
            else:
                self._take_event(raw, error)
        if messages:
            self._connection.down_reason = None
        return messages

    def read_to_end(self, partitions: Mapping[TopicPartition, OffsetRange]) -> Iterator[list[Message]]:
        """Yield all messages before the end offset of each partition's range.

        Raises BrokerUnreachableError if the broker stays unreachable for some seconds.
        """
        unfinished = {key for key, offsets in partitions.items() if len(offsets)}
        paused: set[TopicPartition] = set()
        ends: dict[tuple[str, int], int] = {key: offsets.end_offset for key, offsets in partitions.items()}
        while unfinished:
            messages = self.read()
            if not messages and self.lost_s > PATIENCE_S:
                raise self._connection.unreachable()
            wanted = []
            for message in messages:
                offset, end_offset = message.offset, ends[message.topic, message.partition]
                if offset < end_offset:
                    wanted.append(message)
                if offset >= end_offset - 1:
                    unfinished.discard(message.topic_partition)
            unfinished -= self.at_end
            if finished := partitions.keys() - unfinished - paused:
                self._consumer.pause([LibraryPartition(*key) for key in finished])
                paused |= finished
            yield wanted

    def _take_event(self, received: LibraryMessage, error: LibraryError) -> None:
        key = TopicPartition(received.topic() or "", received.partition() or 0)
        if error.code() == LibraryError._PARTITION_EOF:
            self._connection.down_reason = None  # like a message, it is a response of a broker
            self.at_end.add(key)
        elif key.topic or error.fatal():  # errors without a partition concern the group, which is not used
            raise self._connection.error(error, f"{key} at offset {received.offset()}")


def read_last(connection: Connection, ranges: Mapping[TopicPartition, OffsetRange], count: int) -> list[Message]:
    """Return the last `count` messages over all partitions, merged by time, each partition in order.

    An offset may hold no message (compaction, transactions), so if too few are found, it searches further back.
    """
    reach = count
    while True:
        windows = {
            key: OffsetRange(max(offsets.start_offset, offsets.end_offset - reach), offsets.end_offset)
            for key, offsets in ranges.items()
        }
        found = _read_windows(connection, windows, count)
        if all(len(found[key]) >= count or windows[key] == ranges[key] for key in ranges):
            merged = heapq.merge(*found.values(), key=lambda message: message.timestamp_ms)
            return list(deque(merged, maxlen=count))
        reach *= 4


def _read_windows(
    connection: Connection, windows: Mapping[TopicPartition, OffsetRange], count: int
) -> dict[TopicPartition, deque[Message]]:
    found: dict[TopicPartition, deque[Message]] = {key: deque(maxlen=count) for key in windows}
    reader = PartitionReader(connection, {key: window.start_offset for key, window in windows.items()})
    try:
        for messages in reader.read_to_end(windows):
            for message in messages:
                found[message.topic_partition].append(message)
    finally:
        reader.close()
    return found
