"""The broker's tier: counts what is stored, partition by partition, by the headers of its batches.

Runs beside a broker, which knows nothing of it; never on the path of a produce request. While there is no audit topic
nobody wants to know, and it does nothing. Otherwise it reads, every few seconds, what the logs have grown by since the
last time, and appends a report per partition to the audit topic.

A report that begins at or before the start of an earlier one of the partition replaces it. So counting again is safe:
the reports are appended, are brought to disk, and only then is it written down how far they reach. A crash in between
counts the last stretch again from the same start. A log that has become shorter is counted again from the start of a
report that it still holds; a topic that was made anew is counted from 0.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Iterator, Sequence
from concurrent.futures import Executor
from typing import Final, Protocol
from uuid import UUID

from skylog.audit.batch_headers import count_batches
from skylog.audit.counts import WindowCounts, check_window
from skylog.audit.report import AUDIT_TOPIC, DEFAULT_WINDOW_MS, Report, Tier
from skylog.audit.stored_progress import Checkpoint, Progress, write_checkpoint
from skylog.clock import Clock
from skylog.errors import KafkaError
from skylog.model import TopicPartition
from skylog.records import InvalidBatchError, Record, build_batch
from skylog.storage import AppendResult, FileSlice, Identity, Log, LogDir

logger = logging.getLogger(__name__)

DEFAULT_DELAY_S: Final = 0.5
DEFAULT_INTERVAL_S: Final = 5.0
STOP_GRACE_S: Final = 5.0
_READ_BYTES: Final = 1024 * 1024
_REPORT_LOG_BYTES: Final = 256 * 1024 * 1024  # a report is of about so much of a log at most,
_REPORT_COUNTS: Final = 1000  # and of about so many windows
_BATCH_BYTES: Final = 256 * 1024


class AuditedPartition(Protocol):
    name: TopicPartition
    topic_id: UUID
    log: Log

    @property
    def high_watermark(self) -> int: ...

    def append_own(self, batch: memoryview, now_ms: int) -> AppendResult: ...


class AuditedPartitions(Protocol):
    def all(self) -> Sequence[AuditedPartition]: ...
    def of_topic(self, topic: str) -> Sequence[AuditedPartition]: ...


class Flusher(Protocol):
    def flushed(self, log: Log) -> Awaitable[None]: ...


class Checks(Protocol):
    def read(self, log: Log, offset: int, max_bytes: int) -> Awaitable[FileSlice | None]: ...


class AuditedBroker(Protocol):
    """What the tier needs of a broker that has been started."""

    @property
    def checks(self) -> Checks: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def executor(self) -> Executor: ...
    @property
    def flusher(self) -> Flusher: ...
    @property
    def identity(self) -> Identity: ...
    @property
    def log_dir(self) -> LogDir: ...
    @property
    def partitions(self) -> AuditedPartitions: ...


class StoredTier:
    """The counts of one broker. Lives on the broker's event loop; only reading and waiting for the disk happen off it.

        tier = StoredTier(broker)
        tier.start()        # after the broker
        await tier.stop()   # before the broker

    A round that fails is logged, counted in `failures`, and tried again at the next turn.
    """

    def __init__(
        self,
        broker: AuditedBroker,
        *,
        delay_s: float = DEFAULT_DELAY_S,
        interval_s: float = DEFAULT_INTERVAL_S,
        window_ms: int = DEFAULT_WINDOW_MS,
    ) -> None:
        """`delay_s` is how long after the start the first round comes."""
        self._broker = broker
        self._delay_s = delay_s
        self._interval_s = interval_s
        self._window_ms = check_window(window_ms)
        self._checkpoint = Checkpoint()
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._unreadable: set[TopicPartition] = set()
        self._is_saved = True
        self.failures = 0

    def start(self) -> None:
        self._checkpoint = Checkpoint.read(self._broker.log_dir.path)
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Report what is left, within a few seconds; the next start goes on from there."""
        self._stopping.set()
        if self._task is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._task, STOP_GRACE_S)

    async def _run(self) -> None:
        pause_s = self._delay_s
        while not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause_s)
            pause_s = self._interval_s
            try:
                await self.report()
            except Exception:
                self.failures += 1
                logger.exception("counting what is stored failed and is tried again in %.0f s", self._interval_s)

    async def report(self) -> None:
        """Count and report what has been stored up to now."""
        audit = next(iter(self._broker.partitions.of_topic(AUDIT_TOPIC)), None)
        if audit is None:
            return
        if self._checkpoint.audit_topic_id != audit.topic_id:
            self._checkpoint = Checkpoint(audit.topic_id)
        audited = [one for one in self._broker.partitions.all() if _is_audited(one.name)]
        self._forget_all_but({one.name for one in audited})
        waiting = [(one, one.high_watermark) for one in audited if self._has_changed(one)]
        while waiting or not self._is_saved:
            reports = []
            unfinished = []
            for one, high_watermark in waiting:
                report = await self._count(one, high_watermark)
                if report is not None:
                    reports.append((one, report))
                    unfinished.append((one, high_watermark))
            if reports:
                await self._store(audit, reports)
            if not self._is_saved:
                await self._save()
            waiting = unfinished

    def _has_changed(self, one: AuditedPartition) -> bool:
        progress = self._checkpoint.find(one.name, one.topic_id)
        return progress is None or progress.end_offset != one.high_watermark

    # -- counting

    async def _count(self, one: AuditedPartition, high_watermark: int) -> Report | None:
        """A report of the partition's next stretch; None where there is nothing to tell, or it cannot be read now."""
        try:
            report = await self._read(one, high_watermark)
        except (KafkaError, InvalidBatchError, OSError) as error:
            self.failures += 1
            if one.name not in self._unreadable:
                self._unreadable.add(one.name)
                logger.error("%s cannot be counted and is tried again every turn: %s", one.name, error)
            return None
        self._unreadable.discard(one.name)
        return report

    async def _read(self, one: AuditedPartition, high_watermark: int) -> Report | None:
        start_offset, is_shorter = self._next_start(one)
        offset = max(start_offset, one.log.log_start_offset)
        counts = WindowCounts(self._window_ms)
        loop = asyncio.get_running_loop()
        read_bytes = 0
        while offset < high_watermark and read_bytes < _REPORT_LOG_BYTES and len(counts) < _REPORT_COUNTS:
            part = await self._broker.checks.read(one.log, offset, _READ_BYTES)
            if part is None:
                break
            reached = await loop.run_in_executor(
                self._broker.executor, count_batches, part, counts, offset, high_watermark
            )
            if reached == offset:
                break
            offset = reached
            read_bytes += part.length
        if offset <= start_offset and not is_shorter:
            return None
        return Report(
            tier=Tier.STORED,
            source=f"broker-{self._broker.identity.node_id}",
            topic=one.name.topic,
            partition=one.name.partition,
            start_offset=start_offset,
            end_offset=offset,
            counts=counts.counts(),
            reported_at_ms=self._broker.clock.now_ms(),
        )

    def _next_start(self, one: AuditedPartition) -> tuple[int, bool]:
        """Where the partition's next report begins, and whether that is before the end of the last one."""
        progress = self._checkpoint.find(one.name, one.topic_id)
        if progress is None:
            return 0, False
        start_offset, log = progress.end_offset, one.log
        if log.log_end_offset < start_offset:
            boundary = progress.boundary_before(log.log_end_offset)
            logger.warning(
                "%s ends at offset %d, %d were counted; counting again from offset %d",
                one.name,
                log.log_end_offset,
                start_offset,
                boundary,
            )
            return boundary, True
        if log.log_start_offset > start_offset:
            logger.warning(
                "%s: offsets %d to %d were dropped before they were counted",
                one.name,
                start_offset,
                log.log_start_offset,
            )
        return start_offset, False

    # -- reporting

    async def _store(self, audit: AuditedPartition, reports: Sequence[tuple[AuditedPartition, Report]]) -> None:
        """Append the reports and bring them to disk. Raises KafkaError."""
        now_ms = self._broker.clock.now_ms()
        for values in _in_batches([report.encode() for _, report in reports]):
            batch = build_batch([Record(value=value, timestamp=now_ms) for value in values])
            audit.append_own(memoryview(batch), now_ms)
        await self._broker.flusher.flushed(audit.log)  # whatever the topic's flush policy: the checkpoint relies on it
        for one, report in reports:
            assert report.start_offset is not None
            assert report.end_offset is not None
            progress = self._checkpoint.find(one.name, one.topic_id)
            if progress is None:
                progress = self._checkpoint.partitions[one.name] = Progress(one.topic_id, 0, [])
            progress.reported(report.start_offset, report.end_offset)
        self._is_saved = False

    async def _save(self) -> None:
        """Write down how far the reports reach. Raises OSError."""
        loop = asyncio.get_running_loop()
        content = self._checkpoint.encode()
        await loop.run_in_executor(self._broker.executor, write_checkpoint, self._broker.log_dir.path, content)
        self._is_saved = True

    def _forget_all_but(self, names: set[TopicPartition]) -> None:
        for name in self._checkpoint.partitions.keys() - names:
            del self._checkpoint.partitions[name]
        self._unreadable &= names


def _is_audited(name: TopicPartition) -> bool:
    return not name.topic.startswith(("__", "_skylog_"))


def _in_batches(values: Sequence[bytes]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    size_bytes = 0
    for value in values:
        if batch and size_bytes + len(value) > _BATCH_BYTES:
            yield batch
            batch, size_bytes = [], 0
        batch.append(value)
        size_bytes += len(value)
    if batch:
        yield batch
