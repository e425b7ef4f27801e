"""Keeps the in-sync sets of partitions that this broker leads: adds followers that catch up, removes those that lag.

A change is proposed to the partition first, which is conservative with the high watermark while it is in flight, and
then committed to the metadata store by compare-and-set. Whatever comes of that, `settle` ends the proposal, so none
stays in flight forever (KAFKA-12686, KAFKA-12751). Followers that could not be added are considered again every second,
unless they have stopped fetching: those would be removed and added in turn (KAFKA-19996). A leader whose own log has
failed leaves the set if it has another member. So does one with a damaged batch that is not committed: followers reject
the batch, and nothing could be committed after it. So does one whose appends have failed for some seconds: its disk may
be full, and that of another replica not. So does one whose log could not be opened.

A follower whose log has failed leaves by itself in the same cases: producers need not wait for it until it lags.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Mapping
from typing import Final
from uuid import UUID

from skylog.broker.partition import Partition
from skylog.broker.replicas import Replicas
from skylog.broker.time_slice import TimeSlice
from skylog.clock import Clock
from skylog.cluster import ClusterMetadata, PartitionImage, TopicImage, VersionCheck, VersionConflictError
from skylog.cluster.elections import ElectionRules, expand, joining_offset, resign, shrink
from skylog.cluster.image import NO_LEADER
from skylog.cluster.metadata import INCARNATIONS
from skylog.errors import ErrorCode, KafkaError, SkylogError
from skylog.model import TopicPartition
from skylog.replication import LeaderState

logger = logging.getLogger(__name__)

COLLECT_S: Final = 0.005  # changes that come together are committed together
RECONSIDER_S: Final = 1.0
WRITE_PATIENCE_S: Final = 3.0


class InSyncSets:
    """Changes in-sync sets. `failures` counts changes that failed for other reasons than a conflict.

    `failed_changes` counts partitions whose in-sync set could not be changed, for any reason.
    """

    def __init__(
        self,
        metadata: ClusterMetadata,
        replicas: Replicas,
        rules: Callable[[TopicImage], ElectionRules],
        clock: Clock,
        last_fetch_s: Mapping[int, float],
        max_lag_s: float,
    ) -> None:
        self._metadata = metadata
        self._replicas = replicas
        self._rules = rules
        self._clock = clock
        self._last_fetch_s = last_fetch_s
        self._max_lag_s = max_lag_s
        self._failing_since_s: dict[TopicPartition, float] = {}
        self._wanted: dict[str, dict[int, _Change]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._checking: asyncio.Task[None] | None = None
        self.failures = 0
        self.failed_changes = 0

    def start(self) -> None:
        self._checking = asyncio.create_task(self._check_forever())

    async def stop(self) -> None:
        """Stop changing in-sync sets, and drop the changes that are not committed yet. `start` continues."""
        tasks = [*self._tasks, *([self._checking] if self._checking is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        dropped, self._wanted = self._wanted, {}
        for changes in dropped.values():
            for change in changes.values():
                change.settle()

    # -- proposals

    def consider(self, partition: Partition, node_id: int) -> None:
        """Add a follower to the in-sync set if it has caught up. Called after its fetches."""
        leading = partition.leading
        topic = self._metadata.image.topics.get(partition.name.topic)
        if leading is None or topic is None or partition.image is None:
            return
        offset = _joining_offset(partition, node_id, partition.image, self._rules(topic))
        live = {each.node_id: each.incarnation for each in self._metadata.image.brokers.values()}
        if leading.may_join(node_id, offset, live):
            self._propose(partition, _Change(partition, adding=(node_id, leading.followers[node_id].incarnation)))

    def _remove_lagging(self, partition: Partition) -> None:
        leading = partition.leading
        if leading is None:
            return
        late = leading.lagging(
            partition.log.log_end_offset, self._clock.monotonic(), self._max_lag_s, self._last_fetch_s
        )
        if late:
            logger.info("%s: brokers %s lag behind", partition.name, late)
            self._propose(partition, _Change(partition, removing=tuple(late)))

    async def _check_forever(self) -> None:
        while True:
            await asyncio.sleep(min(RECONSIDER_S, self._max_lag_s / 2))
            try:
                await self._check_all()
            except Exception:
                self.failures += 1
                logger.exception("the in-sync sets could not be checked, retrying")

    async def _check_all(self) -> None:
        time_slice = TimeSlice()
        for name, topic_id, reason in self._replicas.offline_logs():
            await self._leave(name, topic_id, f"its log cannot be opened: {reason}")
        for partition in self._replicas.all():
            leading = partition.leading
            if leading is not None:
                if await self._resigns(partition):
                    continue
                self._remove_lagging(partition)
                self._add_caught_up(partition, leading)
            elif (failure := self._failure(partition)) is not None:
                await self._leave(partition.name, partition.topic_id, failure)
            await time_slice.yield_if_over()

    def _add_caught_up(self, partition: Partition, leading: LeaderState) -> None:
        """Consider the followers again that could not be added when they fetched. One that is silent waits for that."""
        now_s = self._clock.monotonic()
        for node_id in leading.followers.keys() - leading.in_sync:
            if not leading.is_silent(node_id, now_s, self._max_lag_s):
                self.consider(partition, node_id)

    async def _resigns(self, partition: Partition) -> bool:
        """Resign if the log of this leader cannot be replicated. Return whether there is nothing else to check."""
        failure, damage = self._failure(partition), partition.log.uncommitted_damage
        if failure is None and damage is not None:
            failure = f"the batch at offset {damage.due_offset} is damaged"
        if failure is not None:
            await self._leave(partition.name, partition.topic_id, failure)
        return partition.log.failure is not None or not partition.is_leader

    def _failure(self, partition: Partition) -> str | None:
        """Return why nothing can be written to a log, now or for some seconds; None if it can."""
        failing, now_s = self._failing_since_s, self._clock.monotonic()
        failure = partition.log.write_failure(partition.leader_epoch)
        if failure is None:
            failing.pop(partition.name, None)
        elif now_s - failing.setdefault(partition.name, now_s) >= WRITE_PATIENCE_S:
            return f"it cannot be written: {failure}"
        return partition.log.failure

    async def _leave(self, name: TopicPartition, topic_id: UUID, reason: str) -> None:
        """Leave the in-sync set, so that nobody waits for this replica. If it leads, another complete one must."""
        topic = self._metadata.image.topics.get(name.topic)

        def decide(now: TopicImage) -> TopicImage:
            before = now.partitions[name.partition]
            image = _without(before, self._replicas.node_id, self._rules(now))
            if image is before:
                return now
            if before.leader == self._replicas.node_id:
                logger.error("%s: another broker must lead: %s", name, reason)
            else:
                logger.error("%s: this broker leaves the in-sync set: %s", name, reason)
            partitions = list(now.partitions)
            partitions[name.partition] = image
            return dataclasses.replace(now, partitions=tuple(partitions))

        try:
            if topic is not None and topic.topic_id == topic_id:
                await self._metadata.change_topic(topic, decide)
        except SkylogError as error:
            logger.warning("%s: this broker cannot leave the in-sync set yet: %s", name, error)

    # -- commits

    def _propose(self, partition: Partition, change: _Change) -> None:
        """Begin a change. From now on the high watermark waits for a replica that is being added."""
        change.propose()
        topic, index = partition.name
        changes = self._wanted.setdefault(topic, {})
        if not changes:
            task = asyncio.create_task(self._commit_soon(topic))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        changes[index] = change

    async def _commit_soon(self, topic: str) -> None:
        await asyncio.sleep(COLLECT_S)
        changes = self._wanted.pop(topic)
        try:
            await self._commit(topic, changes)
        except VersionConflictError as error:
            self.failed_changes += len(changes)
            logger.info("%s: the in-sync set is not changed: %s", topic, error)  # a follower has started again
        except KafkaError as error:
            self.failed_changes += len(changes)
            logger.info("%s: the in-sync set is not changed: %s", topic, error)
        except SkylogError as error:
            self.failed_changes += len(changes)
            self.failures += 1
            logger.warning("%s: the in-sync set cannot be changed now: %s", topic, error)
        finally:
            for change in changes.values():
                change.settle()

    async def _commit(self, topic: str, changes: Mapping[int, _Change]) -> None:
        image = self._metadata.image.topics.get(topic)
        if image is None:
            return
        joining = dict(change.adding for change in changes.values() if change.adding is not None)
        checks = [VersionCheck(f"{INCARNATIONS}{node}", version) for node, version in joining.items()]
        await self._metadata.change_topic(image, lambda now: self._changed(now, changes), checks)

    def _changed(self, topic: TopicImage, changes: Mapping[int, _Change]) -> TopicImage:
        rules = self._rules(topic)
        partitions = list(topic.partitions)
        for index, change in changes.items():
            if not change.is_current:
                continue
            try:
                partitions[index] = change.apply(partitions[index], self._metadata, rules)
            except KafkaError as error:
                name = TopicPartition(topic.name, index)
                logger.debug("%s: the in-sync set is not changed: %s", name, error)
        if all(new is old for new, old in zip(partitions, topic.partitions, strict=True)):
            return topic
        return dataclasses.replace(topic, partitions=tuple(partitions))


def _without(image: PartitionImage, node_id: int, rules: ElectionRules) -> PartitionImage:
    """Return a partition without a replica that cannot be written. A leader stays if no other replica is complete."""
    if image.leader == node_id:
        others = {*image.in_sync_replicas, *image.eligible_replicas} - {node_id}
        return resign(image, node_id, rules) if others else image
    if image.leader == NO_LEADER:
        return image
    return shrink(image, (node_id,), image.leader_epoch, rules)


def _joining_offset(partition: Partition, node_id: int, image: PartitionImage, rules: ElectionRules) -> int:
    """Return the offset that a follower must have reached to join the in-sync set of `image`."""
    leading = partition.leading
    assert leading is not None
    return joining_offset(
        image,
        rules,
        high_watermark=partition.high_watermark,
        epoch_start_offset=leading.epoch_start,
        log_end_offset=leading.followers[node_id].leader_end_before,
    )


class _Change:
    """A change of the in-sync set of one partition, in one leader epoch. `adding` is a broker and its incarnation."""

    def __init__(
        self, partition: Partition, adding: tuple[int, int] | None = None, removing: tuple[int, ...] = ()
    ) -> None:
        self._partition = partition
        self._leading = partition.leading
        self._leader_epoch = partition.leader_epoch
        self.adding = adding
        self._removing = removing

    @property
    def is_current(self) -> bool:
        """Whether this broker still leads the partition, in the same epoch. Its topic may be deleted otherwise."""
        return self._leading is not None and self._leading is self._partition.leading

    def propose(self) -> None:
        """Begin the change in the state of the leader, which may commit nothing alone from now on."""
        assert self._leading is not None
        self._leading.propose([self.adding[0]] if self.adding is not None else [], self._removing)
        self._partition.update_watermark()

    def apply(self, image: PartitionImage, metadata: ClusterMetadata, rules: ElectionRules) -> PartitionImage:
        if self.adding is not None:
            self._check_still_caught_up(self.adding[0], image, rules)
            return expand(image, *self.adding, self._leader_epoch, metadata.image.brokers, rules)
        return shrink(image, self._removing, self._leader_epoch, rules)

    def _check_still_caught_up(self, node_id: int, image: PartitionImage, rules: ElectionRules) -> None:
        """Raise KafkaError if a follower may not join the state that has come between."""
        assert self._leading is not None
        if not self._leading.has_reached(node_id, _joining_offset(self._partition, node_id, image, rules)):
            raise KafkaError(ErrorCode.INELIGIBLE_REPLICA, f"broker {node_id} has not caught up any more")

    def settle(self) -> None:
        """End the proposal, unless the leader epoch has ended meanwhile."""
        if self._leading is not None and self.is_current:
            self._leading.settle()
            self._partition.update_watermark()
