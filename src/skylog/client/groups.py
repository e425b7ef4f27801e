"""Administration of consumer groups: describe them, reset their offsets, delete them.

This is the administrator's view from outside. `consumer.py` joins groups.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaException

from skylog.client.admin import Admin
from skylog.client.cluster_requests import brokers_of
from skylog.client.connection import Connection
from skylog.client.errors import BrokerUnreachableError, CoordinatorUnreachableError, TopicNotFoundError
from skylog.client.group import (
    ConsumerGroup,
    GroupNotFoundError,
    OffsetMove,
    ResetPlan,
    ResetTo,
)
from skylog.client.group_snapshot import GroupSnapshot
from skylog.client.library_groups import LibraryGroups
from skylog.client.topic import OffsetRange, Topic
from skylog.errors import ConfigError, ErrorCode, KafkaError, SkylogError
from skylog.model import TopicPartition

T = TypeVar("T")

logger = logging.getLogger(__name__)

RETRY_S: Final = 0.1
_COORDINATOR_LOADING: Final = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)


class ConsumerGroups:
    """Administers the groups of one cluster. Raises what Admin raises, GroupNotFoundError and GroupActiveError."""

    def __init__(self, bootstrap: str | Connection | None = None) -> None:
        self._connection = bootstrap if isinstance(bootstrap, Connection) else Connection(bootstrap)
        self._client = self._connection.admin_client()
        self._admin = Admin(self._connection, self._client)
        self._coordinators: dict[str, tuple[str, int]] = {}  # host and port, by group

    # -- reading

    def list_groups(self) -> list[ConsumerGroup]:
        """Return all named groups, sorted by name, except those whose coordinator is unavailable.

        Unavailable partitions of a group are included without offsets.
        """
        topics = self._topics()
        snapshots = self._reachable_snapshots(self._retry(self._reachable_names))
        return [group for group in self._groups(snapshots, topics) if group.exists]

    def describe_groups(self, names: Sequence[str]) -> list[ConsumerGroup]:
        """Return the groups with these names. Raises GroupNotFoundError for the first that does not exist."""
        groups = self._describe(names, self._topics())
        for group in groups:
            if not group.exists:
                raise GroupNotFoundError(group.name, self._retry(self._names))
        return groups

    def committed_metadata(self) -> dict[str, dict[TopicPartition, str]]:
        """Return the non-empty metadata of committed offsets, by group and partition."""
        self._topics()
        snapshots = self._retry(lambda: self._snapshots(self._names()))
        return {each.name: dict(each.metadata) for each in snapshots if each.metadata}

    # -- changing

    def plan_reset(
        self, name: str, to: ResetTo, value: int = 0, wanted: Mapping[str, Collection[int] | None] | None = None
    ) -> ResetPlan:
        """Plan a reset of a group's offsets; changes nothing.

        `wanted` lists the partitions to reset by topic, None for all of a topic. Without it, all partitions that the
        group reads are reset. With it, the group need not exist yet.
        """
        if wanted is None:
            [group] = self.describe_groups([name])
            existing = {key for topic in self._topics().values() for key in topic.topic_partitions}
            # All of them or none: an unavailable partition would silently keep its offset.
            offsets = self._admin.offset_ranges(
                [each.partition for each in group.partitions if each.partition in existing]
            )
            if not offsets:
                raise SkylogError(f"group '{name}' reads nothing yet; name the topics to reset it in")
        else:
            topics = self._topics()
            [group] = self._describe([name], topics)
            offsets = self._admin.offset_ranges(_choose(wanted, topics))
        committed = {each.partition: each.committed_offset for each in group.partitions}
        targets = self._targets(group, to, value, offsets)
        moves = [OffsetMove(key, committed.get(key), targets[key], offsets[key]) for key in sorted(offsets)]
        return ResetPlan(group, tuple(moves))

    def reset(self, plan: ResetPlan) -> None:
        """Commit the offsets of a plan. The group must have no members; it is created if it does not exist.

        If the coordinator goes away meanwhile, the same offsets are committed with the next one.
        """
        name = plan.group.name
        offsets = {move.partition: move.to_offset for move in plan.moves}
        failed = self._retry(partial(self._commit, name, offsets))
        for first, code in failed.items():
            doing = f"{len(failed)} of {len(offsets)} partitions of group '{name}' could not be reset; {first}"
            raise KafkaError(code, f"{doing}: {code.name}")

    def _commit(self, name: str, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, ErrorCode]:
        """Commit offsets, and return the partitions that were rejected. Raises KafkaError for what is worth a retry."""
        from skylog.client.offset_commits import commit_offsets
        from skylog.net.peer import PeerError

        self._describe([name], self._topics())[0].check_inactive()
        security = self._connection.peer_security()
        try:
            failed = commit_offsets(self._coordinators[name], name, offsets, self._connection.timeout_s, security)
        except PeerError as error:
            self._renew_client()
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"cannot reset group '{name}': {error}") from error
        for code in failed.values():
            if code in _COORDINATOR_LOADING:
                raise KafkaError(code, f"cannot reset group '{name}': {code.name}")
        return failed

    def delete_groups(self, names: Sequence[str]) -> None:
        """Delete groups with their committed offsets. Deletes none of them if one does not exist or has members."""
        for group in self.describe_groups(names):
            group.check_inactive()
        deleted = self._client.delete_consumer_groups(list(names), request_timeout=self._connection.timeout_s)
        for name in names:
            self._result(deleted[name], f"cannot delete group '{name}'")

    # -- collecting the parts of a group

    def _topics(self) -> dict[str, Topic]:
        """Return all topics. Each operation starts with this, because it fails fast if no broker is reachable."""
        return {topic.name: topic for topic in self._admin.list_topics()}

    def _names(self) -> list[str]:
        names, errors = self._list()
        for error in errors:
            raise error
        return names

    def _reachable_names(self) -> list[str]:
        """Return the groups of the brokers that answer."""
        names, errors = self._list()
        if not errors:
            return names
        self._renew_client()
        live = self._connection.metadata(self._client).brokers
        for error in errors:
            is_alone = not names and len(errors) >= len(live)
            if is_alone or not isinstance(error, BrokerUnreachableError):
                raise error
        return names

    def _list(self) -> tuple[list[str], list[SkylogError]]:
        listing = self._client.list_consumer_groups(request_timeout=self._connection.timeout_s)
        found = self._result(listing, "cannot list the groups")
        errors = [self._connection.error(error, "cannot list the groups") for error in found.errors]
        return sorted(each.group_id for each in found.valid if each.group_id), errors

    def _describe(self, names: Sequence[str], topics: Mapping[str, Topic]) -> list[ConsumerGroup]:
        """Return groups, including those that do not exist (in state Dead)."""
        return self._groups(self._retry(partial(self._snapshots, names)), topics)

    def _groups(self, snapshots: Sequence[GroupSnapshot], topics: Mapping[str, Topic]) -> list[ConsumerGroup]:
        led = {
            TopicPartition(topic.name, partition.index)
            for topic in topics.values()
            for partition in topic.partitions
            if partition.leader >= 0
        }
        read = {key for snapshot in snapshots for key in snapshot.partitions(topics)}
        ranges = self._admin.reachable_offset_ranges(sorted(read & led))
        return [snapshot.group(topics, ranges) for snapshot in snapshots]

    def _snapshots(self, names: Sequence[str]) -> list[GroupSnapshot]:
        found, errors = self._try_snapshots(names)
        for error in errors.values():
            raise error
        return list(found.values())

    def _reachable_snapshots(self, names: Sequence[str]) -> list[GroupSnapshot]:
        """Return the available groups; waits for coordinators that are still loading."""
        found: dict[str, GroupSnapshot] = {}
        errors: dict[str, SkylogError] = {}

        def attempt() -> None:
            nonlocal errors
            more, errors = self._try_snapshots([name for name in names if name not in found])
            found.update(more)
            for error in errors.values():
                if isinstance(error, KafkaError) and error.code in _COORDINATOR_LOADING:
                    raise error

        with suppress(KafkaError):
            self._retry(attempt)
        if errors and not found:
            self._topics()
        if any(isinstance(error, BrokerUnreachableError) for error in errors.values()):
            self._renew_client()
        for name, error in errors.items():
            logger.info("group '%s' is left out of the list: %s", name, error)
        return [found[name] for name in names if name in found]

    def _renew_client(self) -> None:
        """Create a new client. The former one knows the coordinators of groups, and does not ask for them again."""
        self._client = self._connection.admin_client()
        self._admin = Admin(self._connection, self._client)

    def _try_snapshots(self, names: Sequence[str]) -> tuple[dict[str, GroupSnapshot], dict[str, SkylogError]]:
        """Return the groups by name, and the errors of the others."""
        if not all(names):
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "a group needs a name")
        if not names:
            return {}, {}
        try:
            security = self._connection.peer_security()
        except ConfigError:  # a mechanism that only librdkafka has
            return LibraryGroups(self._connection, self._client).read(names)
        from skylog.client.group_requests import read_groups

        brokers = brokers_of(self._connection.metadata(self._client))
        read = read_groups(brokers, names, self._connection.timeout_s, security)
        self._coordinators.update(read.coordinators)
        return read.found, read.errors

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

    def _retry(self, attempt: Callable[[], T]) -> T:
        """Retry while the coordinator loads its groups or moves, as after the start or the end of a broker."""
        deadline = time.monotonic() + self._connection.timeout_s
        while True:
            try:
                return attempt()
            except (KafkaError, CoordinatorUnreachableError) as error:
                is_lasting = isinstance(error, KafkaError) and error.code not in _COORDINATOR_LOADING
                if is_lasting or time.monotonic() > deadline:
                    raise
                if not isinstance(error, KafkaError) or error.code is ErrorCode.NOT_COORDINATOR:
                    self._renew_client()
            time.sleep(RETRY_S)

    def _result(self, future: Future[Any], doing: str) -> Any:
        try:
            return future.result(self._connection.timeout_s + 1)
        except KafkaException as error:
            raise self._connection.error(error, doing) from error


def _choose(wanted: Mapping[str, Collection[int] | None], topics: Mapping[str, Topic]) -> list[TopicPartition]:
    """Return the wanted partitions. Raises for those that do not exist."""
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
    """Return the group's committed offset in each partition. Raises for a partition without one."""
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
