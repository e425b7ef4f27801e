"""Administration of topics: create, describe, change, delete."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import OFFSET_INVALID, KafkaException, TopicCollection
from confluent_kafka import KafkaError as LibraryError
from confluent_kafka import TopicPartition as LibraryPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from skylog.client.connection import Connection
from skylog.client.errors import BrokerUnreachableError, TopicNotFoundError
from skylog.client.topic import ConfigValue, OffsetRange, Partition, Topic
from skylog.errors import ErrorCode, KafkaError, SkylogError
from skylog.model import NO_OFFSET, TopicPartition

BROKER_DECIDES: Final = -1

_RETRY_S: Final = 0.1

_OFFSETS: Final[Any] = OffsetSpec  # its methods are untyped

_UNAVAILABLE: Final = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        LibraryError._NOENT,  # none of the requested partitions has a leader
        LibraryError._UNKNOWN_PARTITION,
        LibraryError._UNKNOWN_TOPIC,
    }
)

_NOT_AUTHORIZED: Final = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED})

_SOURCES: Final = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG.value: "topic",
    ConfigSource.DYNAMIC_BROKER_CONFIG.value: "broker",
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value: "cluster",
    ConfigSource.STATIC_BROKER_CONFIG.value: "broker",
    ConfigSource.DEFAULT_CONFIG.value: "default",
}


class Admin:
    """Administers the topics of one cluster. For its consumer groups, see `ConsumerGroups`.

    Methods raise TopicNotFoundError for an unknown topic, BrokerUnreachableError if no broker answers, and KafkaError
    with the cluster's message for a request that it rejects.
    """

    def __init__(self, bootstrap: str | Connection | None = None, client: AdminClient | None = None) -> None:
        """`client` is an existing client of the connection to share; by default a new one is created."""
        self._connection = bootstrap if isinstance(bootstrap, Connection) else Connection(bootstrap)
        self._client = client or self._connection.admin_client()

    # -- reading

    def list_topics(self) -> list[Topic]:
        """Return all topics, sorted by name."""
        found = self._connection.metadata(self._client).topics
        return [
            Topic(
                name,
                tuple(
                    Partition(index, row.leader, tuple(row.replicas), tuple(row.isrs))
                    for index, row in sorted(found[name].partitions.items())
                ),
            )
            for name in sorted(found)
        ]

    def describe_topics(self, names: Iterable[str]) -> list[Topic]:
        """Return the topics with these names. Raises TopicNotFoundError for the first that does not exist."""
        known = {topic.name: topic for topic in self.list_topics()}
        topics = []
        for name in names:
            if name not in known:
                raise TopicNotFoundError(name, known)
            topics.append(known[name])
        return topics

    def describe_topic(self, name: str) -> Topic:
        """Return one topic. Raises TopicNotFoundError."""
        return self.describe_topics([name])[0]

    def topic_ids(self, names: Iterable[str], timeout_s: float | None = None) -> dict[str, str]:
        """Return the ids of topics, without those that do not exist. One that was created again has another id.

        On a cluster without ids (Apache Kafka before 2.8), all have the same one.
        """
        found, limit_s = {}, self._connection.timeout_s if timeout_s is None else timeout_s
        wanted = TopicCollection(list(names))
        for name, future in self._client.describe_topics(wanted, request_timeout=limit_s).items():
            try:
                found[name] = str(self._result(future, f"topic '{name}'").topic_id)
            except KafkaError as error:
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
        return found

    def offset_ranges(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, OffsetRange]:
        """Return start and end offset of each partition. Raises for the first that is not available."""
        starts = self._list_offsets(partitions, _OFFSETS.earliest())
        ends = self._list_offsets(partitions, _OFFSETS.latest())
        return {partition: OffsetRange(starts[partition], ends[partition]) for partition in partitions}

    def reachable_offset_ranges(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, OffsetRange]:
        """Like `offset_ranges`, but without unavailable partitions, to monitor a cluster that is partly down.

        Leaves out partitions without a leader, with a leader that does not answer, and those that were just deleted.
        Raises BrokerUnreachableError if no broker answers at all. Not for reading messages: those of the partitions
        left out would be skipped.
        """
        starts = self._reachable_offsets(partitions, _OFFSETS.earliest())
        ends = self._reachable_offsets(list(starts), _OFFSETS.latest())
        if partitions and not ends:
            self._connection.metadata(self._client)
        return {partition: OffsetRange(starts[partition], end) for partition, end in ends.items()}

    def offsets_at(self, partitions: Sequence[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, int | None]:
        """Return the offset of each partition's first message at or after a time; None if there is none."""
        found = self._list_offsets(partitions, _OFFSETS.for_timestamp(timestamp_ms))
        return {partition: None if offset == NO_OFFSET else offset for partition, offset in found.items()}

    def describe_configs(self, name: str) -> list[ConfigValue]:
        """Return all keys of a topic's configuration, sorted by name."""
        return self.describe_configs_of([name])[name]

    def describe_configs_of(self, names: Iterable[str]) -> dict[str, list[ConfigValue]]:
        """Like `describe_configs`, for many topics in one request. Raises KafkaError for the first that is missing."""
        futures = self._request_configs(names)
        return {name: _config_values(self._result(future, f"topic '{name}'")) for name, future in futures.items()}

    def visible_configs_of(self, names: Iterable[str]) -> dict[str, list[ConfigValue] | None]:
        """Like `describe_configs_of`, without missing topics, and with None for those that you may not describe."""
        found: dict[str, list[ConfigValue] | None] = {}
        for name, future in self._request_configs(names).items():
            try:
                found[name] = _config_values(self._result(future, f"topic '{name}'"))
            except KafkaError as error:
                if error.code in _NOT_AUTHORIZED:
                    found[name] = None
                elif error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
        return found

    def describe_broker_configs(self) -> list[ConfigValue]:
        """Return all keys of the configuration of the broker that creates topics, sorted by name."""
        metadata = self._connection.metadata(self._client)
        node_id = metadata.controller_id if metadata.controller_id in metadata.brokers else min(metadata.brokers)
        resource = ConfigResource(ResourceType.BROKER, str(node_id))
        futures = self._client.describe_configs([resource], request_timeout=self._connection.timeout_s)
        return _config_values(self._result(futures[resource], f"cannot read the configuration of broker {node_id}"))

    # -- changing

    def create_topic(
        self,
        name: str,
        partitions: int = BROKER_DECIDES,
        replication_factor: int = BROKER_DECIDES,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic; without a replication factor, with that of the cluster. Raises KafkaError if it exists."""
        topic = NewTopic(name, partitions, replication_factor, config=dict(configs or {}))
        self._result(self._start(self._client.create_topics, [topic])[name], f"cannot create topic '{name}'")

    def add_partitions(self, name: str, total: int) -> None:
        """Increase a topic's partitions to `total`. This cannot be undone."""
        self.describe_topic(name)
        growth = self._start(self._client.create_partitions, [NewPartitions(name, total)])
        self._result(growth[name], f"cannot give topic '{name}' {total} partitions")
        self._connection.metadata(self._client)  # librdkafka would keep the old number for minutes

    def alter_configs(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Set keys of a topic's configuration; None removes the topic's own value, so that the default applies."""
        self.describe_topic(name)
        entries = [
            ConfigEntry(
                key,
                "" if value is None else value,
                incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
            )
            for key, value in changes.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        altered = self._start(self._client.incremental_alter_configs, [resource])
        self._result(altered[resource], f"cannot change topic '{name}'")

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics with all their messages. Deletes none of them if one does not exist."""
        self.describe_topics(names)
        deleted = self._start(self._client.delete_topics, list(names))
        for name in names:
            self._result(deleted[name], f"cannot delete topic '{name}'")

    def delete_records(self, name: str, before: Mapping[int, int]) -> None:
        """Delete a topic's oldest messages: in each given partition, those before an offset."""
        self.describe_topic(name)
        wanted = [LibraryPartition(name, partition, offset) for partition, offset in before.items()]
        for key, future in self._start(self._client.delete_records, wanted).items():
            self._result(future, f"cannot delete from {name}-{key.partition} before offset {before[key.partition]}")

    # -- librdkafka

    def _list_offsets(self, partitions: Sequence[TopicPartition], spec: Any) -> dict[TopicPartition, int]:
        """Ask again, until the timeout, for those whose new leader does not know them yet (KIP-207)."""
        found: dict[TopicPartition, int] = {}
        missing, deadline = list(partitions), time.monotonic() + self._connection.timeout_s
        while missing:
            futures, missing = self._request_offsets(missing, spec), []
            for key, future in futures.items():
                try:
                    found[key] = self._offset(key, future)
                except KafkaError as error:
                    if error.code is not ErrorCode.OFFSET_NOT_AVAILABLE or time.monotonic() > deadline:
                        raise
                    missing.append(key)
            if missing:
                time.sleep(_RETRY_S)
        return {key: found[key] for key in partitions}

    def _offset(self, key: TopicPartition, future: Future[Any]) -> int:
        offset: int = self._result(future, str(key)).offset
        if offset == OFFSET_INVALID:  # the leader went away; librdkafka reports no error then
            raise BrokerUnreachableError(self._connection.bootstrap, f"{key} has no leader")
        return offset

    def _reachable_offsets(self, partitions: Sequence[TopicPartition], spec: Any) -> dict[TopicPartition, int]:
        found = {}
        for key, future in self._request_offsets(partitions, spec).items():
            try:
                found[key] = self._offset(key, future)
            except BrokerUnreachableError:
                continue
            except SkylogError as error:
                cause = error.__cause__
                if not isinstance(cause, KafkaException) or cause.args[0].code() not in _UNAVAILABLE:
                    raise
        return found

    def _request_offsets(self, partitions: Sequence[TopicPartition], spec: Any) -> dict[TopicPartition, Future[Any]]:
        if not partitions:
            return {}
        wanted = {LibraryPartition(each.topic, each.partition): spec for each in partitions}
        futures = self._client.list_offsets(wanted, request_timeout=self._connection.timeout_s)
        return {TopicPartition(key.topic, key.partition): future for key, future in futures.items()}

    def _request_configs(self, names: Iterable[str]) -> dict[str, Future[Any]]:
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        if not resources:
            return {}
        futures = self._client.describe_configs(resources, request_timeout=self._connection.timeout_s)
        return {resource.name: future for resource, future in futures.items()}

    def _start(self, operation: Any, items: list[Any]) -> dict[Any, Future[Any]]:
        """Start an operation of the library, after checking that a broker answers."""
        self._connection.metadata(self._client)
        futures: dict[Any, Future[Any]] = operation(items, request_timeout=self._connection.timeout_s)
        return futures

    def _result(self, future: Future[Any], doing: str) -> Any:
        try:
            return future.result(self._connection.timeout_s + 1)
        except KafkaException as error:
            raise self._connection.error(error, doing) from error


def _config_values(entries: Mapping[str, Any]) -> list[ConfigValue]:
    return [
        ConfigValue(key, entries[key].value, _SOURCES.get(entries[key].source, "unknown")) for key in sorted(entries)
    ]
