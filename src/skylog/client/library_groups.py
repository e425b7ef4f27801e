"""Reads groups through librdkafka, for clusters whose logins only librdkafka has.

It aborts the process over an assignment that it cannot parse: `group_requests` is used wherever it can log in.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, ConsumerGroupType, KafkaException
from confluent_kafka.admin import AdminClient

from skylog.client.connection import Connection
from skylog.client.group import CLASSIC, CONSUMER, GroupMember
from skylog.client.group_snapshot import GroupSnapshot
from skylog.errors import SkylogError
from skylog.model import TopicPartition

_STATES: Final = {
    ConsumerGroupState.PREPARING_REBALANCING: "PreparingRebalance",
    ConsumerGroupState.COMPLETING_REBALANCING: "CompletingRebalance",
}


class LibraryGroups:
    """Reads groups with an AdminClient. Consumer groups have no epochs here."""

    def __init__(self, connection: Connection, client: AdminClient) -> None:
        self._connection = connection
        self._client = client

    def read(self, names: Sequence[str]) -> tuple[dict[str, GroupSnapshot], dict[str, SkylogError]]:
        """Return the groups by name, and the errors of the others."""
        timeout_s = self._connection.timeout_s
        described = self._client.describe_consumer_groups(list(names), request_timeout=timeout_s)
        found: dict[str, GroupSnapshot] = {}
        errors: dict[str, SkylogError] = {}
        for name in names:
            try:
                description = self._result(described[name], f"cannot describe group '{name}'")
                found[name] = self._snapshot(description)
            except SkylogError as error:
                errors[name] = error
        return found, errors

    def _snapshot(self, description: Any) -> GroupSnapshot:
        """Add the commits to a description, whose coordinator has just answered to this client.

        librdkafka 2.16 crashes if a broker answers that it is not the coordinator.
        """
        name = description.group_id
        kind = CONSUMER if description.type is ConsumerGroupType.CONSUMER else CLASSIC
        asked = [ConsumerGroupTopicPartitions(name)]
        fetched = self._client.list_consumer_group_offsets(asked, request_timeout=self._connection.timeout_s)
        rows = self._result(fetched[name], f"cannot read the offsets of group '{name}'").topic_partitions
        committed = [(TopicPartition(row.topic, row.partition), row) for row in rows if row.offset >= 0]
        return GroupSnapshot(
            name,
            _state(description.state, kind),
            description.partition_assignor or None,
            tuple(_member(row, kind) for row in description.members),
            description.is_simple_consumer_group,
            {key: row.offset for key, row in committed},
            {key: row.metadata for key, row in committed if row.metadata},
            kind,
        )

    def _result(self, future: Future[Any], doing: str) -> Any:
        try:
            return future.result(self._connection.timeout_s + 1)
        except KafkaException as error:
            raise self._connection.error(error, doing) from error


def _member(row: Any, kind: str) -> GroupMember:
    target = _sorted(row.target_assignment) if kind == CONSUMER and row.target_assignment else None
    host = row.host.removeprefix("/")
    return GroupMember(row.member_id, row.client_id, host, row.group_instance_id, _sorted(row.assignment), target)


def _state(state: ConsumerGroupState, kind: str) -> str:
    if kind == CONSUMER and state is ConsumerGroupState.UNKNOWN:
        return "Reconciling"  # or Assigning; librdkafka knows neither
    name: str = _STATES.get(state, state.name.capitalize())
    return name


def _sorted(assignment: Any) -> tuple[TopicPartition, ...]:
    return tuple(sorted(TopicPartition(each.topic, each.partition) for each in assignment.topic_partitions))
