"""The partitions of this broker, kept in step with the cluster's image.

Files are made and renamed off the event loop: `prepare` opens the logs of a topic before it is committed, `settle` sets
the folders of a deleted one aside. What the image demands is then a matter of dictionaries. A log that cannot be opened
leaves its partition offline, which is reported and retried; the others are served.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from skylog.broker.partition import Partition
from skylog.cluster import ClusterImage, TopicImage
from skylog.config import parse
from skylog.errors import ErrorCode, KafkaError, SkylogError
from skylog.model import TopicPartition
from skylog.storage import Log, LogConfig, LogDir
from skylog.storage.log_dir import delete, set_aside, set_log_aside

logger = logging.getLogger(__name__)

T = TypeVar("T")
RemovalListener = Callable[[Log], None]
"""Called on the event loop with a log that has just been taken out of use."""


class Partitions:
    """By topic and number. `discard` is handed the folders of logs that have been removed."""

    def __init__(self, log_dir: LogDir, defaults: LogConfig, executor: Executor, discard: Callable[..., None]) -> None:
        self._log_dir = log_dir
        self._defaults = defaults
        self._executor = executor
        self._discard = discard
        self._by_topic: dict[str, dict[int, Partition]] = {}
        self._topics: dict[str, TopicImage] = {}
        self._prepared: dict[UUID, dict[TopicPartition, Log]] = {}
        self._removed: list[Log] = []
        self._removed_offline: list[TopicPartition] = []
        self._using_folders = asyncio.Lock()  # opening one may take long, and nobody may rename it meanwhile
        self._removal_listeners: list[RemovalListener] = []
        self.offline: dict[TopicPartition, str] = {}

    def on_removal(self, listener: RemovalListener) -> None:
        self._removal_listeners.append(listener)

    def __len__(self) -> int:
        return sum(len(partitions) for partitions in self._by_topic.values())

    def all(self) -> list[Partition]:
        return [partition for partitions in self._by_topic.values() for partition in partitions.values()]

    def of_topic(self, topic: str) -> list[Partition]:
        """The partitions of a topic that are online, in order."""
        partitions = self._by_topic.get(topic, {})
        return [partitions[index] for index in sorted(partitions)]

    def find(self, name: TopicPartition) -> Partition | None:
        """The partition, unless it does not exist or is offline."""
        return self._by_topic.get(name.topic, {}).get(name.partition)

    def get(self, topic: str, index: int) -> Partition:
        """Raises UNKNOWN_TOPIC_OR_PARTITION, and KAFKA_STORAGE_ERROR for a partition that is offline."""
        partitions = self._by_topic.get(topic)
        partition = partitions.get(index) if partitions is not None else None
        if partition is None:
            reason = self.offline.get(TopicPartition(topic, index))
            if reason is not None:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic}-{index} is offline: {reason}")
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{index}")
        return partition

    def reconfigure(self, defaults: LogConfig) -> None:
        """Use other defaults for what topics do not set; logs that are open get them when they are configured next."""
        self._defaults = defaults

    def config_of(self, topic: TopicImage) -> LogConfig:
        return parse(LogConfig, topic.configs, self._defaults)

    # -- following the image

    def apply(self, before: ClusterImage, now: ClusterImage) -> None:
        """Take in, reconfigure and remove partitions so that they are those of the image."""
        for name, topic in now.topics.items():
            old = before.topics.get(name)
            if old is topic:
                continue
            if old is not None and old.topic_id != topic.topic_id:
                self._remove(old)
            self._update(topic)
        for name in before.topics.keys() - now.topics.keys():
            self._remove(before.topics[name])

    def _update(self, topic: TopicImage) -> None:
        config = self.config_of(topic)
        partitions = self._by_topic.setdefault(topic.name, {})
        self._topics[topic.name] = topic
        for index, partition in partitions.items():
            partition.leader_epoch = topic.partitions[index].leader_epoch
            partition.log.configure(config)
        prepared = self._prepared.get(topic.topic_id, {})
        prepared_config = None  # all logs that were prepared together have the same
        for name in self._missing(topic):
            try:
                log = prepared.pop(name, None) or self._log_dir.make_log(name, config, topic.topic_id)
            except (OSError, SkylogError) as error:
                logger.error("%s is offline, its log cannot be opened: %s", name, error)
                self.offline[name] = str(error)
            else:
                if log.config is not prepared_config and log.config != config:
                    log.configure(config)  # the broker's defaults have changed since it was prepared
                prepared_config = log.config
                self._take_in(topic, log)
        if not prepared:
            self._prepared.pop(topic.topic_id, None)

    def _missing(self, topic: TopicImage) -> list[TopicPartition]:
        present = self._by_topic.get(topic.name, {})
        names = [TopicPartition(topic.name, index) for index in range(len(topic.partitions))]
        return [name for name in names if name.partition not in present and name not in self.offline]

    def _take_in(self, topic: TopicImage, log: Log) -> None:
        self._log_dir.add(log)
        index = log.name.partition
        leader_epoch = topic.partitions[index].leader_epoch
        self._by_topic[topic.name][index] = Partition(log.name, topic.topic_id, leader_epoch, log)

    def _remove(self, topic: TopicImage) -> None:
        for partition in self._by_topic.pop(topic.name, {}).values():
            log = self._log_dir.detach(partition.name)
            self._removed.append(log)
            for listener in self._removal_listeners:
                listener(log)
            partition.retire()
        self._topics.pop(topic.name, None)
        for index in range(len(topic.partitions)):
            name = TopicPartition(topic.name, index)
            if self.offline.pop(name, None) is not None:
                self._removed_offline.append(name)
        logger.info("topic %s was deleted", topic.name)

    # -- files, off the event loop

    async def prepare(self, topic: TopicImage) -> None:
        """Open the logs that `topic` will need, so that the image can show it at once.

        Raises KAFKA_STORAGE_ERROR where the disk has no room for one of them, and then leaves nothing behind.
        """
        names = self._missing(topic)
        config = self.config_of(topic)
        write_checkpoints = self._log_dir.forget(names)
        try:
            if write_checkpoints is not None:
                await self._run(write_checkpoints)
            async with self._using_folders:
                logs = await self._run(lambda: self._make_logs(names, config, topic.topic_id))
        except (OSError, SkylogError) as error:
            reason = f"the logs of topic '{topic.name}' cannot be made: {error}"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason) from error
        self._prepared[topic.topic_id] = {log.name: log for log in logs}

    def _make_logs(self, names: Iterable[TopicPartition], config: LogConfig, topic_id: UUID) -> list[Log]:
        logs: list[Log] = []
        for name in names:
            try:
                logs.append(self._log_dir.make_log(name, config, topic_id))
            except BaseException:
                for folder in [*(log.directory for log in logs), self._log_dir.path / str(name)]:
                    if folder.exists():
                        delete(set_aside(folder))
                raise
        return logs

    async def abandon(self, topic: TopicImage) -> None:
        """Remove the logs that were prepared for a topic that has not come about."""
        prepared = self._prepared.pop(topic.topic_id, {})
        for log in prepared.values():
            log.retire()
        self._removed += prepared.values()
        await self.settle()

    async def settle(self) -> None:
        """Set the folders of removed logs aside: from then on others may take their names."""
        removed, self._removed = self._removed, []
        offline, self._removed_offline = self._removed_offline, []
        if removed:
            self._discard(*await self._run(lambda: _set_aside_all(removed)))
        if offline:
            async with self._using_folders:
                await self._run(lambda: self._set_aside_offline(offline))

    def _set_aside_offline(self, names: Iterable[TopicPartition]) -> None:
        """Free the names of logs that could not be opened. What is in their folders is for the next start to remove."""
        for name in names:
            folder = self._log_dir.path / str(name)
            try:
                if folder.is_dir():
                    set_aside(folder)
            except OSError as error:
                logger.error("%s cannot be removed now, the next start removes it: %s", folder, error)

    async def reopen_offline(self) -> None:
        """Try the logs again that could not be opened."""
        for name in list(self.offline):
            async with self._using_folders:
                if name in self.offline:  # otherwise its topic was deleted meanwhile
                    await self._reopen(name, self._topics[name.topic])

    async def _reopen(self, name: TopicPartition, topic: TopicImage) -> None:
        config, topic_id = self.config_of(topic), topic.topic_id
        try:
            log = await self._run(lambda: self._log_dir.make_log(name, config, topic_id))
        except (OSError, SkylogError) as error:
            logger.error("%s stays offline: %s", name, error)
            return
        current = self._topics.get(name.topic)
        if current is None or current.topic_id != topic_id or self.offline.pop(name, None) is None:
            log.retire()  # the topic was deleted meanwhile, with its folder
            return
        log.configure(self.config_of(current))
        self._take_in(current, log)
        logger.info("%s is online again", name)

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)


def _set_aside_all(logs: Iterable[Log]) -> list[Path]:
    """The new paths of the logs' folders. One that cannot be renamed stays: its id keeps other topics from using it."""
    folders = []
    for log in logs:
        try:
            folders.append(set_log_aside(log))
        except OSError as error:
            logger.error("%s cannot be removed now, the next start removes it: %s", log.directory, error)
    return folders
