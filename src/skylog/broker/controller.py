"""The controller: one broker of a cluster, elected through the metadata store, which elects the leaders of partitions.

It is level-triggered: whenever the image changes it computes what every partition must become (`cluster.elections`,
`cluster.reassignment`), and commits the difference. Each commit checks the controller's epoch, so that a former
controller cannot write any more, and the incarnations of the brokers that it elects. After a conflict it decides again.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from skylog.broker.config import BrokerConfig
from skylog.broker.process_watch import ProcessWatch
from skylog.broker.time_slice import TimeSlice
from skylog.cluster import (
    BrokerImage,
    ClusterImage,
    ClusterMetadata,
    EntryChange,
    MetadataStore,
    PartitionImage,
    SessionExpiredError,
    TopicImage,
    VersionCheck,
    VersionConflictError,
)
from skylog.cluster.elections import ElectionRules, imbalance, prefer, reconcile
from skylog.cluster.image import NO_CONTROLLER, NO_LEADER
from skylog.cluster.metadata import BROKERS, CONTROLLER, CONTROLLER_EPOCH, checks_of_elected
from skylog.cluster.reassignment import advance
from skylog.errors import KafkaError, SkylogError
from skylog.model import TopicPartition

logger = logging.getLogger(__name__)

PARTITIONS_AT_ONCE: Final = 1000
RETRY_S: Final = 0.5
REFUSED_RETRY_S: Final = 10.0


class Controller:
    """Tries to become the controller, and does its work while it is.

    `failures` counts rounds that failed, and topics whose new state the store did not take.
    `elections` counts the leaders that it has elected, `unclean_elections` those that may lack committed records.
    """

    def __init__(
        self,
        node_id: int,
        metadata: ClusterMetadata,
        store: MetadataStore,
        rules: Callable[[TopicImage], ElectionRules],
        config: BrokerConfig,
    ) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._store = store
        self._rules = rules
        self._config = config
        self._epoch_version: int | None = None
        self._image_changed = asyncio.Event()
        self._process_watch = ProcessWatch(self._process_ended)
        self._tasks: list[asyncio.Task[None]] = []
        self._refused: set[str] = set()  # the topics whose last commit the store has refused
        self._retry: asyncio.TimerHandle | None = None
        self.failures = 0
        self.elections = self.unclean_elections = 0
        metadata.listen(self._on_image)

    def reconfigure(self, config: BrokerConfig) -> None:
        """Use another configuration, and decide again: settings of the whole cluster affect elections."""
        self._config = config
        self._image_changed.set()

    @property
    def is_active(self) -> bool:
        return self._epoch_version is not None

    def start(self) -> None:
        self._image_changed.set()
        self._tasks = [asyncio.create_task(self._run()), asyncio.create_task(self._balance_forever())]

    async def stop(self) -> None:
        """Stop working, and stop being the controller: after the session has ended another one is elected."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, self._process_watch.stop(), return_exceptions=True)
        self._cancel_retry()
        self._epoch_version = None

    def _on_image(self, _before: ClusterImage, _now: ClusterImage) -> None:
        self._image_changed.set()

    async def _run(self) -> None:
        while True:
            await self._image_changed.wait()
            self._image_changed.clear()
            try:
                await self._work()
            except VersionConflictError as error:
                self._note_conflict(error)
            except KafkaError as error:
                logger.info("the controller decides again: %s", error)
                self._image_changed.set()
                await asyncio.sleep(RETRY_S)
            except SkylogError as error:
                self.failures += 1
                logger.warning("the controller cannot work now, retrying: %s", error)
                self._image_changed.set()
                await asyncio.sleep(RETRY_S)
            except Exception:
                self.failures += 1
                logger.exception("the controller has failed, retrying")
                self._image_changed.set()
                await asyncio.sleep(RETRY_S)

    def _note_conflict(self, error: VersionConflictError) -> None:
        """Decide again: the image shows why when the change that caused the conflict has arrived."""
        if error.path in (CONTROLLER, CONTROLLER_EPOCH):
            if self._epoch_version is not None:
                logger.warning("broker %d is not the controller any more", self._node_id)
            self._epoch_version = None
        asyncio.get_running_loop().call_later(RETRY_S, self._image_changed.set)

    async def _work(self) -> None:
        controller_id = self._metadata.image.controller_id
        self._watch_processes()
        if self._epoch_version is None:
            if controller_id not in (NO_CONTROLLER, self._node_id):
                return
            await self._take_over()
            if not self.is_active:
                return  # another broker is the controller, and the image will show it
        elif controller_id != self._node_id:
            self._epoch_version = None
            self._image_changed.set()
            return
        await self._elect()

    async def _take_over(self) -> None:
        """Become the controller, in place of a former incarnation of this broker if need be."""
        present = await self._store.load(CONTROLLER.rpartition("/")[0] + "/")
        operations = []
        if CONTROLLER in present:
            if present[CONTROLLER].value["node_id"] != self._node_id:
                return
            operations.append(EntryChange(CONTROLLER, None, present[CONTROLLER].version))
        epoch_entry = present.get(CONTROLLER_EPOCH)
        version = epoch_entry.version if epoch_entry is not None else 0
        epoch = epoch_entry.value["epoch"] + 1 if epoch_entry is not None else 1
        operations.append(EntryChange(CONTROLLER, {"node_id": self._node_id}, 0, ephemeral=True))
        operations.append(EntryChange(CONTROLLER_EPOCH, {"epoch": epoch}, version))
        await self._store.commit(operations)
        self._epoch_version = version + 1
        logger.info("broker %d is the controller, in epoch %d", self._node_id, epoch)

    # -- processes that end

    def _watch_processes(self) -> None:
        """The controller watches all other brokers, and they watch the controller."""
        image = self._metadata.image
        watched = image.brokers.keys() if self.is_active else {image.controller_id}
        self._process_watch.watch(
            broker for node_id, broker in image.brokers.items() if node_id in watched and node_id != self._node_id
        )

    async def _process_ended(self, broker: BrokerImage) -> None:
        """Remove the registration of a broker, so that others lead, or its part as the controller."""
        if self._epoch_version is not None:
            known = self._metadata.image.brokers.get(broker.node_id)
            if known is None:
                return
            if _process_of(known) != _process_of(broker):
                raise VersionConflictError(f"{BROKERS}{broker.node_id}")
            # It may have changed since the watch began: a broker that hands over registers that it is stopping.
            await self._metadata.remove_broker(known, [VersionCheck(CONTROLLER_EPOCH, self._epoch_version)])
            return
        entry = (await self._store.load(CONTROLLER)).get(CONTROLLER)
        if entry is not None and entry.value["node_id"] == broker.node_id:
            await self._store.commit([EntryChange(CONTROLLER, None, entry.version)])

    # -- elections

    async def _elect(self) -> None:
        """Commit what the partitions must become, some topics at a time.

        The brokers are those of one moment, so that the checks are about the brokers that were elected.
        """
        time_slice = TimeSlice()
        image = self._metadata.image
        changed: list[tuple[TopicImage, TopicImage]] = []
        count = 0
        settled = set(self._refused)
        for topic in image.topics.values():
            decided = self._decide(topic, image.brokers)
            if decided is not topic:
                settled.discard(topic.name)
                changed.append((topic, decided))
                count += len(topic.partitions)
            if count >= PARTITIONS_AT_ONCE:
                await self._commit_possible(changed, image.brokers)
                changed, count = [], 0
            await time_slice.yield_if_over()
        if changed:
            await self._commit_possible(changed, image.brokers)
        self._refused -= settled
        self._cancel_retry()
        if self._refused:
            self._retry = asyncio.get_running_loop().call_later(REFUSED_RETRY_S, self._image_changed.set)

    def _cancel_retry(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def _decide(self, topic: TopicImage, brokers: Mapping[int, BrokerImage]) -> TopicImage:
        rules = self._rules(topic)
        partitions = tuple([advance(reconcile(each, brokers, rules), brokers, rules) for each in topic.partitions])
        if all(new is old for new, old in zip(partitions, topic.partitions, strict=True)):
            return topic
        return dataclasses.replace(topic, partitions=partitions)

    async def _commit_possible(
        self, changed: Sequence[tuple[TopicImage, TopicImage]], brokers: Mapping[int, BrokerImage]
    ) -> None:
        """Commit the new states of topics together, or in smaller parts if the store refuses them.

        A topic that it refuses alone, because its entry is too large, is left out. Raises SkylogError if the topics
        must be decided again.
        """
        try:
            await self._commit(changed, brokers)
        except (VersionConflictError, SessionExpiredError):
            raise
        except SkylogError as error:
            if len(changed) == 1:
                self._note_refused(changed[0][0].name, error)
                return
            middle = len(changed) // 2
            await self._commit_possible(changed[:middle], brokers)
            await self._commit_possible(changed[middle:], brokers)
        else:
            self._refused.difference_update(now.name for _, now in changed)

    def _note_refused(self, topic: str, error: SkylogError) -> None:
        self.failures += 1
        level = logging.DEBUG if topic in self._refused else logging.ERROR  # it is tried again and again
        logger.log(level, "the leaders of topic %s cannot be changed: %s", topic, error)
        self._refused.add(topic)

    async def _commit(
        self, changed: Sequence[tuple[TopicImage, TopicImage]], brokers: Mapping[int, BrokerImage]
    ) -> None:
        elections = [
            (old, new)
            for before, now in changed
            for old, new in zip(before.partitions, now.partitions, strict=True)
            if new.leader not in (old.leader, NO_LEADER)
        ]
        checks = checks_of_elected(changed, brokers)
        await self._commit_as_controller([now for _, now in changed], checks)
        self.elections += len(elections)
        self.unclean_elections += sum(
            new.leader not in (*old.in_sync_replicas, *old.eligible_replicas) for old, new in elections
        )
        for before, now in changed:
            _log_changes(before, now)

    async def _commit_as_controller(self, topics: Sequence[TopicImage], checks: Sequence[VersionCheck]) -> None:
        assert self._epoch_version is not None
        await self._metadata.commit_topics(topics, [VersionCheck(CONTROLLER_EPOCH, self._epoch_version), *checks])

    # -- balance

    async def _balance_forever(self) -> None:
        while True:
            await asyncio.sleep(self._config.leader_imbalance_check_interval_seconds)
            if self._config.auto_leader_rebalance_enable and self.is_active:
                try:
                    await self._balance()
                except SkylogError as error:
                    logger.info("leaders are not balanced now: %s", error)
                except Exception:
                    self.failures += 1
                    logger.exception("leaders were not balanced, retrying")

    async def _balance(self) -> None:
        """Move leaders back to the preferred replicas of brokers that lead too few of theirs."""
        image = self._metadata.image
        found = imbalance(image.topics, image.brokers, self._config.leader_imbalance_per_broker_percentage)
        by_topic: dict[str, list[int]] = {}
        for name in found:
            by_topic.setdefault(name.topic, []).append(name.partition)
        changed = []
        for topic_name, indexes in by_topic.items():
            topic = image.topics[topic_name]
            partitions = list(topic.partitions)
            for index in indexes:
                partitions[index] = prefer(partitions[index], image.brokers)
            changed.append((topic, dataclasses.replace(topic, partitions=tuple(partitions))))
        if changed:
            await self._commit_possible(changed, image.brokers)


def _process_of(broker: BrokerImage) -> tuple[int, str, int]:
    return broker.incarnation, broker.host, broker.port


def _log_changes(before: TopicImage, now: TopicImage) -> None:
    for index, (old, new) in enumerate(zip(before.partitions, now.partitions, strict=True)):
        if old.leader != new.leader:
            _log_leader(TopicPartition(now.name, index), new)


def _log_leader(name: TopicPartition, partition: PartitionImage) -> None:
    if partition.leader == NO_LEADER:
        logger.warning("%s is offline: none of its complete replicas %s is live", name, partition.complete_replicas)
    else:
        logger.info("%s: broker %d leads in epoch %d", name, partition.leader, partition.leader_epoch)
