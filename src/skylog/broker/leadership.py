"""One leadership of this broker over a partition of a state topic: appends to its log, and replays it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from skylog.broker.time_slice import TimeSlice
from skylog.errors import ErrorCode, KafkaError
from skylog.limited_logger import LimitedLogger
from skylog.model import NO_PRODUCER_ID
from skylog.records import Marker, Record, build_batch, check_batch, read_marker, read_records
from skylog.storage import FileSlice

if TYPE_CHECKING:
    from skylog.broker.broker import Broker
    from skylog.broker.partition import Partition

limited_logger = LimitedLogger(logging.getLogger(__name__))

KeyValue = tuple[bytes, bytes | None]
ProducerIdAndEpoch = tuple[int, int]
Apply = Callable[[bytes, bytes | None, int], None]
ApplyMarker = Callable[[int, bool], None]
_LOAD_BYTES: Final = 4 * 1024 * 1024


class Leadership:
    """One leadership. It begins when it is created; `state_topic` sets `is_served`, and `is_over` at its end.

    When it is over it appends no more, even if this broker leads the partition again.
    """

    __slots__ = ("_broker", "end_offset", "is_over", "is_served", "partition")

    def __init__(self, partition: Partition, broker: Broker) -> None:
        self.partition = partition
        self.end_offset = partition.log.log_end_offset
        self.is_served = self.is_over = False
        self._broker = broker

    @property
    def has_records(self) -> bool:
        """Whether there was anything to replay when the leadership began."""
        return self.partition.log.log_start_offset < self.end_offset

    def append(
        self, records: Sequence[KeyValue], producer: ProducerIdAndEpoch | None = None
    ) -> asyncio.Future[None] | None:
        """Append records, as part of the transaction of `producer` if one is given.

        Return None if they are committed, or a future. Both raise KafkaError.
        """
        if self.is_over:
            raise not_coordinator()
        now_ms = self._broker.clock.now_ms()
        rows = [Record(value=value, key=key, timestamp=now_ms) for key, value in records]
        if producer is None:
            batch = build_batch(rows)
        else:
            batch = build_batch(rows, producer_id=producer[0], producer_epoch=producer[1], transactional=True)
        return self._broker.commits.append_own(self.partition, memoryview(batch), now_ms)

    async def replay(self, apply: Apply, apply_marker: ApplyMarker) -> None:
        """Call `apply` with the records that the log had when the leadership began, `apply_marker` with the markers.

        Positions are found on the event loop; reading and parsing run in a thread.
        """
        loop = asyncio.get_running_loop()
        log = self.partition.log
        offset = log.log_start_offset
        time_slice = TimeSlice()
        while offset < self.end_offset:
            found = await self._broker.checks.read(log, offset, _LOAD_BYTES)
            if found is None:
                break
            offset, batches = await loop.run_in_executor(self._broker.executor, _parse, found)
            for producer_id, content in batches:
                if isinstance(content, Marker):
                    apply_marker(producer_id, content.commits)
                    continue
                for record in content:
                    await time_slice.yield_if_over()
                    if record.key is not None:
                        apply(record.key, record.value, producer_id)

    async def replicated(self) -> None:
        """Wait until everything that the log had when the leadership began is committed, however long that takes."""
        partition = self.partition
        while partition.high_watermark < self.end_offset and not self.is_over:
            if not partition.has_enough_replicas:
                limited_logger.warning("%s cannot be served yet: too few replicas are in sync", partition.name)
            settled = asyncio.Event()
            partition.when_replicated(self.end_offset, partial(_set, settled))
            await settled.wait()  # an error ends only this wait: more replicas may join


def _set(event: asyncio.Event, _: KafkaError | None) -> None:
    event.set()


Parsed = tuple[int, list[Record] | Marker]
"""The producer of a batch of a transaction, else NO_PRODUCER_ID; and its records, or its marker."""


def _parse(part: FileSlice) -> tuple[int, list[Parsed]]:
    """Return the offset after a range of a log, and its batches. Raises InvalidBatchError if one cannot be read."""
    data = memoryview(part.read())
    position, offset = 0, -1
    batches: list[Parsed] = []
    while position < len(data) or offset < 0:
        header = check_batch(data, position)
        batch = data[position : position + header.size_bytes]
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
        if not header.is_control:
            batches.append((producer_id, list(read_records(batch))))
        elif (marker := read_marker(batch)) is not None:
            batches.append((producer_id, marker))
        position += header.size_bytes
        offset = header.end_offset
    return offset, batches


def not_coordinator() -> KafkaError:
    return KafkaError(ErrorCode.NOT_COORDINATOR, "this broker is not the coordinator; send FindCoordinator again")
