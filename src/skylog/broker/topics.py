"""Administration of topics: what may be created, changed and deleted, and by which rules."""

from __future__ import annotations

import asyncio
import dataclasses
import resource
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from skylog.broker.config import ServerConfig
from skylog.broker.internal_topics import (
    check_may_change,
    check_may_create,
    check_policy,
    default_configs,
    default_count,
)
from skylog.broker.partitions import Partitions
from skylog.cluster import ClusterMetadata, TopicImage
from skylog.cluster.metadata import new_partitions, new_topic, topic_exists
from skylog.config import parse
from skylog.errors import ConfigError, ErrorCode, KafkaError
from skylog.model import check_topic_name
from skylog.storage import LogConfig

MAX_PARTITIONS: Final = 100_000
SHARE_OF_DESCRIPTORS: Final = 0.75  # each log keeps a file open; the rest is for connections and closed segments

Assignment = Sequence[Sequence[int]]


class Topics:
    """The rules for topics. Raises KafkaError with the code that Kafka gives for each mistake.

    Topics are created, grown and deleted one at a time: the files of one change are in place before the next begins.
    """

    def __init__(self, metadata: ClusterMetadata, partitions: Partitions, config: ServerConfig) -> None:
        self._metadata = metadata
        self._partitions = partitions
        self._config = config
        self._changing = asyncio.Lock()

    def reconfigure(self, config: ServerConfig) -> None:
        """Use another configuration from now on."""
        self._config = config

    def get(self, name: str) -> TopicImage:
        topic = self._metadata.image.topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic '{name}'")
        return topic

    def plan(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        assignment: Mapping[int, Sequence[int]] | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> list[list[int]]:
        """Check a topic that somebody wants; the brokers of each of its partitions."""
        check_topic_name(name)
        check_may_create(name)
        if name in self._metadata.image.topics:
            raise topic_exists(name)
        self._check_collision(name)
        self.check_configs(name, self.complete(name, configs))
        if assignment:
            if partitions != -1 or replication_factor != -1:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, "give either counts or a replica assignment for a topic, not both"
                )
            if sorted(assignment) != list(range(len(assignment))):
                raise KafkaError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions of an assignment must be numbered from 0 on"
                )
            self._check_room(len(assignment))
            return self._check_assignment([assignment[index] for index in range(len(assignment))])
        count = default_count(name, self._config) if partitions == -1 else partitions
        replicas = self._config.broker.default_replication_factor if replication_factor == -1 else replication_factor
        check_count(count)
        self._check_room(count)
        return self._place(count, replicas)

    def plan_growth(self, topic: TopicImage, count: int, assignment: Assignment | None) -> list[list[int]]:
        """Check new partitions for a topic; the brokers of each."""
        check_may_change(topic.name, "grow")
        added = count - len(topic.partitions)
        if added <= 0:
            what = "has" if added == 0 else "cannot shrink: it has"
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS, f"topic '{topic.name}' {what} {len(topic.partitions)} partitions"
            )
        check_count(count)
        self._check_room(added)
        if assignment is None:
            return self._place(added, len(topic.partitions[0].replicas))
        if len(assignment) != added:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{added} partitions are new, {len(assignment)} are assigned"
            )
        return self._check_assignment(assignment)

    def complete(self, name: str, configs: Mapping[str, str] | None) -> dict[str, str]:
        """The configs of a new topic: those given, and those that an internal topic cannot do without."""
        return {**default_configs(name, self._config), **(configs or {})}

    def check_configs(self, name: str, configs: Mapping[str, str]) -> None:
        """Raise INVALID_CONFIG unless these may be all the overrides of the topic."""
        try:
            effective = parse(LogConfig, configs, self._config.log)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
        conflict = effective.conflict()
        if conflict is not None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, conflict)
        check_policy(name, effective)

    async def create(self, name: str, assignment: Assignment, configs: Mapping[str, str] | None = None) -> TopicImage:
        async with self._changing:
            if name in self._metadata.image.topics:
                raise topic_exists(name)
            topic = new_topic(name, assignment, self.complete(name, configs))
            return await self._commit(topic, self._metadata.create_topic)

    async def grow(self, topic: TopicImage, assignment: Assignment) -> TopicImage:
        async with self._changing:
            grown = dataclasses.replace(topic, partitions=topic.partitions + new_partitions(assignment))
            return await self._commit(grown, self._metadata.replace_topic)

    async def _commit(self, topic: TopicImage, commit: Callable[[TopicImage], Awaitable[TopicImage]]) -> TopicImage:
        """Commit a topic whose logs are there: what cannot be stored is refused, not left half-made."""
        await self._partitions.prepare(topic)
        try:
            return await commit(topic)
        except BaseException:
            await self._partitions.abandon(topic)
            raise

    async def delete(self, topic: TopicImage) -> None:
        if not self._config.broker.delete_topic_enable:
            raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable=false")
        check_may_change(topic.name, "be deleted")
        async with self._changing:
            await self._metadata.delete_topic(topic)
            await self._partitions.settle()

    async def configure(self, topic: TopicImage, configs: Mapping[str, str]) -> TopicImage:
        return await self._metadata.replace_topic(dataclasses.replace(topic, configs=dict(configs)))

    def _check_room(self, added: int) -> None:
        """A topic that cannot be opened for want of descriptors would keep the broker from starting ever again."""
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        present = sum(len(topic.partitions) for topic in self._metadata.image.topics.values())
        if limit != resource.RLIM_INFINITY and present + added > limit * SHARE_OF_DESCRIPTORS:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"{added} more partitions than the present {present} need more open files than the limit of {limit} "
                "has room for; raise it (ulimit -n) and start the broker again",
            )

    def _check_collision(self, name: str) -> None:
        """Kafka forbids names that differ in '.' and '_' only: their metrics would have one name."""
        folded = name.replace(".", "_")
        if folded == name and "_" not in name:
            return
        for other in self._metadata.image.topics:
            if other.replace(".", "_") == folded:
                raise KafkaError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION,
                    f"topic '{name}' collides with '{other}': '.' and '_' count as one",
                )

    def _place(self, count: int, replicas: int) -> list[list[int]]:
        brokers = sorted(self._metadata.image.brokers)
        if replicas < 1:
            raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "the replication factor must be at least 1")
        if replicas > len(brokers):
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"a replication factor of {replicas} needs as many brokers; there are {len(brokers)}",
            )
        return [[brokers[(first + i) % len(brokers)] for i in range(replicas)] for first in range(count)]

    def _check_assignment(self, assignment: Assignment) -> list[list[int]]:
        known = self._metadata.image.brokers
        for ids in assignment:
            if not ids or len(set(ids)) != len(ids) or len(ids) != len(assignment[0]):
                raise KafkaError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT, "each partition needs the same number of different brokers"
                )
            missing = [node for node in ids if node not in known]
            if missing:
                raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"there is no broker {missing[0]}")
        return [list(ids) for ids in assignment]


def check_count(count: int) -> None:
    if not 0 < count <= MAX_PARTITIONS:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, f"a topic has 1 to {MAX_PARTITIONS} partitions, {count} were asked for"
        )
