"""The driver's view of a cluster: partitions, their start and end offsets, a group's commits.

Uses librdkafka, so every security setting works. Executors do not import this module.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from confluent_kafka import OFFSET_INVALID, Consumer, ConsumerGroupTopicPartitions, IsolationLevel, KafkaException
from confluent_kafka import KafkaError as LibraryError
from confluent_kafka import TopicPartition as LibraryPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # not in the stubs

from skylog.client import BrokerUnreachableError, Connection
from skylog.errors import ErrorCode, KafkaError, SkylogError
from skylog.model import NO_OFFSET, TopicPartition
from skylog.spark.kafka_settings import is_read_committed, library_settings
from skylog.spark.reading.group_commits import GroupCommits

T = TypeVar("T")

logger = logging.getLogger(__name__)

_UNKNOWN_PROPERTY: Final = re.compile(r'No such configuration property: "(.+?)"')
_SPEC: Final[Any] = OffsetSpec  # its methods are not typed
_RETRY_S: Final = 0.5
_FIRST_ATTEMPT_S: Final = 2.0
_OF_NEW_LEADERS: Final = frozenset(
    {ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OFFSET_NOT_AVAILABLE}
)


class Cluster:
    """Queries a cluster. For one thread. Raises the errors of `skylog.client`."""

    def __init__(self, kafka: Mapping[str, str]) -> None:
        self._kafka = kafka
        self._connection = UserConnection(kafka)
        self._commits: dict[str, GroupCommits] = {}
        self._client = self._connection.admin_client()
        level = IsolationLevel.READ_COMMITTED if is_read_committed(kafka) else IsolationLevel.READ_UNCOMMITTED
        self._isolation: Any = level

    def topics(self) -> dict[str, list[int]]:
        """Return all topics with the numbers of their partitions."""
        found = self._connection.metadata(self._client).topics
        return {name: sorted(topic.partitions) for name, topic in found.items()}

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._list_offsets(dict.fromkeys(partitions, _SPEC.earliest()))

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._list_offsets(dict.fromkeys(partitions, _SPEC.latest()))

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Return the first offset whose record is at or after a time, or None if there is none."""
        found = self._list_offsets({key: _SPEC.for_timestamp(time_ms) for key, time_ms in times.items()})
        return {key: None if offset == NO_OFFSET else offset for key, offset in found.items()}

    def committed(self, group: str, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the committed offsets of a group, without partitions that have no commit."""
        requested = [ConsumerGroupTopicPartitions(group, [LibraryPartition(*key) for key in partitions])]
        futures = self._client.list_consumer_group_offsets(requested, request_timeout=self._connection.timeout_s)
        rows = self._group_rows(futures, group, "read the offsets")
        return {TopicPartition(row.topic, row.partition): row.offset for row in rows if row.offset >= 0}

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets for a group without members. Raises KafkaError if it has members."""
        if group not in self._commits:
            self._commits[group] = GroupCommits(UserConnection(self._kafka), group)
        self._commits[group].commit(offsets)

    def _group_rows(self, futures: Mapping[str, Any], group: str, doing: str) -> list[LibraryPartition]:
        doing = f"cannot {doing} of group '{group}'; it must not have other members"
        try:
            rows: list[LibraryPartition] = futures[group].result(self._connection.timeout_s + 1).topic_partitions
        except KafkaException as error:
            raise self._connection.error(error, doing) from error
        for row in rows:
            if row.error is not None:
                raise self._connection.error(row.error, f"{doing}; {row.topic}-{row.partition}")
        return rows

    def _list_offsets(self, specs: Mapping[TopicPartition, Any]) -> dict[TopicPartition, int]:
        """Ask again, until the timeout, for partitions whose leader has just changed, while some broker answers.

        librdkafka asks the leader that it knows, and waits for that if it has gone. So the first attempt is short.
        """
        found: dict[TopicPartition, int] = {}
        deadline, attempt_s = time.monotonic() + self._connection.timeout_s, _FIRST_ATTEMPT_S
        while missing := {key: spec for key, spec in specs.items() if key not in found}:
            errors = self._request_offsets(missing, found, min(attempt_s, self._connection.timeout_s))
            if errors:
                if time.monotonic() > deadline:
                    raise errors[0]
                time.sleep(_RETRY_S)
                self._connection.metadata(self._client)  # raises if no broker can be reached
                attempt_s *= 2
        return found

    def _request_offsets(
        self, specs: Mapping[TopicPartition, Any], found: dict[TopicPartition, int], timeout_s: float
    ) -> list[SkylogError]:
        """Add the offsets of partitions to those found. Return the errors of the others, which will pass."""
        requested = {LibraryPartition(*key): spec for key, spec in specs.items()}
        futures = self._client.list_offsets(requested, isolation_level=self._isolation, request_timeout=timeout_s)
        errors: list[SkylogError] = []
        for key, future in futures.items():
            name = TopicPartition(key.topic, key.partition)
            try:
                offset = future.result(timeout_s + 1).offset
            except TimeoutError:  # librdkafka takes longer than it was given
                errors.append(self._no_leader(name))
            except KafkaException as error:
                if error.args[0].code() == LibraryError._NOENT:  # librdkafka: "No leaders found"
                    errors.append(self._no_leader(name))
                    continue
                failed = self._connection.error(error, str(name))
                if not _will_pass(failed):
                    raise failed from error
                errors.append(failed)
            else:
                if offset == OFFSET_INVALID:  # the leader went away; librdkafka reports no error then
                    errors.append(self._no_leader(name))
                else:
                    found[name] = offset
        return errors

    def _no_leader(self, name: TopicPartition) -> BrokerUnreachableError:
        return BrokerUnreachableError(self._connection.bootstrap, f"{name} has no leader")


def _will_pass(error: SkylogError) -> bool:
    """Whether a partition has no leader that answers, which is so for a while after a broker has gone."""
    return isinstance(error, BrokerUnreachableError) or (
        isinstance(error, KafkaError) and error.code in _OF_NEW_LEADERS
    )


class UserConnection(Connection):
    """A connection with the user's `kafka.*` options. Options that librdkafka does not know are ignored."""

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
                    raise SkylogError(f"invalid kafka.* options: {error.args[0].str()}") from error
                logger.warning("ignoring option kafka.%s, which librdkafka does not know", match[1])
                del self._extra[match[1]]
