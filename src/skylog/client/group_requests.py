"""Reads groups from their coordinators, over connections of its own: state, members, assignments, commits.

librdkafka aborts the process over an assignment that it cannot parse, and over a coordinator that has moved. Any member
can send such an assignment, so one odd client would end everyone who looks at its group.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from skylog.client.cluster import ClusterBroker
from skylog.client.errors import BrokerUnreachableError, CoordinatorUnreachableError
from skylog.client.group import CONSUMER, DEAD, GroupMember
from skylog.client.group_snapshot import GroupSnapshot
from skylog.client.peer_requests import CLIENT_ID, wait_for
from skylog.errors import ErrorCode, KafkaError, SkylogError
from skylog.groups.consumer.embedded_protocol import read_assigned
from skylog.model import TopicPartition
from skylog.net.peer import Peer, PeerError, PeerSecurity
from skylog.protocol.apis import ApiKey
from skylog.protocol.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    DescribedAssignment,
    DescribedConsumer,
    DescribedConsumerGroup,
)
from skylog.protocol.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsRequest
from skylog.protocol.find_coordinator import Coordinator, FindCoordinatorRequest
from skylog.protocol.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

Address = tuple[str, int]

_GROUP: Final = 0  # the type of a key
_SEVERAL_KEYS: Final = 4  # the first version of FindCoordinator with several keys
_SEVERAL_GROUPS: Final = 8  # the first version of OffsetFetch with several groups
_UNKNOWN_IS_DEAD: Final = 5  # the last version of DescribeGroups in which an unknown group is no error
_GROUPS_PER_REQUEST: Final = 500
_CONSUMER_PROTOCOL: Final = "consumer"
_NOT_OF_THIS_TYPE: Final = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})


class GroupsRead(NamedTuple):
    """The groups that could be read, the errors of the others, and the coordinators, all by the name of the group."""

    found: dict[str, GroupSnapshot]
    errors: dict[str, SkylogError]
    coordinators: dict[str, Address]


def read_groups(
    brokers: Sequence[ClusterBroker], names: Sequence[str], timeout_s: float, security: PeerSecurity | None
) -> GroupsRead:
    """Read groups. One that does not exist is in the state Dead. Raises BrokerUnreachableError if no broker answers."""
    return wait_for(_read_groups(brokers, names, timeout_s, security))


async def _read_groups(
    brokers: Sequence[ClusterBroker], names: Sequence[str], timeout_s: float, security: PeerSecurity | None
) -> GroupsRead:
    read = GroupsRead({}, {}, {})
    led: defaultdict[Address, list[str]] = defaultdict(list)
    for row in await find_coordinators(brokers, names, timeout_s, security):
        if row.error_code:
            read.errors[row.key] = _error(row.error_code, f"cannot find the coordinator of group '{row.key}'")
        else:
            read.coordinators[row.key] = row.host, row.port
            led[row.host, row.port].append(row.key)

    async def read_from(address: Address, groups: Sequence[str]) -> None:
        try:
            peer = await Peer.connect(*address, client_id=CLIENT_ID, timeout_s=timeout_s, security=security)
        except PeerError as error:
            read.errors.update(dict.fromkeys(groups, _coordinator_unreachable(address, error)))
            return
        try:
            for part in _parts(groups):
                await _read_part(peer, part, read)
        except PeerError as error:
            left = [name for name in groups if name not in read.errors and name not in read.found]
            read.errors.update(dict.fromkeys(left, _coordinator_unreachable(address, error)))
        finally:
            peer.close()

    await asyncio.gather(*(read_from(address, groups) for address, groups in led.items()))
    return read


async def find_coordinators(
    brokers: Sequence[ClusterBroker], names: Sequence[str], timeout_s: float, security: PeerSecurity | None
) -> list[Coordinator]:
    """Ask the first broker that answers. Raises BrokerUnreachableError if none does."""
    failure = BrokerUnreachableError("any known address", "the cluster has no brokers")
    for broker in brokers:
        try:
            peer = await Peer.connect(
                broker.host, broker.port, client_id=CLIENT_ID, timeout_s=timeout_s, security=security
            )
        except PeerError as error:
            failure = BrokerUnreachableError(f"{broker.host}:{broker.port}", str(error))
            continue
        try:
            return await _ask_coordinators(peer, names)
        except PeerError as error:
            failure = BrokerUnreachableError(f"{broker.host}:{broker.port}", str(error))
        finally:
            peer.close()
    raise failure


async def _ask_coordinators(peer: Peer, names: Sequence[str]) -> list[Coordinator]:
    version = peer.version_of(ApiKey.FIND_COORDINATOR)
    if version >= _SEVERAL_KEYS:
        request = FindCoordinatorRequest(key_type=_GROUP, coordinator_keys=list(names))
        return list((await peer.ask(request, version)).coordinators)
    answers = await asyncio.gather(*(peer.ask(FindCoordinatorRequest(key=name), version) for name in names))
    return [
        Coordinator(key=name, node_id=each.node_id, host=each.host, port=each.port, error_code=each.error_code)
        for name, each in zip(names, answers, strict=True)
    ]


async def _read_part(peer: Peer, names: Sequence[str], read: GroupsRead) -> None:
    described = await _describe(peer, names, read.errors)
    committed = await _commits(peer, [name for name, each in described.items() if each.state != DEAD], read.errors)
    for name, snapshot in described.items():
        if name not in read.errors:
            rows = committed.get(name, {})
            read.found[name] = replace(
                snapshot,
                committed={key: offset for key, (offset, _) in rows.items()},
                metadata={key: text for key, (_, text) in rows.items() if text},
            )


async def _describe(peer: Peer, names: Sequence[str], errors: dict[str, SkylogError]) -> dict[str, GroupSnapshot]:
    """Describe groups of both types: the consumer protocol first, then those that are not of that type."""
    found: dict[str, GroupSnapshot] = {}
    classic = list(names)
    if peer.supports(ApiKey.CONSUMER_GROUP_DESCRIBE):
        classic.clear()
        for row in (await peer.ask(ConsumerGroupDescribeRequest(group_ids=list(names)))).groups:
            if row.error_code in _NOT_OF_THIS_TYPE:
                classic.append(row.group_id)
            elif row.error_code:
                errors[row.group_id] = _error(row.error_code, f"cannot describe group '{row.group_id}'")
            else:
                found[row.group_id] = _consumer_group(row)
    if classic:
        version = min(peer.version_of(ApiKey.DESCRIBE_GROUPS), _UNKNOWN_IS_DEAD)
        for group in (await peer.ask(DescribeGroupsRequest(groups=classic), version)).groups:
            if group.error_code:
                errors[group.group_id] = _error(group.error_code, f"cannot describe group '{group.group_id}'")
            else:
                found[group.group_id] = _classic_group(group)
    return found


def _consumer_group(row: DescribedConsumerGroup) -> GroupSnapshot:
    return GroupSnapshot(
        row.group_id,
        row.group_state,
        row.assignor_name or None,
        tuple(map(_consumer, row.members)),
        is_simple=False,
        type=CONSUMER,
        epoch=row.group_epoch,
        target_epoch=row.assignment_epoch,
    )


def _consumer(row: DescribedConsumer) -> GroupMember:
    return GroupMember(
        row.member_id,
        row.client_id,
        row.client_host.removeprefix("/"),
        row.instance_id,
        _assigned(row.assignment),
        _assigned(row.target_assignment),
        row.member_epoch,
    )


def _assigned(assignment: DescribedAssignment) -> tuple[TopicPartition, ...]:
    return _sorted({each.topic_name: each.partitions for each in assignment.topic_partitions})


def _classic_group(row: DescribedGroup) -> GroupSnapshot:
    reads_topics = row.protocol_type == _CONSUMER_PROTOCOL
    members = tuple(_classic_member(each, reads_topics) for each in row.members)
    is_simple = not row.protocol_type
    return GroupSnapshot(row.group_id, row.group_state, row.protocol_data or None, members, is_simple)


def _classic_member(row: DescribedGroupMember, reads_topics: bool) -> GroupMember:
    """Describe a member. An assignment in a format of its own has no partitions here."""
    assigned = read_assigned(row.member_assignment) if reads_topics else None
    host = row.client_host.removeprefix("/")
    return GroupMember(row.member_id, row.client_id, host, row.group_instance_id, _sorted(assigned or {}))


def _sorted(assigned: Mapping[str, Iterable[int]]) -> tuple[TopicPartition, ...]:
    return tuple(sorted(TopicPartition(topic, number) for topic, numbers in assigned.items() for number in numbers))


async def _commits(
    peer: Peer, names: Sequence[str], errors: dict[str, SkylogError]
) -> dict[str, dict[TopicPartition, tuple[int, str]]]:
    """Return the committed offsets of groups, and their metadata."""
    if not names:
        return {}
    version = peer.version_of(ApiKey.OFFSET_FETCH)
    if version >= _SEVERAL_GROUPS:
        groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in names]
        answer = await peer.ask(OffsetFetchRequest(groups=groups), version)
        answers = {each.group_id: each for each in answer.groups}
    else:
        requests = (OffsetFetchRequest(group_id=name, topics=None) for name in names)
        answers = dict(zip(names, await asyncio.gather(*(peer.ask(each, version) for each in requests)), strict=True))
    found = {}
    for name, each in answers.items():
        if each.error_code:
            errors[name] = _error(each.error_code, f"cannot read the offsets of group '{name}'")
        else:
            found[name] = dict(_rows(each.topics))
    return found


def _rows(topics: Any) -> Iterator[tuple[TopicPartition, tuple[int, str]]]:
    for topic in topics:
        for row in topic.partitions:
            if row.committed_offset >= 0:
                text = (row.metadata or "").removesuffix("\0")  # confluent-kafka commits the end of a C string
                yield TopicPartition(topic.name, row.partition_index), (row.committed_offset, text)


def _parts(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(names), _GROUPS_PER_REQUEST):
        yield names[start : start + _GROUPS_PER_REQUEST]


def _error(number: int, doing: str) -> KafkaError:
    code = ErrorCode(number) if number in ErrorCode._value2member_map_ else ErrorCode.UNKNOWN_SERVER_ERROR
    return KafkaError(code, f"{doing}: {code.name}")


def _coordinator_unreachable(address: Address, error: PeerError) -> CoordinatorUnreachableError:
    host, port = address
    return CoordinatorUnreachableError(f"{host}:{port}", str(error))
