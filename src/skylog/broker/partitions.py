"""The partitions of this broker, kept in step with the cluster's image."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from skylog.broker.partition import Partition
from skylog.cluster import ClusterImage, TopicImage
from skylog.config import parse
from skylog.errors import ErrorCode, KafkaError, SkylogError
from skylog.model import TopicPartition
from skylog.storage import LogConfig, LogDir

logger = logging.getLogger(__name__)


class Partitions:
    """By topic and number. `discard` is handed the folder of each log that has been removed."""

    def __init__(self, log_dir: LogDir, defaults: LogConfig, discard: Callable[[Path], None]) -> None:
        self._log_dir = log_dir
        self._defaults = defaults
        self._discard = discard
        self._by_topic: dict[str, list[Partition]] = {}

    def __len__(self) -> int:
        return sum(len(partitions) for partitions in self._by_topic.values())

    def all(self) -> list[Partition]:
        return [partition for partitions in self._by_topic.values() for partition in partitions]

    def of_topic(self, topic: str) -> list[Partition]:
        return self._by_topic.get(topic, [])

    def get(self, topic: str, index: int) -> Partition:
        """Raises UNKNOWN_TOPIC_OR_PARTITION."""
        partitions = self._by_topic.get(topic)
        if partitions is None or not 0 <= index < len(partitions):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{index}")
        return partitions[index]

    def config_of(self, topic: TopicImage) -> LogConfig:
        return parse(LogConfig, topic.configs, self._defaults)

    def apply(self, before: ClusterImage, now: ClusterImage) -> None:
        """Open, reconfigure and remove logs so that they are those of the image."""
        for name, topic in now.topics.items():
            old = before.topics.get(name)
            if old is topic:
                continue
            if old is not None and old.topic_id != topic.topic_id:
                self._remove(name)
            self._update(topic)
        for name in before.topics.keys() - now.topics.keys():
            self._remove(name)

    def _update(self, topic: TopicImage) -> None:
        config = self.config_of(topic)
        partitions = self._by_topic.setdefault(topic.name, [])
        for partition, image in zip(partitions, topic.partitions, strict=False):
            partition.leader_epoch = image.leader_epoch
            partition.log.configure(config)
        for index in range(len(partitions), len(topic.partitions)):
            name = TopicPartition(topic.name, index)
            try:
                log = self._log_dir.open_log(name, config)
            except OSError as error:
                raise SkylogError(f"cannot open the log {self._log_dir.path / str(name)}: {error}") from error
            partitions.append(Partition(name, topic.topic_id, topic.partitions[index].leader_epoch, log))

    def _remove(self, topic: str) -> None:
        for partition in self._by_topic.pop(topic, []):
            self._discard(self._log_dir.remove_log(partition.name))
            partition.retire()
        logger.info("topic %s was deleted", topic)
