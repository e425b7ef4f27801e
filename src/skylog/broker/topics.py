"""Administration of topics: the rules for creating, changing and deleting them."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final

from skylog.broker.config import ServerConfig
from skylog.broker.internal_topics import (
    check_may_change,
    check_may_create,
    check_policy,
    default_configs,
    default_count,
    default_replication_factor,
)
from skylog.broker.replica_placement import Assignment, ReplicaPlacement
from skylog.broker.replicas import Replicas
from skylog.cluster import ClusterMetadata, PartitionImage, TopicImage
from skylog.cluster.elections import ElectionRules, settle
from skylog.cluster.metadata import new_partitions, new_topic, topic_exists
from skylog.config import parse
from skylog.errors import ConfigError, ErrorCode, KafkaError
from skylog.model import check_topic_name
from skylog.storage import LogConfig

MAX_PARTITIONS: Final = 100_000

ConfigDecision = Callable[[Mapping[str, str]], Mapping[str, str]]
"""Returns the new configs of a topic, given the present ones. Raises KafkaError."""


class Topics:
    """Create, grow, configure and delete topics. Raises KafkaError with Kafka's error code for each mistake.

    Topics are created, grown and deleted one at a time: the files of one change are in place before the next begins.
    In a cluster every broker can do this; the metadata store decides between changes at the same time.
    """

    def __init__(
        self,
        metadata: ClusterMetadata,
        replicas: Replicas,
        placement: ReplicaPlacement,
        rules: Callable[[TopicImage], ElectionRules],
        config: ServerConfig,
    ) -> None:
        self._metadata = metadata
        self._replicas = replicas
        self._placement = placement
        self._rules = rules
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

    def partition(self, name: str, index: int) -> PartitionImage:
        """Raises UNKNOWN_TOPIC_OR_PARTITION."""
        topic = self._metadata.image.topics.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}-{index}")
        return topic.partitions[index]

    def plan(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        assignment: Mapping[int, Sequence[int]] | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> list[list[int]]:
        """Check a topic before it is created, and return the brokers of each of its partitions."""
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
            return self._placement.check([assignment[index] for index in range(len(assignment))])
        count = default_count(name, self._config) if partitions == -1 else partitions
        replicas = default_replication_factor(name, self._config) if replication_factor == -1 else replication_factor
        check_count(count)
        return self._placement.place(count, replicas)

    def plan_growth(self, topic: TopicImage, count: int, assignment: Assignment | None) -> list[list[int]]:
        """Check new partitions for a topic, and return the brokers of each."""
        check_may_change(topic.name, "grow")
        added = count - len(topic.partitions)
        if added <= 0:
            what = "already has" if added == 0 else "cannot shrink: it has"
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS, f"topic '{topic.name}' {what} {len(topic.partitions)} partitions"
            )
        check_count(count)
        if assignment is None:
            return self._placement.extend(topic, added)
        if len(assignment) != added:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{added} partitions are new, {len(assignment)} are assigned"
            )
        return self._placement.check(assignment, topic)

    def complete(self, name: str, configs: Mapping[str, str] | None) -> dict[str, str]:
        """Return the configs of a new topic: those given, and those that an internal topic needs."""
        return {**default_configs(name, self._config), **(configs or {})}

    def check_configs(self, name: str, configs: Mapping[str, str]) -> None:
        """Raise INVALID_CONFIG if a topic may not have these overrides."""
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
            self._metadata.check_size(topic)
            return await self._commit(topic, self._metadata.create_topic)

    async def grow(self, topic: TopicImage, assignment: Assignment) -> TopicImage:
        async with self._changing:
            grown = dataclasses.replace(topic, partitions=topic.partitions + new_partitions(assignment))
            self._metadata.check_size(grown, topic)
            return await self._commit(grown, lambda grown: self._metadata.change_topic(topic, partial(_grow, grown)))

    async def _commit(self, topic: TopicImage, commit: Callable[[TopicImage], Awaitable[TopicImage]]) -> TopicImage:
        """Open the logs of a topic, then commit it. If the logs cannot be opened, the topic is not created."""
        await self._replicas.prepare(topic)
        try:
            return await commit(topic)
        except BaseException:
            await self._replicas.abandon(topic)
            raise

    def check_may_delete(self, topic: TopicImage) -> None:
        """Raise KafkaError if no client may delete a topic."""
        if not self._config.broker.delete_topic_enable:
            raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable=false")
        check_may_change(topic.name, "be deleted")

    async def delete(self, topic: TopicImage) -> None:
        self.check_may_delete(topic)
        async with self._changing:
            await self._metadata.delete_topic(topic)
            await self._replicas.settle()

    async def configure(self, topic: TopicImage, change: ConfigDecision) -> TopicImage:
        """Give a topic other configs."""
        return await self._metadata.change_topic(topic, partial(self._configured, change))

    def _configured(self, change: ConfigDecision, current: TopicImage) -> TopicImage:
        """Return a topic with other configs.

        If `min.insync.replicas` changes, eligible replicas are removed that are not needed with the old or with the
        new value.
        """
        configs = dict(change(current.configs))
        self.check_configs(current.name, configs)
        if configs == current.configs:
            return current
        changed = dataclasses.replace(current, configs=configs)
        self._metadata.check_size(changed, current)
        old, new = self._rules(current), self._rules(changed)
        if old.min_in_sync == new.min_in_sync:
            return changed
        return dataclasses.replace(changed, partitions=tuple(settle(settle(p, old), new) for p in changed.partitions))

    def _check_collision(self, name: str) -> None:
        """Raise INVALID_TOPIC_EXCEPTION if another name differs in '.' and '_' only: metrics would merge the two."""
        folded = name.replace(".", "_")
        if folded == name and "_" not in name:
            return
        for other in self._metadata.image.topics:
            if other.replace(".", "_") == folded:
                raise KafkaError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION,
                    f"topic '{name}' collides with '{other}': '.' and '_' count as one",
                )


def _grow(grown: TopicImage, current: TopicImage) -> TopicImage:
    """Return the current state with the new partitions of `grown`."""
    new = grown.partitions[len(current.partitions) :]
    if not new or len(current.partitions) + len(new) != len(grown.partitions):
        raise _changed(current.name)
    return dataclasses.replace(current, partitions=current.partitions + new)


def _changed(name: str) -> KafkaError:
    return KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"topic '{name}' was changed at the same time; try again")


def check_count(count: int) -> None:
    if not 0 < count <= MAX_PARTITIONS:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, f"a topic has 1 to {MAX_PARTITIONS} partitions, {count} were asked for"
        )
