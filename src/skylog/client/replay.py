"""Sends a range of a topic's messages again, into another topic or another cluster."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError as LibraryError
from confluent_kafka import KafkaException

from skylog.client.admin import Admin
from skylog.client.connection import Connection
from skylog.client.message import UNREADABLE_HEADERS, Message
from skylog.client.partition_reader import PartitionReader
from skylog.client.replay_plan import ReplayPlan
from skylog.errors import SkylogError

# Settling waits for every acknowledgement that is under way: on a long line it is done less often.
SETTLE_SHARE: Final = 0.05
SETTLE_OFTEN_S: Final = 0.25
SETTLE_SELDOM_S: Final = 2.0
NAP_S: Final = 0.1
BURST_S: Final = 0.05
ANY_PARTITION: Final = -1

_SETTINGS: Final[dict[str, Any]] = {
    "acks": "all",
    "enable.idempotence": True,  # keeps the order, also where something is sent again
    "partitioner": "murmur2_random",  # a key goes to the partition that Java's clients choose
    "linger.ms": 20,
    "message.max.bytes": 100_000_000,
    "queue.buffering.max.kbytes": 64 * 1024,
    "delivery.report.only.error": True,
}


@dataclass(frozen=True, slots=True)
class ReplayProgress:
    """How far a replay is: `messages` are stored in the target, and all before `next_offsets`, by partition."""

    messages: int
    next_offsets: Mapping[int, int]
    elapsed_s: float


class Replay:
    """A replay that is run once. Keys, values, headers and times stay; each partition's order stays.

        replay = Replay(plan, Connection(bootstrap), Connection(bootstrap))
        for progress in replay.run():
            print(progress.messages)

    What lies before `progress.next_offsets` is stored, so a replay that was stopped or has failed is continued from
    there. After a failure, messages from there on may be stored as well: they will then be there twice. A message
    without a time, or with that of 1970-01-01T00:00:00Z, gets the present one.
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
        """`rate_limit` is in messages per second, over all partitions."""
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
        """As of the last time that everything sent was known to be stored."""
        return self._progress

    @property
    def is_complete(self) -> bool:
        ends = {key.partition: offsets.end_offset for key, offsets in self.plan.ranges.items()}
        return self._progress.next_offsets == ends

    def stop(self) -> None:
        """Let `run` end as soon as what it has sent is stored. May be called by a signal handler or another thread."""
        self._stopping = True

    def run(self) -> Iterator[ReplayProgress]:
        """Create the target if it is not there and send; gives the progress every few moments.

        Raises SkylogError when something cannot be read or stored.
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
        """The same messages, in parts, each when its time has come. Empty ones too: they are the moments to stop."""
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
        produce, target, keeps = self._producer.produce, self.plan.target, self.plan.keeps_partitions
        next_offsets = self._next_offsets
        for message in messages:
            partition = message.partition
            where = partition if keeps else ANY_PARTITION
            when_ms = max(message.timestamp_ms, 0)
            headers = message.headers
            if headers == UNREADABLE_HEADERS:
                raise SkylogError(
                    f"{message.topic_partition} at offset {message.offset} has a header whose name is not UTF-8, which "
                    f"cannot be sent again; replay what is before it and from offset {message.offset + 1} on"
                )
            while True:
                try:
                    produce(target, message.value, message.key, where, timestamp=when_ms, headers=list(headers) or None)
                    break
                except BufferError:
                    self._producer.poll(NAP_S)
                    self._check()
                except KafkaException as error:
                    raise self._explain(error.args[0], partition) from error
            next_offsets[partition] = message.offset + 1
        self._sent += len(messages)
        self._producer.poll(0)
        self._check()

    def _settle(self) -> ReplayProgress:
        """Wait until everything that was sent is stored."""
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
            self._failure = self._explain(error, message.partition())

    def _explain(self, error: LibraryError, partition: int) -> SkylogError:
        return self._target.error(error, f"cannot store in {self.plan.target}-{partition}")
