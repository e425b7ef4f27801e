"""Follows the brokers' reports in the audit topic, to know how far every partition is counted.

The topic is read through the leader of its partition 0, which has all reports of brokers, in one order for everybody.
A checkpoint file says how far it was read before a restart. Whenever the partition has another leader epoch, its leader
is asked whether its log continues the one that was read (KIP-320). If not, committed reports were lost, as in a power
failure, and everything is read again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from skylog.audit.ledger import check_report
from skylog.audit.report import AUDIT_TOPIC, Report, ReportError, Tier
from skylog.audit.stored_checkpoint import StoredCheckpoint, write_checkpoint
from skylog.audit.stored_progress import StoredProgress
from skylog.cluster import TopicImage
from skylog.model import NO_EPOCH, TopicPartition
from skylog.records import InvalidBatchError, iterate_batches, read_records
from skylog.records.batch import CONTROL

logger = logging.getLogger(__name__)

REPORTS: Final = TopicPartition(AUDIT_TOPIC, 0)
_READ_BYTES: Final = 1024 * 1024
_STORED: Final = b'"stored"'


class CommittedRead(Protocol):
    @property
    def records(self) -> bytes: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def is_out_of_range(self) -> bool: ...


class PartitionAccess(Protocol):
    """Appends to and reads from a partition through its leader."""

    def append(self, name: TopicPartition, batch: bytearray) -> Awaitable[None]: ...
    def read(self, name: TopicPartition, offset: int, max_bytes: int) -> Awaitable[CommittedRead]: ...
    def holds(self, name: TopicPartition, offset: int, leader_epoch: int) -> Awaitable[bool]: ...


class ReportedRange(NamedTuple):
    """What a report of a broker says about the progress of a partition."""

    name: TopicPartition
    start_offset: int
    end_offset: int
    topic_id: str | None


class _ParsedReports(NamedTuple):
    ranges: list[ReportedRange]
    end_offset: int
    last_epoch: int


class StoredReports:
    """The progress of every partition, according to the audit topic. Use it on the broker's event loop."""

    def __init__(self, access: PartitionAccess, executor: Executor, directory: Path) -> None:
        self._access = access
        self._executor = executor
        self._directory = directory
        self._read = StoredCheckpoint.read(self._directory)
        self._leader_epoch = NO_EPOCH
        self._is_saved = True
        self._unknown: set[TopicPartition] = set()

    @property
    def offset(self) -> int:
        """The offset up to which the audit topic was read."""
        return self._read.offset

    def progress(self, name: TopicPartition) -> StoredProgress | None:
        """Return how far a partition is counted; None if no report is known."""
        return self._read.partitions.get(name)

    async def catch_up(self, audit: TopicImage) -> None:
        """Read the audit topic, given as its image, up to its high watermark. Raises KafkaError, InvalidBatchError."""
        if self._read.audit_topic_id != audit.topic_id:
            self._begin_again(audit.topic_id)
        leader_epoch = audit.partitions[REPORTS.partition].leader_epoch
        if leader_epoch != self._leader_epoch:
            await self._verify()
            self._leader_epoch = leader_epoch
        while True:
            found = await self._access.read(REPORTS, self.offset, _READ_BYTES)
            if found.is_out_of_range:
                self._move_into_range(found)
            elif not found.records:
                return
            else:
                await self._add(found.records)

    async def _verify(self) -> None:
        """Begin again unless the audit topic continues what was read."""
        if self.offset and not await self._access.holds(REPORTS, self.offset, self._read.last_epoch):
            logger.warning("the audit topic has lost reports that were read; reading it again from its start")
            self._begin_again(self._read.audit_topic_id)

    def _move_into_range(self, found: CommittedRead) -> None:
        """Continue where the topic begins: retention has deleted what was before, or it ends before."""
        if self.offset > found.log_start_offset:
            self._begin_again(self._read.audit_topic_id)
        self._read.offset = found.log_start_offset

    def _begin_again(self, audit_topic_id: UUID | None) -> None:
        self._read = StoredCheckpoint(audit_topic_id)

    async def _add(self, records: bytes) -> None:
        loop = asyncio.get_running_loop()
        parsed = await loop.run_in_executor(self._executor, _parse, records, self.offset)
        partitions = self._read.partitions
        for name, start_offset, end_offset, topic_id in parsed.ranges:
            progress = partitions.get(name)
            if progress is None:
                partitions[name] = StoredProgress.first(start_offset, end_offset, topic_id)
            else:
                progress.add(start_offset, end_offset, topic_id)
        self._read.offset, self._read.last_epoch = parsed.end_offset, parsed.last_epoch
        self._is_saved = False

    # -- the checkpoint

    def forget_deleted(self, topics: Mapping[str, object]) -> None:
        """Forget partitions of topics that did not exist in the last call either.

        A topic may be in a report before it is in the image.
        """
        unknown = {name for name in self._read.partitions if name.topic not in topics}
        for name in unknown & self._unknown:
            del self._read.partitions[name]
        self._unknown = unknown

    async def save(self) -> None:
        """Save how far the audit topic was read. Raises OSError."""
        if not self._is_saved:
            content = self._read.encode()
            await asyncio.get_running_loop().run_in_executor(self._executor, write_checkpoint, self._directory, content)
            self._is_saved = True


def _parse(data: bytes, from_offset: int) -> _ParsedReports:
    """Return the ranges in the reports of brokers. Runs in a thread. Raises InvalidBatchError."""
    ranges = []
    end_offset = last_epoch = NO_EPOCH
    for position, header in iterate_batches(data):
        end_offset, last_epoch = header.end_offset, header.partition_leader_epoch
        if header.attributes & CONTROL:
            continue
        for record in read_records(data[position : position + header.size_bytes]):
            if record.offset >= from_offset and record.value is not None and _STORED in record.value:
                ranges += _range(record.value)
    if end_offset <= from_offset:
        raise InvalidBatchError(f"{REPORTS} has no batch at offset {from_offset}")
    return _ParsedReports(ranges, end_offset, last_epoch)


def _range(value: bytes) -> list[ReportedRange]:
    try:
        report = Report.decode(value)
        check_report(report)
    except ReportError:
        return []  # a message of somebody else
    if report.tier is not Tier.STORED:
        return []
    assert report.partition is not None
    assert report.start_offset is not None
    assert report.end_offset is not None
    name = TopicPartition(report.topic, report.partition)
    return [ReportedRange(name, report.start_offset, report.end_offset, report.topic_id)]
