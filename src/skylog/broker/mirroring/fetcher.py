"""Copies from one broker of a source: fetches like a consumer, and appends at the offsets that the batches have.

The fetches read uncommitted records, so that transactions come with their markers. A response may end with a part of a
batch, which is left out. Long responses are appended in pieces, and the event loop runs in between: before each piece
the partition must still be led and mirrored here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from skylog.broker.mirroring.comparison import FETCH_BY_NAME, Comparison, source_error
from skylog.broker.mirroring.mirrored_partition import MirroredPartition
from skylog.broker.mirroring.source import Source
from skylog.errors import ErrorCode, SkylogError
from skylog.limited_logger import LimitedLogger
from skylog.model import TopicPartition
from skylog.net.peer import Peer, PeerError
from skylog.protocol.apis import ApiKey
from skylog.protocol.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from skylog.protocol.schema import ZERO_UUID
from skylog.records import iterate_batches

if TYPE_CHECKING:
    from skylog.broker.broker import Broker

logger = logging.getLogger(__name__)
limited_logger = LimitedLogger(logger)

WAIT_MS: Final = 500
ANSWER_PATIENCE_S: Final = 30.0
RETRY_S: Final = 0.5
HELD_S: Final = 0.01
PARTITION_BYTES: Final = 4 * 1024 * 1024
RESPONSE_BYTES: Final = 16 * 1024 * 1024
PIECE_BYTES: Final = 256 * 1024
_FETCH_BY_ID: Final = 13


class SourceFetcher:
    """Copies what one broker of the source leads. `on_trouble` is called when the known metadata may be old."""

    def __init__(self, broker: Broker, source: Source, node_id: int, on_trouble: Callable[[], None]) -> None:
        self._broker = broker
        self._source = source
        self._node_id = node_id
        self._on_trouble = on_trouble
        self._partitions: dict[TopicPartition, MirroredPartition] = {}
        self._has_partitions = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.bytes_in = 0
        self.failures = 0
        self._task = asyncio.create_task(self._run())

    def add(self, mirrored: MirroredPartition) -> None:
        self._partitions[mirrored.source] = mirrored
        self._has_partitions.set()

    def remove(self, mirrored: MirroredPartition) -> None:
        if self._partitions.get(mirrored.source) is mirrored:
            del self._partitions[mirrored.source]
            if not self._partitions:
                self._has_partitions.clear()

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self._has_partitions.wait()
            try:
                await self._copy()
            except (SkylogError, TimeoutError) as error:
                self._all_failed(str(error) or f"broker {self._node_id} of the source did not answer in time")
            except Exception as error:
                self.failures += 1
                logger.exception("mirroring from broker %d of the source failed, retrying", self._node_id)
                self._all_failed(repr(error))
            self._on_trouble()
            await asyncio.sleep(RETRY_S)

    def _all_failed(self, reason: str) -> None:
        limited_logger.warning("cannot mirror from broker %d of the source, retrying: %s", self._node_id, reason)
        for mirrored in self._partitions.values():
            mirrored.progress.failed(reason)

    async def _copy(self) -> None:
        """Copy over one connection, until it fails or there is nothing left to copy."""
        peer = await self._source.connect(self._node_id)
        for mirrored in self._partitions.values():
            mirrored.progress.detached()
        try:
            comparison = Comparison(self._broker, peer)
            while self._partitions:
                await self._attach(comparison)
                ready = [each for each in self._partitions.values() if each.progress.is_attached and each.is_current]
                rows = [each for each in ready if each.has_room]
                if rows:
                    await self._fetch(peer, rows)
                else:
                    await asyncio.sleep(HELD_S if ready else RETRY_S)
        finally:
            peer.close()

    async def _attach(self, comparison: Comparison) -> None:
        """Compare the partitions that need it."""
        now_s = self._loop.time()
        for mirrored in list(self._partitions.values()):
            progress = mirrored.progress
            if progress.is_attached or progress.is_diverged or mirrored.not_before_s > now_s or not mirrored.is_current:
                continue
            try:
                await comparison.run(mirrored)
            except PeerError:
                raise
            except (OSError, SkylogError) as error:
                self._failed(mirrored, error)

    def _failed(self, mirrored: MirroredPartition, error: Exception) -> None:
        limited_logger.warning("%s cannot be mirrored, retrying: %s", mirrored.partition.name, error)
        mirrored.progress.failed(str(error))
        mirrored.not_before_s = self._loop.time() + RETRY_S
        self._on_trouble()

    # -- fetching

    async def _fetch(self, peer: Peer, rows: list[MirroredPartition]) -> None:
        by_id = {each.topic_id: each.source.topic for each in rows if each.topic_id is not None}
        newest = peer.version_of(ApiKey.FETCH)
        has_ids = newest >= _FETCH_BY_ID and all(each.topic_id is not None for each in rows)
        version = _FETCH_BY_ID if has_ids else min(newest, FETCH_BY_NAME)
        body = _request(rows, has_ids).write(version)
        async with asyncio.timeout(ANSWER_PATIENCE_S):
            frame, position = await peer.ask_encoded(ApiKey.FETCH, version, body)
        response, _ = FetchResponse.read(frame, version, position)
        if response.error_code:
            raise SkylogError(f"broker {self._node_id} of the source answers a fetch with {response.error_code}")
        asked = {each.source: each for each in rows}
        for topic in response.responses:
            name = by_id.get(topic.topic_id, "") if has_ids else topic.topic
            for answer in topic.partitions:
                mirrored = asked.get(TopicPartition(name, answer.partition_index))
                if mirrored is not None and self._partitions.get(mirrored.source) is mirrored:
                    await self._take(mirrored, answer)
        del response
        peer.recycle(frame)

    async def _take(self, mirrored: MirroredPartition, answer: Any) -> None:
        """Store what the source has sent for one partition."""
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            mirrored.progress.detached()  # the comparison finds out which way
            return
        if answer.error_code:
            self._failed(mirrored, source_error(answer.error_code, mirrored))
            return
        records = memoryview(answer.records or b"")
        try:
            mirrored.note_response()
            await self._append(mirrored, records)
            if not mirrored.is_current:
                return
            mirrored.follow_start(answer.log_start_offset)
        except (OSError, SkylogError) as error:
            self._failed(mirrored, error)
            return
        mirrored.progress.answered(answer.high_watermark, self._broker.clock.monotonic(), has_records=len(records) > 0)

    async def _append(self, mirrored: MirroredPartition, records: memoryview) -> None:
        log = mirrored.partition.log
        is_first = True
        try:
            for start, end, epoch in pieces(records):
                if not is_first:
                    await asyncio.sleep(0)
                is_first = False
                if not mirrored.is_current:
                    return
                mirrored.copy(records[start:end], epoch, self._broker.clock.now_ms())
                self.bytes_in += end - start
        finally:  # what was copied before an error is not committed until it is on disk
            if log.must_flush:
                await self._broker.flusher.flushed(log)


def _request(rows: list[MirroredPartition], has_ids: bool) -> FetchRequest:
    topics: dict[str, FetchTopic] = {}
    for each in rows:
        topic = topics.get(each.source.topic)
        if topic is None:
            topic_id = each.topic_id if has_ids and each.topic_id is not None else ZERO_UUID
            topic = topics[each.source.topic] = FetchTopic(topic=each.source.topic, topic_id=topic_id, partitions=[])
        topic.partitions.append(
            FetchPartition(
                partition=each.source.partition,
                current_leader_epoch=each.source_leader_epoch,
                fetch_offset=each.partition.log.log_end_offset,
                partition_max_bytes=PARTITION_BYTES,
            )
        )
    return FetchRequest(max_wait_ms=WAIT_MS, min_bytes=1, max_bytes=RESPONSE_BYTES, topics=list(topics.values()))


def pieces(records: memoryview) -> Iterator[tuple[int, int, int]]:
    """Yield the ranges of whole batches to append together, each with the source's epoch of its last batch."""
    start = end = 0
    epoch = -1
    for position, header in iterate_batches(records):
        end, epoch = position + header.size_bytes, header.partition_leader_epoch
        if end - start >= PIECE_BYTES:
            yield start, end, epoch
            start = end
    if end > start:
        yield start, end, epoch
