"""Runs one mirror on this broker: copies the partitions that this broker leads from their leaders at the source.

The broker that is the controller of the target also creates and configures the topics (`topic_keeper`). Every broker
copies the offsets of the groups that it coordinates (`group_offsets`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from skylog.broker.mirroring.fetcher import SourceFetcher
from skylog.broker.mirroring.group_offsets import GroupOffsets
from skylog.broker.mirroring.mirrored_partition import MirroredPartition
from skylog.broker.mirroring.source import Source, SourceImage
from skylog.broker.mirroring.topic_keeper import TopicKeeper
from skylog.broker.partition import Partition
from skylog.cluster import SessionExpiredError
from skylog.errors import SkylogError
from skylog.limited_logger import LimitedLogger
from skylog.model import TopicPartition
from skylog.protocol.schema import ZERO_UUID
from skylog.replication.mirror import Mirror, TopicState

if TYPE_CHECKING:
    from skylog.broker.broker import Broker
    from skylog.broker.mirroring.mirrors import Mirrors

logger = logging.getLogger(__name__)
limited_logger = LimitedLogger(logger)

REFRESH_S: Final = 2.0
SOON_S: Final = 0.2
GROUPS_S: Final = 1.0


class MirrorCopier:
    """One mirror that is not paused. `error` says why the source cannot be read, and is empty while it can."""

    def __init__(self, broker: Broker, mirrors: Mirrors, mirror: Mirror) -> None:
        self.mirror = mirror
        self._broker = broker
        self._mirrors = mirrors
        self._source = Source(mirror, f"skylog-mirror-{mirror.name}-{broker.identity.node_id}")
        self.keeper = TopicKeeper(broker, mirrors, self._source)
        self.groups = GroupOffsets(broker, self._source)
        self.partitions: dict[TopicPartition, MirroredPartition] = {}
        self._fetchers: dict[int, SourceFetcher] = {}
        self._fetched_from: dict[TopicPartition, SourceFetcher] = {}
        self._refresh_soon = asyncio.Event()
        self.error = ""
        self.failures = 0
        self._tasks = [asyncio.create_task(self._refresh_forever()), asyncio.create_task(self._groups_forever())]

    @property
    def bytes_in(self) -> int:
        return sum(each.bytes_in for each in self._fetchers.values())

    def update(self, mirror: Mirror) -> None:
        """Take over other topics of the same definition."""
        self.mirror = mirror
        for name in list(self.partitions):
            if not self._is_wanted(name):
                self.drop(name)
        self._refresh_soon.set()

    def _is_wanted(self, name: TopicPartition) -> bool:
        topic = self.mirror.mirrored.get(name.topic)
        return topic is not None and topic.state is TopicState.MIRRORING

    def consider(self, partition: Partition) -> None:
        """Called when a partition of one of the topics has got another role or epoch, or the topic is new."""
        name = partition.name
        known = self.partitions.get(name)
        if known is not None and (known.partition is not partition or not known.is_current):
            self.drop(name)
            known = None
        if known is None and partition.is_leader and self._is_wanted(name):
            topic = self.mirror.mirrored[name.topic]
            source, now_s = TopicPartition(topic.source, name.partition), self._broker.clock.monotonic()
            self.partitions[name] = MirroredPartition(
                partition, source, self._is_wanted, now_s, is_adopted=topic.is_adopted
            )
            self._refresh_soon.set()

    def drop(self, name: TopicPartition) -> None:
        mirrored = self.partitions.pop(name, None)
        fetcher = self._fetched_from.pop(name, None)
        if mirrored is not None and fetcher is not None:
            fetcher.remove(mirrored)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        for name in list(self.partitions):
            self.drop(name)
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(each.stop() for each in self._fetchers.values()))
        self._source.close()

    # -- the source

    async def _refresh_forever(self) -> None:
        while True:
            self._refresh_soon.clear()
            try:
                await self._refresh()
                self.error = ""
            except SessionExpiredError as error:
                logger.info("mirror %s: cannot change topics now: %s", self.mirror.name, error)
            except (SkylogError, TimeoutError) as error:
                self.error = str(error) or "the source did not answer in time"
                limited_logger.warning("mirror %s: %s", self.mirror.name, self.error)
                self._all_failed(self.error)
            except Exception as error:
                self.failures += 1
                self.error = repr(error)
                logger.exception("mirror %s failed, retrying", self.mirror.name)
            await asyncio.sleep(SOON_S)
            try:
                async with asyncio.timeout(REFRESH_S):
                    await self._refresh_soon.wait()
            except TimeoutError:
                pass

    def _all_failed(self, reason: str) -> None:
        for name, mirrored in self.partitions.items():
            if name not in self._fetched_from:
                mirrored.progress.failed(reason)

    async def _refresh(self) -> None:
        image = await self._source.load()
        self._mirrors.check_source(image.cluster_id)
        if self._broker.metadata.image.controller_id == self._broker.identity.node_id:
            await self.keeper.run(self.mirror, image)
        self._assign(image)

    def _assign(self, image: SourceImage) -> None:
        """Let each partition be copied from its leader at the source."""
        for name, mirrored in list(self.partitions.items()):
            topic = image.topics.get(mirrored.source.topic)
            leader, epoch = topic.leaders.get(name.partition, (-1, -1)) if topic is not None else (-1, -1)
            registered = self.mirror.mirrored[name.topic].source_id
            if topic is None:
                mirrored.progress.failed("the source does not have the topic any more")
            elif registered and topic.known_id and topic.known_id != registered:
                if not mirrored.progress.is_diverged:
                    reason = "the topic was deleted and created again at the source"
                    logger.error("%s is not mirrored any more: %s", name, reason)
                    mirrored.progress.diverged(reason)
            elif leader < 0:
                mirrored.progress.failed("the partition has no leader at the source now")
            else:
                mirrored.topic_id = None if topic.topic_id == ZERO_UUID else topic.topic_id
                if mirrored.source_leader_epoch != epoch:
                    mirrored.source_leader_epoch = epoch
                    mirrored.progress.detached()
                self._fetch_from(name, mirrored, leader)

    def _fetch_from(self, name: TopicPartition, mirrored: MirroredPartition, leader: int) -> None:
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = self._fetchers[leader] = SourceFetcher(self._broker, self._source, leader, self._refresh_soon.set)
        before = self._fetched_from.get(name)
        if before is not fetcher:
            if before is not None:
                before.remove(mirrored)
                mirrored.progress.detached()
            self._fetched_from[name] = fetcher
            fetcher.add(mirrored)

    # -- groups

    async def _groups_forever(self) -> None:
        while self.mirror.groups:
            await asyncio.sleep(GROUPS_S)
            try:
                await self.groups.run(self.mirror)
            except (SkylogError, TimeoutError) as error:
                self.groups.error = str(error) or "the source did not answer in time"
                limited_logger.warning("mirror %s cannot copy group offsets: %s", self.mirror.name, self.groups.error)
            except Exception as error:
                self.failures += 1
                self.groups.error = repr(error)
                logger.exception("mirror %s cannot copy group offsets, retrying", self.mirror.name)
