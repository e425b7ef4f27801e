"""The driver's view of a cluster: which partitions there are, where they begin and end, what a group has committed.

Goes through librdkafka, so that every security setting works. Executors don't import this.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, IsolationLevel, KafkaException
from confluent_kafka import TopicPartition as LibraryPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # re-exported without a word

from skylog.client import Connection
from skylog.errors import SkylogError
from skylog.model import NO_OFFSET, TopicPartition
from skylog.spark.kafka_settings import is_read_committed, library_settings
from skylog.spark.reading.group_commits import GroupCommits

T = TypeVar("T")

logger = logging.getLogger(__name__)

_UNKNOWN_PROPERTY: Final = re.compile(r'No such configuration property: "(.+)"')
_SPEC: Final[Any] = OffsetSpec  # its methods carry no types


class Cluster:
    """Asks a cluster. One object serves one thread. Raises what `skylog.client` raises."""

    def __init__(self, kafka: Mapping[str, str]) -> None:
        self._kafka = kafka
        self._connection = UserConnection(kafka)
        self._commits: dict[str, GroupCommits] = {}
        self._client = self._connection.admin_client()
        level = IsolationLevel.READ_COMMITTED if is_read_committed(kafka) else IsolationLevel.READ_UNCOMMITTED
        self._isolation: Any = level

    def topics(self) -> dict[str, list[int]]:
        """Every topic with the numbers of its partitions."""
        found = self._connection.metadata(self._client).topics
        return {name: sorted(topic.partitions) for name, topic in found.items()}

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._list_offsets(dict.fromkeys(partitions, _SPEC.earliest()))

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._list_offsets(dict.fromkeys(partitions, _SPEC.latest()))

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset whose record is at or after a time; None where there is none."""
        found = self._list_offsets({key: _SPEC.for_timestamp(time_ms) for key, time_ms in times.items()})
        return {key: None if offset == NO_OFFSET else offset for key, offset in found.items()}

    def committed(self, group: str, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """What a group has committed, of those partitions where it has."""
        asked = [ConsumerGroupTopicPartitions(group, [LibraryPartition(*key) for key in partitions])]
        futures = self._client.list_consumer_group_offsets(asked, request_timeout=self._connection.timeout_s)
        rows = self._group_rows(futures, group, "read the offsets")
        return {TopicPartition(row.topic, row.partition): row.offset for row in rows if row.offset >= 0}

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit for a group that has no members. Raises KafkaError if it has."""
        if group not in self._commits:
            self._commits[group] = GroupCommits(UserConnection(self._kafka), group)
        self._commits[group].commit(offsets)

    def _group_rows(self, futures: Mapping[str, Any], group: str, doing: str) -> list[LibraryPartition]:
        doing = f"cannot {doing} of group '{group}'; it must have no members of another kind"
        try:
            rows: list[LibraryPartition] = futures[group].result(self._connection.timeout_s + 1).topic_partitions
        except KafkaException as error:
            raise self._connection.error(error, doing) from error
        for row in rows:
            if row.error is not None:
                raise self._connection.error(row.error, f"{doing}; {row.topic}-{row.partition}")
        return rows

    def _list_offsets(self, wanted: Mapping[TopicPartition, Any]) -> dict[TopicPartition, int]:
        if not wanted:
            return {}
        asked = {LibraryPartition(*key): spec for key, spec in wanted.items()}
        futures = self._client.list_offsets(
            asked, isolation_level=self._isolation, request_timeout=self._connection.timeout_s
        )
        found = {}
        for key, future in futures.items():
            try:
                found[TopicPartition(key.topic, key.partition)] = future.result(self._connection.timeout_s + 1).offset
            except KafkaException as error:
                raise self._connection.error(error, f"{key.topic}-{key.partition}") from error
        return found


class UserConnection(Connection):
    """A connection with the user's `kafka.*` settings. Those of Java's clients that librdkafka lacks are left out."""

    def __init__(self, kafka: Mapping[str, str]) -> None:
        super().__init__(kafka["bootstrap.servers"])
        self._extra = library_settings(kafka)

    def admin_client(self) -> AdminClient:
        return self._make(AdminClient, {})

    def consumer(self, settings: Mapping[str, Any]) -> Consumer:
        return self._make(Consumer, settings)

    def _make(self, kind: Callable[[dict[str, Any]], T], settings: Mapping[str, Any]) -> T:
        while True:
            try:
                return kind(self._settings({**self._extra, **settings}))
            except KafkaException as error:
                match = _UNKNOWN_PROPERTY.search(str(error))
                if match is None or match[1] not in self._extra:
                    raise SkylogError(f"the kafka.* options cannot be used: {error.args[0].str()}") from error
                logger.warning("option kafka.%s has no meaning here and is left out", match[1])
                del self._extra[match[1]]
