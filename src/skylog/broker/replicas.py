"""The replicas of this broker, kept in step with the cluster's image.

The image decides which topics and partitions exist, and which of them this broker leads or follows. Files follow the
image, off the event loop: `prepare` opens the logs of a topic before the topic is committed, `settle` renames the
folders of a deleted one. A log that cannot be opened leaves its replica offline, which is reported and retried; the
others are served.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Executor
from typing import Final
from uuid import UUID

from skylog.broker.partition import Partition, Role
from skylog.broker.replica_folders import ReplicaFolders
from skylog.clock import Clock
from skylog.cluster import ClusterImage, PartitionImage, TopicImage
from skylog.config import parse
from skylog.errors import ErrorCode, KafkaError, SkylogError
from skylog.model import TopicPartition
from skylog.storage import Log, LogConfig, LogDir

logger = logging.getLogger(__name__)

OPENED_AT_ONCE: Final = 50

RemovalListener = Callable[[Log], None]
"""Called on the event loop with a log that was just removed."""
AssignmentListener = Callable[[Partition], None]
"""Called on the event loop when a replica has another role, leader or epoch, and when it was removed."""

LeadershipListener = Callable[[Partition, bool], None]
"""Called on the event loop when this broker begins (True) or stops (False) to lead a partition. Must not raise.

