"""The broker's tier: counts stored messages by partition, from batch headers.

Runs beside a broker, which does not depend on it; never on the path of a produce request. It starts when the audit
topic exists. Every few seconds it reads the new batches of each log that this broker leads, up to the last stable
offset, and appends a report per partition to the audit topic, through the leader of that. Messages of aborted
transactions do not count, since no consumer gets them.

**Each offset is counted once, over crashes and changes of the leader.** The truth is the audit topic itself: one log,
with one order, that every broker follows (`stored_reports`). A report has a range of offsets, and replaces all earlier
ones of its partition that start at its start or later. The reports in force of a partition are a chain of ranges, and
the leader continues where the chain ends. It knows that from the topic, not from memory, so it does not matter who
added the last range, or whether the response to an append was lost:

* The leader is killed. The new one has read the same topic, and continues at the end of the same chain. Everything
  that was counted is committed, so the new leader has it.
* The leader is killed between counting and reporting, or its report is lost. The chain ends earlier, and the new leader
  counts those messages.
* A report of the former leader arrives late, after reports of the new one. It starts at an end that the chain once had,
  so it replaces the new leader's reports from there on. The chain is then shorter, without gap or overlap. The new
  leader sees that and counts the rest again.
* If the late report starts inside a range that a newer one covers, or after the end of the chain, the chain is broken:
  some messages are counted twice, or not at all. The leader sees that too, and replaces everything from the last sound
  place on (`stored_progress`).
* A report is stored twice. It has an id, and counts once.

A log that has become shorter, as after a power failure, is counted again from the start of a report that it still
holds. A topic that was created again, which the topic id in a report shows, is counted from 0.
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
from skylog.audit.stored_reports import REPORTS, PartitionAccess, StoredReports
from skylog.clock import Clock
from skylog.cluster import ClusterImage
from skylog.errors import LEADER_AWAY, KafkaError
from skylog.model import TopicPartition
from skylog.outage import Outage
from skylog.records import InvalidBatchError, Record, build_batch
from skylog.storage import FileSlice, Identity, Log, LogDir

logger = logging.getLogger(__name__)

DEFAULT_DELAY_S: Final = 0.5
DEFAULT_INTERVAL_S: Final = 5.0
STOP_GRACE_S: Final = 5.0
_READ_BYTES: Final = 1024 * 1024
_REPORT_LOG_BYTES: Final = 256 * 1024 * 1024  # a report covers at most about this much of a log
_REPORT_COUNTS: Final = 1000  # and about this many windows
_BATCH_BYTES: Final = 256 * 1024


class AuditedPartition(Protocol):
    name: TopicPartition
    topic_id: UUID
    log: Log
    is_leader: bool

    @property
    def last_stable_offset(self) -> int: ...


class AuditedReplicas(Protocol):
    def all(self) -> Sequence[AuditedPartition]: ...


class AuditedMetadata(Protocol):
    @property
    def image(self) -> ClusterImage: ...


class LogReader(Protocol):
    def read(self, log: Log, offset: int, max_bytes: int) -> Awaitable[FileSlice | None]: ...


class AuditedBroker(Protocol):
    """The parts of a started broker that the tier uses."""

    @property
    def checks(self) -> LogReader: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def executor(self) -> Executor: ...
    @property
    def identity(self) -> Identity: ...
    @property
    def leader_client(self) -> PartitionAccess: ...
    @property
    def log_dir(self) -> LogDir: ...
    @property
    def metadata(self) -> AuditedMetadata: ...
    @property
    def replicas(self) -> AuditedReplicas: ...


class StoredTier:
    """The counts of one broker. Runs on the broker's event loop; reads and disk writes run in threads.

        tier = StoredTier(broker)
        tier.start()        # after the broker
        await tier.stop()   # before the broker

    A failed round is logged, counted in `failures`, and retried after the interval. It is not a failure if the audit
    topic has no leader for a while.
    """

    def __init__(
        self,
        broker: AuditedBroker,
        *,
        delay_s: float = DEFAULT_DELAY_S,
        interval_s: float = DEFAULT_INTERVAL_S,
        window_ms: int = DEFAULT_WINDOW_MS,
    ) -> None:
        """`delay_s` is the time from the start to the first round."""
        self._broker = broker
        self._delay_s = delay_s
        self._interval_s = interval_s
        self._window_ms = check_window(window_ms)
        self._reports = StoredReports(broker.leader_client, broker.executor, broker.log_dir.path)
        self._outage = Outage(broker.clock)
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._unreadable: set[TopicPartition] = set()
        self.failures = 0

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Report the rest, within a few seconds. The next start continues from there."""
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
                self._outage.ended()
            except Exception as error:
                self._note(error)

    def _note(self, error: Exception) -> None:
        if not isinstance(error, KafkaError) or error.code not in LEADER_AWAY:
            self.failures += 1
            is_expected = isinstance(error, KafkaError | InvalidBatchError | OSError)  # full disk, damaged batch
            message = "counting stored messages failed, next attempt in %g s: %s"
            logger.error(message, self._interval_s, error, exc_info=None if is_expected else error)
        elif self._outage.failed():
            self.failures += 1
            logger.warning("stored messages cannot be reported, next attempt in %g s: %s", self._interval_s, error)

    async def report(self) -> None:
        """Count and report all messages stored so far in the partitions that this broker leads."""
        topics = self._broker.metadata.image.topics
        audit = topics.get(AUDIT_TOPIC)
        if audit is None:
            return
        await self._reports.catch_up(audit)
        led = [one for one in self._broker.replicas.all() if one.is_leader and _is_audited(one.name)]
        self._unreadable &= {one.name for one in led}
        waiting = [(one, one.last_stable_offset) for one in led if self._has_changed(one)]
        while waiting:
            counted = [(each, await self._count(*each)) for each in waiting]
            reports = [report for _, report in counted if report is not None]
            if not reports:
                break
            before = self._reports.offset
            await self._append(reports)
            await self._reports.catch_up(audit)
            if self._reports.offset == before:
                break  # the leader does not show the reports yet
            waiting = [each for each, report in counted if report is not None]
        self._reports.forget_deleted(topics)
        await self._reports.save()

    def _has_changed(self, one: AuditedPartition) -> bool:
        start_offset, must_replace = self._next_start(one)
        return must_replace or start_offset != one.last_stable_offset

    def _next_start(self, one: AuditedPartition) -> tuple[int, bool]:
        """Return the start of the partition's next report, and whether that must replace others."""
        progress = self._reports.progress(one.name)
        return (0, False) if progress is None else progress.next_start(str(one.topic_id), one.log.log_end_offset)

    # -- counting

    async def _count(self, one: AuditedPartition, end_offset: int) -> Report | None:
        """Return a report of the partition's next range; None if there is none, or if it cannot be read now."""
        try:
            report = await self._read(one, end_offset)
        except (KafkaError, InvalidBatchError, OSError) as error:
            self.failures += 1
            if one.name not in self._unreadable:
                self._unreadable.add(one.name)
                logger.error("%s cannot be counted, retrying in every round: %s", one.name, error)
            return None
        self._unreadable.discard(one.name)
        return report

    async def _read(self, one: AuditedPartition, end_offset: int) -> Report | None:
        start_offset, must_replace = self._next_start(one)
        self._explain(one, start_offset)
        offset = max(start_offset, one.log.log_start_offset)
        counts = WindowCounts(self._window_ms)
        loop = asyncio.get_running_loop()
        read_bytes = 0
        while offset < end_offset and read_bytes < _REPORT_LOG_BYTES and len(counts) < _REPORT_COUNTS:
            part = await self._broker.checks.read(one.log, offset, _READ_BYTES)
            if part is None:
                break
            reached = await loop.run_in_executor(
                self._broker.executor, count_batches, part, counts, offset, end_offset, one.log.aborted_in(part, offset)
            )
            if reached == offset:
                break
            offset = reached
            read_bytes += part.length
        if not one.is_leader or (offset <= start_offset and not must_replace):
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
            topic_id=str(one.topic_id),
        )

    def _explain(self, one: AuditedPartition, start_offset: int) -> None:
        """Log what is unusual about the start of a report."""
        progress, log = self._reports.progress(one.name), one.log
        is_same = progress is not None and progress.topic_id == str(one.topic_id)
        if progress is not None and is_same and log.log_end_offset < progress.end_offset:
            logger.warning(
                "%s ends at offset %d but was counted up to %d; counting again from offset %d",
                one.name,
                log.log_end_offset,
                progress.end_offset,
                start_offset,
            )
        if 0 < start_offset < log.log_start_offset:
            logger.warning(
                "%s: offsets %d to %d were deleted before they were counted",
                one.name,
                start_offset,
                log.log_start_offset,
            )

    # -- reporting

    async def _append(self, reports: Sequence[Report]) -> None:
        """Append reports to the audit topic. Raises KafkaError."""
        now_ms = self._broker.clock.now_ms()
        for values in _in_batches([report.encode() for report in reports]):
            batch = build_batch([Record(value=value, timestamp=now_ms) for value in values])
            await self._broker.leader_client.append(REPORTS, batch)


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
