"""Copies a range of a topic's messages into another topic or another cluster."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError as LibraryError
from confluent_kafka import KafkaException

from skylog.client.admin import Admin
from skylog.client.connection import Connection
from skylog.client.dead_letters import original_of
from skylog.client.message import UNREADABLE_HEADERS, Headers, Message
from skylog.client.partition_reader import PartitionReader
from skylog.client.replay_plan import ReplayPlan
from skylog.errors import SkylogError

# Settling waits for all outstanding acknowledgements: with a slow connection it is done less often.
SETTLE_SHARE: Final = 0.05
SETTLE_OFTEN_S: Final = 0.25
SETTLE_SELDOM_S: Final = 2.0
NAP_S: Final = 0.1
BURST_S: Final = 0.05
ANY_PARTITION: Final = -1

_SETTINGS: Final[dict[str, Any]] = {
    "acks": "all",
    "enable.idempotence": True,  # keeps the order across retries
    "partitioner": "murmur2_random",  # the partition that the Java clients choose for a key
    "linger.ms": 20,
    "message.max.bytes": 100_000_000,
    "queue.buffering.max.kbytes": 64 * 1024,
    "delivery.report.only.error": True,
}


@dataclass(frozen=True, slots=True)
class ReplayProgress:
    """The progress of a replay: `messages` are stored, which is all before `next_offsets` of each partition."""

    messages: int
    next_offsets: Mapping[int, int]
    elapsed_s: float


class Replay:
    """Copies messages once, with their keys, values, headers and timestamps, in the order of each partition.

        replay = Replay(plan, Connection(bootstrap), Connection(bootstrap))
        for progress in replay.run():
            print(progress.messages)

    All messages before `progress.next_offsets` are stored, so you can continue a stopped or failed replay there. After
    a failure, some messages from there on may be stored too, and are then stored twice. A message without a timestamp,
    or with 1970-01-01T00:00:00Z, gets the current time.
    """

    def __init__(
        self,
        plan: ReplayPlan,
        source: Connection,
        target: Connection,
        *,
        rate_limit: int | None = None,
        codec: str = "none",
        delivery_timeout_s: float = 30.0,
    ) -> None:
        """`rate_limit` is in messages per second, for all partitions together."""
        self.plan = plan
        self._source = source
        self._target = target
        self._rate_limit = rate_limit
        self._stopping = False
        self._failure: SkylogError | None = None
        self._sent = 0
        self._next_offsets = {key.partition: offsets.start_offset for key, offsets in plan.ranges.items()}
        self._started = time.monotonic()
        self._progress = ReplayProgress(0, dict(self._next_offsets), 0.0)
        self._producer = target.producer(
            {
                **_SETTINGS,
                "compression.type": codec,
                "message.timeout.ms": int(delivery_timeout_s * 1000),
                "on_delivery": self._on_failure,
            }
        )

    @property
    def progress(self) -> ReplayProgress:
        """The progress when all sent messages were last known to be stored."""
        return self._progress

    @property
    def is_complete(self) -> bool:
        ends = {key.partition: offsets.end_offset for key, offsets in self.plan.ranges.items()}
        return self._progress.next_offsets == ends

    def stop(self) -> None:
        """End `run` as soon as its sent messages are stored. Callable from a signal handler or another thread."""
        self._stopping = True

    def run(self) -> Iterator[ReplayProgress]:
        """Create the target if it does not exist, and copy. Yields the progress every few moments.

        Raises SkylogError if a message cannot be read or stored.
        """
        if self.plan.new_partitions is not None:
            Admin(self._target).create_topic(self.plan.target, self.plan.new_partitions)
        ranges = {key: offsets for key, offsets in self.plan.ranges.items() if len(offsets)}
        starts = {key: offsets.start_offset for key, offsets in ranges.items()}
        reader = PartitionReader(self._source, starts, must_hold_starts=True)
        settle_at = self._started = time.monotonic()
        try:
            for messages in self._paced(reader.read_to_end(ranges)):
                if self._stopping:
                    break
                self._send(messages)
                now = time.monotonic()
                if now >= settle_at:
                    yield self._settle()
                    took_s = time.monotonic() - now
                    settle_at = now + min(max(SETTLE_OFTEN_S, took_s / SETTLE_SHARE), SETTLE_SELDOM_S)
            else:
                # The last offsets of a range may hold no message.
                self._next_offsets = {key.partition: offsets.end_offset for key, offsets in self.plan.ranges.items()}
            yield self._settle()
        finally:
            self._producer.purge(blocking=False)
            reader.close()

    def _paced(self, batches: Iterable[Sequence[Message]]) -> Iterator[Sequence[Message]]:
        """Yield the messages in parts, within the rate limit. Also yields empty lists, at which `run` can stop."""
        if self._rate_limit is None:
            yield from batches
            return
        step = max(int(self._rate_limit * BURST_S), 1)
        due = 0.0
        for messages in batches:
            for first in range(0, len(messages) or 1, step):
                while (delay_s := due - time.monotonic()) > 0 and not self._stopping:
                    time.sleep(min(delay_s, NAP_S))
                part = messages[first : first + step]
                due = max(due, time.monotonic() - BURST_S) + len(part) / self._rate_limit
                yield part

    def _send(self, messages: Sequence[Message]) -> None:
        next_offsets = self._next_offsets
        for message in messages:
            self._produce(message)
            next_offsets[message.partition] = message.offset + 1
        self._sent += len(messages)
        self._producer.poll(0)
        self._check()

    def _produce(self, message: Message) -> None:
        topic, partition, when_ms, headers = self._destination(message)
        if headers == UNREADABLE_HEADERS:
            raise SkylogError(
                f"{message.topic_partition} at offset {message.offset} has a header whose name is not UTF-8, which "
                f"cannot be sent; replay the messages before it and those from offset {message.offset + 1} on"
            )
        where = partition if self.plan.keeps_partitions else ANY_PARTITION
        content = message.value, message.key
        while True:
            try:
                self._producer.produce(topic, *content, where, timestamp=max(when_ms, 0), headers=list(headers) or None)
                return
            except BufferError:
                self._producer.poll(NAP_S)
                self._check()
            except KafkaException as error:
                raise self._explain(error.args[0], topic, partition) from error

    def _destination(self, message: Message) -> tuple[str, int, int, Headers]:
        """Return the topic, partition, timestamp and headers to send a message with."""
        if not self.plan.is_back:
            return self.plan.target, message.partition, message.timestamp_ms, message.headers
        topic, partition, _, timestamp_ms, headers = original_of(message)
        return topic, partition, timestamp_ms, headers

    def _settle(self) -> ReplayProgress:
        """Wait until all sent messages are stored."""
        while self._producer.flush(NAP_S):
            self._check()
        self._check()
        self._progress = ReplayProgress(self._sent, dict(self._next_offsets), time.monotonic() - self._started)
        return self._progress

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _on_failure(self, error: LibraryError, message: Any) -> None:
        if self._failure is None:
            self._failure = self._explain(error, message.topic(), message.partition())

    def _explain(self, error: LibraryError, topic: str, partition: int | None) -> SkylogError:
        where = f"topic {topic}" if partition is None or partition < 0 else f"{topic}-{partition}"
        return self._target.error(error, f"cannot store in {where}")
