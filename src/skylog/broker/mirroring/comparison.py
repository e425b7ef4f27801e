"""Compares a mirrored partition with its source before anything is copied: see `replication.mirror_progress`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from skylog.broker.mirroring.mirrored_partition import MirroredPartition
from skylog.errors import ErrorCode, KafkaError
from skylog.model import NO_EPOCH
from skylog.net.peer import Peer
from skylog.protocol.apis import ApiKey
from skylog.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from skylog.protocol.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from skylog.protocol.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from skylog.records import HEADER_BYTES, BatchHeader
from skylog.replication.mirror_progress import compare

if TYPE_CHECKING:
    from skylog.broker.broker import Broker

logger = logging.getLogger(__name__)

EARLIEST: Final = -2
LATEST: Final = -1
FETCH_BY_NAME: Final = 12  # the last version with names of topics
_ONE_BATCH: Final = 1  # byte: a broker returns the first batch whole, however large it is


class Comparison:
    """Compares partitions with their leader at the source, over one connection. Raises PeerError and KafkaError."""

    def __init__(self, broker: Broker, peer: Peer) -> None:
        self._broker = broker
        self._peer = peer

    async def run(self, mirrored: MirroredPartition) -> None:
        """Attach a partition whose log continues in the source's, or find that it has diverged."""
        start, end = await self._offset(mirrored, EARLIEST), await self._offset(mirrored, LATEST)
        if not mirrored.is_current:
            return
        log, progress = mirrored.partition.log, mirrored.progress
        progress.end_offset = log.log_end_offset
        if mirrored.is_adopted and log.log_start_offset < log.log_end_offset <= start:
            self._diverged(mirrored, f"the source begins at offset {start}, so it has nothing to compare this log with")
        elif log.log_end_offset < start:
            self._begin_at(mirrored, start)
            progress.attached(NO_EPOCH)
        elif log.log_end_offset > end:
            self._diverged(mirrored, f"the source ends at offset {end}, and had {log.log_end_offset} before")
        elif await self._has_lost_epoch(mirrored):
            return
        elif log.log_end_offset in (log.log_start_offset, start):
            progress.attached(NO_EPOCH)  # one of them has no batch to compare
        else:
            await self._compare_ends(mirrored)

    def _begin_at(self, mirrored: MirroredPartition, start: int) -> None:
        partition, progress = mirrored.partition, mirrored.progress
        if partition.log.log_end_offset > 0:
            logger.error(
                "%s: the source deleted the offsets %d to %d before they were mirrored; the mirror goes on at %d",
                partition.name,
                partition.log.log_end_offset,
                start - 1,
                start,
            )
        paths = partition.begin_log_at(start, self._broker.clock.now_ms())
        progress.restarted(start)
        if paths:
            self._broker.housekeeping.discard(*paths)

    def _diverged(self, mirrored: MirroredPartition, reason: str) -> None:
        mirrored.progress.diverged(reason)
        logger.error(
            "%s has diverged from %s of the source and is not mirrored any more: %s. Promote the topic to keep what is "
            "here, or delete it to copy it again",
            mirrored.partition.name,
            mirrored.source,
            reason,
        )

    async def _has_lost_epoch(self, mirrored: MirroredPartition) -> bool:
        """Find out whether the source has lost records of the leader epoch that was copied last."""
        known, end_offset = mirrored.progress.source_epoch, mirrored.partition.log.log_end_offset
        if known < 0:
            return False
        epoch, epoch_end = await self._epoch_end(mirrored, known)
        if epoch == known and epoch_end >= end_offset:
            return False
        reason = f"the source's leader epoch {known} ends at offset {epoch_end}, and had records up to {end_offset}"
        self._diverged(mirrored, reason)
        return True

    async def _compare_ends(self, mirrored: MirroredPartition) -> None:
        log, progress = mirrored.partition.log, mirrored.progress
        end_offset, truncations = log.log_end_offset, log.truncations
        ours = await self._last_batch(mirrored, end_offset - 1)
        theirs = await self._source_batch(mirrored, end_offset - 1)
        if not mirrored.is_current or (log.log_end_offset, log.truncations) != (end_offset, truncations):
            return
        if theirs is None:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, "the source cannot show its records yet")
        is_compacted = log.config.is_compacted and not mirrored.is_adopted
        difference = ours and compare(ours, theirs, is_compacted=is_compacted)
        if difference:
            self._diverged(mirrored, difference)
        else:
            progress.attached(theirs.partition_leader_epoch if theirs.last_offset < end_offset else NO_EPOCH)

    async def _last_batch(self, mirrored: MirroredPartition, offset: int) -> BatchHeader | None:
        found = await self._broker.checks.read(mirrored.partition.log, offset, _ONE_BATCH)
        return None if found is None else BatchHeader.read(found.file.read(found.position, HEADER_BYTES))

    async def _source_batch(self, mirrored: MirroredPartition, offset: int) -> BatchHeader | None:
        row = FetchPartition(
            partition=mirrored.source.partition,
            current_leader_epoch=mirrored.source_leader_epoch,
            fetch_offset=offset,
            partition_max_bytes=_ONE_BATCH,
        )
        topic = FetchTopic(topic=mirrored.source.topic, partitions=[row])
        request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[topic])
        version = min(self._peer.version_of(ApiKey.FETCH), FETCH_BY_NAME)
        (answer,) = (await self._peer.ask(request, version)).responses[0].partitions
        _check(answer, mirrored)
        return None if len(answer.records or b"") < HEADER_BYTES else BatchHeader.read(answer.records)

    async def _offset(self, mirrored: MirroredPartition, timestamp: int) -> int:
        row = ListOffsetsPartition(
            partition_index=mirrored.source.partition,
            current_leader_epoch=mirrored.source_leader_epoch,
            timestamp=timestamp,
        )
        topic = ListOffsetsTopic(name=mirrored.source.topic, partitions=[row])
        (answer,) = (await self._peer.ask(ListOffsetsRequest(topics=[topic]))).topics[0].partitions
        _check(answer, mirrored)
        return int(answer.offset)

    async def _epoch_end(self, mirrored: MirroredPartition, epoch: int) -> tuple[int, int]:
        row = OffsetForLeaderPartition(
            partition=mirrored.source.partition,
            current_leader_epoch=mirrored.source_leader_epoch,
            leader_epoch=epoch,
        )
        topic = OffsetForLeaderTopic(topic=mirrored.source.topic, partitions=[row])
        request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic])
        (answer,) = (await self._peer.ask(request)).topics[0].partitions
        _check(answer, mirrored)
        return answer.leader_epoch, answer.end_offset


def _check(answer: Any, mirrored: MirroredPartition) -> None:
    if answer.error_code:
        raise source_error(answer.error_code, mirrored)


def source_error(code: int, mirrored: MirroredPartition | None = None) -> KafkaError:
    """Return the error that the source has answered with."""
    known = ErrorCode(code) if code in ErrorCode._value2member_map_ else ErrorCode.UNKNOWN_SERVER_ERROR
    return KafkaError(known, f"the source answers {known.name}" + (f" for {mirrored.source}" if mirrored else ""))