A new epoch of a leader that never stopped leading is not reported: only a follower truncates its log or copies another
leader's records, so everything that was derived from the log is still right.
"""


class Replicas:
    """The replicas on broker `node_id`, by topic and partition. Folders of removed logs are passed to `discard`.

    Those of logs whose topic is gone are passed to `discard_deleted`.

    A replica leads, follows, or is offline. `offline` has the reason why a log could not be opened. A member of a
    cluster leads nothing until `may_lead`: before it has joined, the image may show it as the leader that it was. Once
    it was started, it opens the logs of topics that others create, and removes those of topics that others delete, in
    the background.
    """

    def __init__(
        self,
        node_id: int,
        log_dir: LogDir,
        defaults: LogConfig,
        executor: Executor,
        discard: Callable[..., None],
        clock: Clock,
        *,
        is_replicated: bool = False,
    ) -> None:
        self.node_id = node_id
        self._is_replicated = is_replicated
        self.may_lead = not is_replicated
        self._is_running = False
        self._clock = clock
        self._opening: set[tuple[UUID, int]] = set()
        self._background: set[asyncio.Task[None]] = set()
        self._assignment_listeners: list[AssignmentListener] = []
        self._log_dir = log_dir
        self.defaults = defaults
        self._folders = ReplicaFolders(log_dir, executor)
        self._discard = self.discard_deleted = discard
        self._by_topic: dict[str, dict[int, Partition]] = {}
        self._leaders: dict[str, dict[int, Partition]] = {}
        self._topics: dict[str, TopicImage] = {}
        self._prepared: dict[UUID, dict[TopicPartition, Log]] = {}
        self._preparing: dict[str, UUID] = {}  # the topics whose folders are used for a change that is not committed
        self._removed: list[Log] = []
        self._deleted: list[Log] = []  # those whose topic is gone
        self._removed_offline: list[tuple[TopicPartition, UUID]] = []
        self._removal_listeners: list[RemovalListener] = []
        self._leadership_listeners: list[LeadershipListener] = []
        self.offline: dict[TopicPartition, str] = {}
        self.failures = 0
        self.in_sync_shrinks = self.in_sync_expands = 0  # of led partitions

    def on_removal(self, listener: RemovalListener) -> None:
        self._removal_listeners.append(listener)

    def on_assignment(self, listener: AssignmentListener) -> None:
        self._assignment_listeners.append(listener)

    def on_leadership(self, listener: LeadershipListener) -> None:
        self._leadership_listeners.append(listener)

    def __len__(self) -> int:
        return sum(len(partitions) for partitions in self._by_topic.values())

    def all(self) -> list[Partition]:
        return [partition for partitions in self._by_topic.values() for partition in partitions.values()]

    def of_topic(self, topic: str) -> list[Partition]:
        """Return the online replicas of a topic, in order."""
        partitions = self._by_topic.get(topic, {})
        return [partitions[index] for index in sorted(partitions)]

    def find(self, name: TopicPartition) -> Partition | None:
        """Return the replica of a partition, or None if this broker has none or it is offline."""
        return self._by_topic.get(name.topic, {}).get(name.partition)

    def leader(self, topic: str, index: int) -> Partition:
        """Return a partition that this broker leads.

        Raises UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, or KAFKA_STORAGE_ERROR if the replica is offline.
        """
        leaders = self._leaders.get(topic)
        partition = leaders.get(index) if leaders is not None else None
        if partition is None:
            raise self._no_leader(topic, index)
        return partition

    def readable(self, topic: str, index: int) -> Partition:
        """Return a partition that this broker leads or follows. Raises like `leader`.

        A broker that has lost its place in the cluster has none: its followers do not fetch.
        """
        replicas = self._by_topic.get(topic)
        partition = replicas.get(index) if replicas is not None else None
        if partition is None or not self.may_lead:
            raise self._no_leader(topic, index)
        return partition

    def _no_leader(self, topic: str, index: int) -> KafkaError:
        match self.role_of(TopicPartition(topic, index)):
            case Role.OFFLINE:
                reason = self.offline[TopicPartition(topic, index)]
                return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic}-{index} is offline: {reason}")
            case None if not self._exists(topic, index):
                return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{index}")
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {self.node_id} does not lead {topic}-{index}")

    def _exists(self, topic: str, index: int) -> bool:
        image = self._topics.get(topic)
        return image is not None and 0 <= index < len(image.partitions)

    def offline_logs(self) -> list[tuple[TopicPartition, UUID, str]]:
        """Return the partitions that this broker has, but whose log could not be opened.

        Each comes with the id of its topic and the reason. There are none while this broker may not lead.
        """
        if not self.may_lead:
            return []
        return [(name, self._topics[name.topic].topic_id, reason) for name, reason in self.offline.items()]

    def role_of(self, name: TopicPartition) -> Role | None:
        """Return the role of this broker's replica, or None if it has none."""
        if name in self.offline:
            return Role.OFFLINE
        partition = self.find(name)
        return partition.role if partition is not None else None

    def reconfigure(self, defaults: LogConfig) -> None:
        """Use other defaults for keys that topics do not set. Open logs get them when they are configured next."""
        self.defaults = defaults

    def configure(self, partition: Partition, config: LogConfig) -> None:
        """Give an open log another configuration, because the defaults have changed."""
        before = partition.log.config
        partition.log.configure(config)
        if config.min_insync_replicas != before.min_insync_replicas:
            partition.image = None
            self._assign_role(partition, self._topics[partition.name.topic].partitions[partition.name.partition])

    def config_of(self, topic: TopicImage) -> LogConfig:
        return parse(LogConfig, topic.configs, self.defaults)

    # -- following the image

    async def start(self) -> None:
        """Do the work with files in the background from now on, and what has come up during the start."""
        self._is_running = True
        await self.settle()

    def apply(self, before: ClusterImage, now: ClusterImage) -> None:
        """Add, reconfigure and remove replicas until they are those of the image."""
        for name, topic in now.topics.items():
            old = before.topics.get(name)
            if old is topic:
                continue
            if old is not None and old.topic_id != topic.topic_id:
                self._remove(old)
            self._update(topic)
        for name in before.topics.keys() - now.topics.keys():
            self._remove(before.topics[name])

    def reassign_roles(self) -> None:
        """Give every replica its role again, after `may_lead` has changed."""
        for topic in self._topics.values():
            for index, partition in self._by_topic.get(topic.name, {}).items():
                partition.image = None
                self._assign_role(partition, topic.partitions[index])

    def _update(self, topic: TopicImage) -> None:
        config = self.config_of(topic)
        partitions = self._by_topic.setdefault(topic.name, {})
        before = self._topics.get(topic.name)
        self._topics[topic.name] = topic
        for index, partition in list(partitions.items()):
            image = topic.partitions[index]
            if before is None or before.configs != topic.configs:
                partition.log.configure(config)
                partition.image = None  # the in-sync set may be large enough now
            if self.node_id in image.replicas:
                self._assign_role(partition, image)
            else:
                self._remove_replica(partition)
        if self.offline:
            moved = [index for index, image in enumerate(topic.partitions) if self.node_id not in image.replicas]
            self._remove_offline(topic, moved)
        missing = self._missing(topic)
        if missing or topic.topic_id in self._prepared:
            self._add_missing(topic, config, missing)

    def _add_missing(self, topic: TopicImage, config: LogConfig, missing: list[TopicPartition]) -> None:
        """Add the replicas whose logs are prepared. Open the others now, or in the background if clients wait."""
        prepared = self._prepared.get(topic.topic_id, {})
        prepared_config = None  # logs that were prepared together have the same
        later = []
        for name in missing:
            if self._has_rival(topic):
                self.offline[name] = "its folder is used for a topic of the same name, which is being abandoned"
                continue
            log = prepared.pop(name, None)
            try:
                if log is None and self._is_running:
                    later.append(name)
                    continue
                log = log or self._log_dir.make_log(name, config, topic.topic_id)
            except (OSError, SkylogError) as error:
                self._note_offline(name, error)
            else:
                if log.config is not prepared_config and log.config != config:
                    log.configure(config)  # the broker's defaults have changed since it was prepared
                prepared_config = log.config
                self._add(topic, log)
        if not prepared and self._prepared.pop(topic.topic_id, None) is not None:
            self._preparing.pop(topic.name, None)
        if later:
            self._opening.update((topic.topic_id, name.partition) for name in later)
            self._spawn(self._open_later(topic, later))

    def _has_rival(self, topic: TopicImage) -> bool:
        """Whether this broker was about to create another topic of the same name when a different broker did."""
        return self._preparing.get(topic.name, topic.topic_id) != topic.topic_id

    def _note_offline(self, name: TopicPartition, error: Exception) -> None:
        logger.error("%s is offline, its log cannot be opened: %s", name, error)
        self.offline[name] = str(error)

    def _missing(self, topic: TopicImage) -> list[TopicPartition]:
        """Return the partitions that belong on this broker, but are neither open nor being opened, nor offline."""
        present = self._by_topic.get(topic.name, {})
        if len(present) == len(topic.partitions):
            return []
        names = [
            TopicPartition(topic.name, index)
            for index, image in enumerate(topic.partitions)
            if self.node_id in image.replicas
        ]
        return [
            name
            for name in names
            if name.partition not in present
            and name not in self.offline
            and (topic.topic_id, name.partition) not in self._opening
        ]

    def _add(self, topic: TopicImage, log: Log) -> None:
        if self._is_replicated:
            log.restore_high_watermark(self._log_dir.last_high_watermark(log.name))
        self._log_dir.add(log)
        index = log.name.partition
        partition = self._by_topic[topic.name][index] = Partition(log.name, topic.topic_id, log)
        self._assign_role(partition, topic.partitions[index])

    def _assign_role(self, partition: Partition, image: PartitionImage) -> None:
        if partition.image == image:
            return
        topic, index = partition.name
        leaders = self._leaders.setdefault(topic, {})
        led = partition.is_leader
        before = partition.image if led else None
        if image.leader == self.node_id and self.may_lead:
            partition.lead(image, self.node_id, self._clock.monotonic(), is_replicated=self._is_replicated)
            leaders[index] = partition
            if before is not None:
                self._count_in_sync_change(set(before.in_sync_replicas), set(image.in_sync_replicas))
        else:
            leaders.pop(index, None)
            partition.follow(image)
        self._report(partition, led)

    def _count_in_sync_change(self, before: set[int], now: set[int]) -> None:
        self.in_sync_shrinks += bool(before - now)
        self.in_sync_expands += bool(now - before)

    def _report(self, partition: Partition, led: bool) -> None:
        """Call the listeners after a replica has got another role, leader or epoch. `led`: whether it led before."""
        for assigned in self._assignment_listeners:
            assigned(partition)
        if partition.is_leader != led:
            for listener in self._leadership_listeners:
                listener(partition, partition.is_leader)

    def _remove_replica(self, partition: Partition) -> None:
        """Remove a replica that was reassigned to other brokers."""
        topic, index = partition.name
        del self._by_topic[topic][index]
        self._leaders.get(topic, {}).pop(index, None)
        self._removed.append(self._retire(partition))
        logger.info("%s was moved to other brokers", partition.name)

    def _retire(self, partition: Partition) -> Log:
        log = self._log_dir.detach(partition.name)
        for listener in self._removal_listeners:
            listener(log)
        led = partition.is_leader
        partition.retire()
        self._report(partition, led)
        if self._is_running and self._is_replicated:
            self._spawn(self.settle())
        return log

    def _remove(self, topic: TopicImage) -> None:
        self._leaders.pop(topic.name, None)
        for partition in self._by_topic.pop(topic.name, {}).values():
            self._deleted.append(self._retire(partition))
        self._topics.pop(topic.name, None)
        self._remove_offline(topic, range(len(topic.partitions)))
        logger.info("topic %s was deleted", topic.name)

    def _remove_offline(self, topic: TopicImage, indexes: Iterable[int]) -> None:
        """Remove replicas that could not be opened, before another topic uses their names."""
        names = [name for index in indexes if (name := TopicPartition(topic.name, index)) in self.offline]
        for name in names:
            del self.offline[name]
        self._removed_offline += [(name, topic.topic_id) for name in names]
        if names and self._is_running and self._is_replicated:
            self._spawn(self.settle())

    # -- files, off the event loop

    async def prepare(self, topic: TopicImage) -> None:
        """Open the logs that `topic` needs on this broker, before the topic is committed.

        Raises KAFKA_STORAGE_ERROR if one of them cannot be made, and then removes the others.
        """
        names = self._missing(topic)
        config = self.config_of(topic)
        self._preparing[topic.name] = topic.topic_id
        try:
            await self._folders.forget(names)
            async with self._folders.in_use:
                await self._free_names()
                logs = await self._folders.open_all(names, config, topic.topic_id)
        except (OSError, SkylogError) as error:
            await self.abandon(topic)
            reason = f"the logs of topic '{topic.name}' cannot be made: {error}"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason) from error
        self._prepared[topic.topic_id] = {log.name: log for log in logs}

    async def abandon(self, topic: TopicImage) -> None:
        """Remove the logs that were prepared for a topic whose commit failed."""
        prepared = self._prepared.pop(topic.topic_id, {})
        for log in prepared.values():
            log.retire()
        self._removed += prepared.values()
        await self.settle()
        self._preparing.pop(topic.name, None)
        current = self._topics.get(topic.name)
        if current is not None and current.topic_id != topic.topic_id:
            await self.reopen_offline()

    async def settle(self) -> None:
        """Rename the folders of removed logs, which frees their names."""
        async with self._folders.in_use:
            await self._free_names()

    async def _free_names(self) -> None:
        """As `settle`, while `in_use` is held: a topic that was created again may be about to use the same names."""
        removed, self._removed = self._removed, []
        deleted, self._deleted = self._deleted, []
        offline, self._removed_offline = self._removed_offline, []
        if removed:
            self._discard(*await self._folders.set_aside(removed))
        if deleted:
            keep = self._folders.keep_aside if self._is_replicated else self._folders.set_aside
            self.discard_deleted(*await keep(deleted))
        if offline:
            await self._folders.set_unopened_aside(offline)

    async def reopen_offline(self) -> None:
        """Try again to open the logs that could not be opened."""
        for name in list(self.offline):
            async with self._folders.in_use:
                await self._free_names()
                # Otherwise its topic was deleted meanwhile, or its folder is still used for another one.
                if name in self.offline and not self._has_rival(self._topics[name.topic]):
                    await self._reopen(name, self._topics[name.topic])

    async def _reopen(self, name: TopicPartition, topic: TopicImage) -> None:
        config, topic_id = self.config_of(topic), topic.topic_id
        try:
            log = await self._folders.open(name, config, topic_id)
        except (OSError, SkylogError) as error:
            logger.error("%s stays offline: %s", name, error)
            return
        current = self._topics.get(name.topic)
        if current is None or current.topic_id != topic_id or self.offline.pop(name, None) is None:
            log.retire()  # the topic was deleted meanwhile, with its folder
            return
        log.configure(self.config_of(current))
        self._add(current, log)
        logger.info("%s is online again", name)

    async def _open_later(self, topic: TopicImage, names: Sequence[TopicPartition]) -> None:
        """Open the logs of a topic that another broker has created. One that cannot be opened is offline."""
        for start in range(0, len(names), OPENED_AT_ONCE):
            some = names[start : start + OPENED_AT_ONCE]
            async with self._folders.in_use:
                await self._free_names()
                await self._open_some(topic, some)

    async def _open_some(self, topic: TopicImage, names: Sequence[TopicPartition]) -> None:
        """Open logs, unless they are not needed any more. Their names may belong to another topic afterwards."""
        config, topic_id = self.config_of(topic), topic.topic_id
        wanted = [name for name in names if self._current_topic(topic_id, name) is not None]
        outcomes = await self._folders.open_each(wanted, config, topic_id)
        self._opening.difference_update((topic_id, name.partition) for name in names)
        unwanted: list[Log] = []
        for name, outcome in zip(wanted, outcomes, strict=True):
            current = self._current_topic(topic_id, name)
            if isinstance(outcome, Log) and current is not None:
                outcome.configure(self.config_of(current))
                self._add(current, outcome)
            elif isinstance(outcome, Log):
                outcome.retire()
                unwanted.append(outcome)
            elif current is not None:
                self._note_offline(name, outcome)
        if unwanted:
            self._discard(*await self._folders.set_aside(unwanted))

    def _current_topic(self, topic_id: UUID, name: TopicPartition) -> TopicImage | None:
        """Return the present state of a topic. None if it was deleted, or the partition has no replica here."""
        topic = self._topics.get(name.topic)
        if topic is None or topic.topic_id != topic_id or self.node_id not in topic.partitions[name.partition].replicas:
            return None
        return topic

    async def stop(self) -> None:
        """Wait for logs that are being opened or removed. Call it when the image does not change any more."""
        while self._background:
            await asyncio.gather(*self._background, return_exceptions=True)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failures += 1
            logger.error("a change of replicas failed", exc_info=error)
