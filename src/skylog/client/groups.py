"""Consumer groups: who reads what and how far, moving them to other offsets, deleting them.

A group is looked at from outside, as any administrator can; joining one is a consumer's business.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka import TopicPartition as LibraryPartition

from skylog.client.admin import Admin
from skylog.client.connection import Connection
from skylog.client.errors import BrokerUnreachableError, TopicNotFoundError
from skylog.client.group import (
    ConsumerGroup,
    GroupMember,
    GroupNotFoundError,
    GroupPartition,
    OffsetMove,
    ResetPlan,
    ResetTo,
)
from skylog.client.topic import OffsetRange, Topic
from skylog.errors import ErrorCode, KafkaError, SkylogError
from skylog.model import TopicPartition

T = TypeVar("T")

logger = logging.getLogger(__name__)

AGAIN_S: Final = 0.1
_COMES_LATER: Final = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)
_STATES: Final = {
    ConsumerGroupState.PREPARING_REBALANCING: "PreparingRebalance",
    ConsumerGroupState.COMPLETING_REBALANCING: "CompletingRebalance",
}


class ConsumerGroups:
    """The groups of one cluster. Raises what Admin does, GroupNotFoundError and GroupActiveError."""

    def __init__(self, bootstrap: str | Connection | None = None) -> None:
        self._connection = bootstrap if isinstance(bootstrap, Connection) else Connection(bootstrap)
        self._client = self._connection.admin_client()
        self._admin = Admin(self._connection, self._client)

    # -- looking

    def list_groups(self) -> list[ConsumerGroup]:
        """Every group that has a name, by name, but for those whose coordinator cannot be asked now.

        What a group reads of partitions that cannot be asked is there without offsets.
        """
        topics = self._topics()
        sightings = self._see_reachable(self._patiently(self._reachable_names))
        return [group for group in self._groups(sightings, topics) if group.exists]

    def describe_groups(self, names: Sequence[str]) -> list[ConsumerGroup]:
        """The groups of these names. Raises GroupNotFoundError for the first that is not there."""
        groups = self._look(names, self._topics())
        for group in groups:
            if not group.exists:
                raise GroupNotFoundError(group.name, self._patiently(self._names))
        return groups

    def committed_metadata(self) -> dict[str, dict[TopicPartition, str]]:
        """What consumers have written beside the offsets they committed, by group; only where there is something."""
        self._topics()
        commits = self._patiently(lambda: self._commits(self._names()))
        return {
            name: {TopicPartition(row.topic, row.partition): row.metadata for row in rows if row.metadata}
            for name, rows in commits.items()
            if any(row.metadata for row in rows)
        }

    # -- changing

    def plan_reset(
        self, name: str, to: ResetTo, value: int = 0, wanted: Mapping[str, Collection[int] | None] | None = None
    ) -> ResetPlan:
        """What it takes to move a group; changes nothing.

        `wanted` has the partitions to move of each topic, None for all of them. Without it the group is moved wherever
        it reads. With it, the group need not be there yet.
        """
        if wanted is None:
            [group] = self.describe_groups([name])
            there = {key for topic in self._topics().values() for key in topic.topic_partitions}
            # All of them or none: a partition that cannot be asked now would be left where it is, unnoticed.
            offsets = self._admin.offset_ranges(
                [each.partition for each in group.partitions if each.partition in there]
            )
            if not offsets:
                raise SkylogError(f"group '{name}' reads nothing yet; name the topics to reset it in")
        else:
            topics = self._topics()
            [group] = self._look([name], topics)
            offsets = self._admin.offset_ranges(_choose(wanted, topics))
        committed = {each.partition: each.committed_offset for each in group.partitions}
        targets = self._targets(group, to, value, offsets)
        moves = [OffsetMove(key, committed.get(key), targets[key], offsets[key]) for key in sorted(offsets)]
        return ResetPlan(group, tuple(moves))

    def reset(self, plan: ResetPlan) -> None:
        """Commit what was planned. The group, which this creates if need be, must have no members."""
        name = plan.group.name
        self._look([name], self._topics())[0].check_inactive()
        offsets = [LibraryPartition(*move.partition, move.to_offset) for move in plan.moves]
        asked = [ConsumerGroupTopicPartitions(name, offsets)]
        altered = self._client.alter_consumer_group_offsets(asked, request_timeout=self._connection.timeout_s)
        rows = self._result(altered[name], f"cannot reset group '{name}'").topic_partitions
        failed = [row for row in rows if row.error is not None]
        if failed:
            first = TopicPartition(failed[0].topic, failed[0].partition)
            doing = f"{len(failed)} of {len(rows)} partitions of group '{name}' could not be reset; {first}"
            raise self._connection.error(failed[0].error, doing)

    def delete_groups(self, names: Sequence[str]) -> None:
        """Delete groups with what they have committed; none of them if one is not there or has members."""
        for group in self.describe_groups(names):
            group.check_inactive()
        deleted = self._client.delete_consumer_groups(list(names), request_timeout=self._connection.timeout_s)
        for name in names:
            self._result(deleted[name], f"cannot delete group '{name}'")

    # -- putting a group together

    def _topics(self) -> dict[str, Topic]:
        """Every topic. Each operation asks for them first: this finds out soon if there is no broker."""
        return {topic.name: topic for topic in self._admin.list_topics()}

    def _names(self) -> list[str]:
        names, errors = self._list()
        for error in errors:
            raise error
        return names

    def _reachable_names(self) -> list[str]:
        """The groups of those brokers that answer."""
        names, errors = self._list()
        for error in errors:
            if not names or not isinstance(error, BrokerUnreachableError):
                raise error
        return names

    def _list(self) -> tuple[list[str], list[SkylogError]]:
        listing = self._client.list_consumer_groups(request_timeout=self._connection.timeout_s)
        found = self._result(listing, "cannot list the groups")
        errors = [self._connection.error(error, "cannot list the groups") for error in found.errors]
        return sorted(each.group_id for each in found.valid if each.group_id), errors

    def _look(self, names: Sequence[str], topics: Mapping[str, Topic]) -> list[ConsumerGroup]:
        """Groups as they are, also those that are not there."""
        return self._groups(self._patiently(partial(self._see, names)), topics)

    def _groups(self, sightings: Sequence[_Sighting], topics: Mapping[str, Topic]) -> list[ConsumerGroup]:
        led = {
            TopicPartition(topic.name, partition.index)
            for topic in topics.values()
            for partition in topic.partitions
            if partition.leader >= 0
        }
        read = {key for sighting in sightings for key in sighting.partitions(topics)}
        ranges = self._admin.reachable_offset_ranges(sorted(read & led))
        return [sighting.group(topics, ranges) for sighting in sightings]

    def _see(self, names: Sequence[str]) -> list[_Sighting]:
        seen, errors = self._try_to_see(names)
        for error in errors.values():
            raise error
        return list(seen.values())

    def _see_reachable(self, names: Sequence[str]) -> list[_Sighting]:
        """Without the groups that cannot be seen; waits for those whose coordinator is about to be there."""
        seen: dict[str, _Sighting] = {}
        errors: dict[str, SkylogError] = {}

        def look() -> None:
            nonlocal errors
            more, errors = self._try_to_see([name for name in names if name not in seen])
            seen.update(more)
            for error in errors.values():
                if isinstance(error, KafkaError) and error.code in _COMES_LATER:
                    raise error

        with suppress(KafkaError):
            self._patiently(look)
        if errors and not seen:
            self._topics()
        for name, error in errors.items():
            logger.info("group '%s' is left out of the list: %s", name, error)
        return [seen[name] for name in names if name in seen]

    def _try_to_see(self, names: Sequence[str]) -> tuple[dict[str, _Sighting], dict[str, SkylogError]]:
        """Groups by name, and what went wrong with the others."""
        if not all(names):
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "a group needs a name")
        if not names:
            return {}, {}
        timeout_s = self._connection.timeout_s
        described = self._client.describe_consumer_groups(list(names), request_timeout=timeout_s)
        fetched = self._fetch_commits(names)
        seen: dict[str, _Sighting] = {}
        errors: dict[str, SkylogError] = {}
        for name in names:
            try:
                description = self._result(described[name], f"cannot describe group '{name}'")
                rows = self._commits_of(name, fetched)
            except SkylogError as error:
                errors[name] = error
            else:
                committed = {TopicPartition(row.topic, row.partition): row.offset for row in rows if row.offset >= 0}
                seen[name] = _Sighting(description, committed)
        return seen, errors

    def _commits(self, names: Sequence[str]) -> dict[str, Sequence[LibraryPartition]]:
        fetched = self._fetch_commits(names)
        return {name: self._commits_of(name, fetched) for name in names}

    def _fetch_commits(self, names: Sequence[str]) -> dict[str, Future[Any]]:
        fetched: dict[str, Future[Any]] = {}
        for name in names:  # the library takes one group at a time
            asked = [ConsumerGroupTopicPartitions(name)]
            fetched |= self._client.list_consumer_group_offsets(asked, request_timeout=self._connection.timeout_s)
        return fetched

    def _commits_of(self, name: str, fetched: Mapping[str, Future[Any]]) -> Sequence[LibraryPartition]:
        rows: Sequence[LibraryPartition] = self._result(
            fetched[name], f"cannot read the offsets of group '{name}'"
        ).topic_partitions
        return rows

    def _targets(
        self, group: ConsumerGroup, to: ResetTo, value: int, offsets: Mapping[TopicPartition, OffsetRange]
    ) -> dict[TopicPartition, int]:
        match to:
            case ResetTo.EARLIEST:
                return {key: each.start_offset for key, each in offsets.items()}
            case ResetTo.LATEST:
                return {key: each.end_offset for key, each in offsets.items()}
            case ResetTo.OFFSET:
                return dict.fromkeys(offsets, value)
            case ResetTo.TIME:
                found = self._admin.offsets_at(list(offsets), value)
                return {key: offsets[key].end_offset if at is None else at for key, at in found.items()}
            case ResetTo.SHIFT:
                return {key: each + value for key, each in _committed(group, offsets).items()}

    def _patiently(self, look: Callable[[], T]) -> T:
        """Look again while the coordinator reads its groups back, as it does after a start."""
        deadline = time.monotonic() + self._connection.timeout_s
        while True:
            try:
                return look()
            except KafkaError as error:
                if error.code not in _COMES_LATER or time.monotonic() > deadline:
                    raise
            time.sleep(AGAIN_S)

    def _result(self, future: Future[Any], doing: str) -> Any:
        try:
            return future.result(self._connection.timeout_s + 1)
        except KafkaException as error:
            raise self._connection.error(error, doing) from error


@dataclass(frozen=True, slots=True)
class _Sighting:
    """A group as the library describes it, and what it has committed; nothing of the logs yet.

    Commits are read before the logs' ends, so that a consumer at work never seems to be past the end.
    """

    description: Any
    committed: Mapping[TopicPartition, int]

    def members(self) -> list[GroupMember]:
        return [
            GroupMember(
                row.member_id,
                row.client_id,
                row.host.removeprefix("/"),
                row.group_instance_id,
                tuple(sorted(TopicPartition(each.topic, each.partition) for each in row.assignment.topic_partitions)),
            )
            for row in self.description.members
        ]

    def partitions(self, topics: Mapping[str, Topic]) -> set[TopicPartition]:
        """What the group reads: what was assigned or committed.

        Members that subscribe share all partitions of a topic, so those without a commit belong to it as well, even
        when the members have gone. A group of consumers that chose their partitions themselves has just those.
        """
        read = {key for member in self.members() for key in member.partitions} | self.committed.keys()
        if self.description.is_simple_consumer_group:
            return read
        names = {key.topic for key in read} & topics.keys()
        return read.union(*(topics[name].topic_partitions for name in names))

    def group(self, topics: Mapping[str, Topic], ranges: Mapping[TopicPartition, OffsetRange]) -> ConsumerGroup:
        members = self.members()
        readers = {key: member for member in members for key in member.partitions}
        state = self.description.state
        return ConsumerGroup(
            self.description.group_id,
            _STATES.get(state, state.name.capitalize()),
            self.description.partition_assignor or None,
            tuple(members),
            tuple(
                GroupPartition(key, self.committed.get(key), ranges.get(key), readers.get(key))
                for key in sorted(self.partitions(topics))
            ),
        )


def _choose(wanted: Mapping[str, Collection[int] | None], topics: Mapping[str, Topic]) -> list[TopicPartition]:
    """The partitions that are meant. Raises for those that are not there."""
    chosen = []
    for name, numbers in wanted.items():
        if name not in topics:
            raise TopicNotFoundError(name, topics)
        count = len(topics[name].partitions)
        for number in range(count) if numbers is None else sorted(set(numbers)):
            if number >= count:
                raise SkylogError(f"topic '{name}' has no partition {number}: it has {count}, numbered from 0")
            chosen.append(TopicPartition(name, number))
    return chosen


def _committed(group: ConsumerGroup, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """What the group has committed in each of these. Raises for one where it has not."""
    known = {each.partition: each.committed_offset for each in group.partitions}
    committed = {}
    for key in partitions:
        offset = known.get(key)
        if offset is None:
            raise SkylogError(
                f"group '{group.name}' has committed nothing in {key}, so it cannot be shifted there; "
                "reset it to the earliest or latest message, an offset or a time"
            )
        committed[key] = offset
    return committed
