"""Turns a classic group into a consumer group and back, while it has members.

The first member of the consumer protocol that joins upgrades a group of classic consumers; when the last one leaves,
the group is downgraded. Members keep their partitions. The generation becomes the group epoch, and the epoch becomes
the generation.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from skylog.errors import ErrorCode, KafkaError
from skylog.groups.config import GroupConfig
from skylog.groups.consumer.config import ConsumerGroupConfig
from skylog.groups.consumer.embedded_protocol import read_assignment, read_subscription, write_assignment
from skylog.groups.consumer.group import CONSUMER, ConsumerGroup
from skylog.groups.consumer.member import ClassicProtocols, ConsumerMember, Current, MemberState, Metadata
from skylog.groups.consumer.state import ConsumerGroupState
from skylog.groups.consumer.topics import NO_BROKER_RACKS, BrokerRacks, Topics
from skylog.groups.group import Group
from skylog.groups.member import Member
from skylog.groups.protocols import choose_protocol
from skylog.groups.state import GroupState


def to_consumer_group(
    group: Group,
    config: ConsumerGroupConfig,
    topics: Topics,
    now_ms: int,
    *,
    racks: BrokerRacks = NO_BROKER_RACKS,
) -> ConsumerGroup:
    """Return a classic group as a consumer group. Raises GROUP_ID_NOT_FOUND if it cannot be one."""
    _check_alive(group)
    if group.members:
        _check_upgrade(group, config)
    converted = ConsumerGroup(group.group_id, config, group.generation, racks=racks)
    for member in group.members.values():
        converted.roster.add(_to_consumer(member, group, converted, topics))
    for member_id, each in converted.members.items():
        converted.targets[member_id] = each.current.assigned
        converted.touch(each, now_ms)
    return converted


def _check_alive(group: Group | ConsumerGroup) -> None:
    if group.state in (GroupState.DEAD, ConsumerGroupState.DEAD):
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the group is being deleted")


def _check_upgrade(group: Group, config: ConsumerGroupConfig) -> None:
    if not config.allows_upgrade:
        raise _cannot_upgrade(group, "online upgrades are disabled")
    if group.protocol_type != CONSUMER:
        raise _cannot_upgrade(group, "its members are not consumers")
    if len(group.members) > config.max_size:
        raise _cannot_upgrade(group, "it has too many members")


def _cannot_upgrade(group: Group, reason: str) -> KafkaError:
    message = f"cannot upgrade the classic group '{group.group_id}': {reason}"
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, message)


def _to_consumer(member: Member, group: Group, converted: ConsumerGroup, topics: Topics) -> ConsumerMember:
    metadata = member.metadata(group.protocol) or member.protocols[0][1]
    subscription = read_subscription(metadata)
    assigned = read_assignment(member.assignment, topics)
    if subscription is None or assigned is None:
        raise _cannot_upgrade(group, f"member {member.member_id} has an unknown format")
    free = converted.roster.free(assigned, member.member_id)  # a client-side assignor may assign a partition twice
    return ConsumerMember(
        member.member_id,
        Metadata(
            member.instance_id,
            subscription.rack_id,
            member.client_id,
            member.client_host,
            subscription.topics,
            "",
            member.rebalance_timeout_ms,
            None,
            ClassicProtocols(member.session_timeout_ms, member.protocols),
        ),
        Current(group.generation, group.generation, MemberState.STABLE, free, {}),
    )


def can_downgrade(group: ConsumerGroup, config: GroupConfig) -> bool:
    """Whether only classic members are left, and the group may become a classic group."""
    fits = 0 < len(group.members) <= config.max_size
    return group.config.allows_downgrade and fits and group.roster.uses_only_classic


def to_classic_group(group: ConsumerGroup, config: GroupConfig, names: Mapping[UUID, str]) -> Group:
    """Return a consumer group, which has no members of the consumer protocol, as a classic group.

    The generation is the epoch of the last assignment, which the members have, and not that of the change which has
    left only them. So they are asked to rejoin, instead of being refused for their generation.
    """
    _check_alive(group)
    converted = Group(group.group_id, config.initial_rebalance_delay_ms, config.max_size)
    members = [_to_classic(each, names) for each in group.members.values()]
    converted.restore(
        members,
        generation=group.target_epoch if members else group.epoch,
        protocol_type=CONSUMER if members else None,
        protocol=choose_protocol(members) if members else None,
        leader=members[0].member_id if members else None,
    )
    return converted


def _to_classic(member: ConsumerMember, names: Mapping[UUID, str]) -> Member:
    metadata, classic = member.metadata, member.classic
    assert classic is not None
    subscription = read_subscription(classic.protocols[0][1])
    version = 0 if subscription is None else subscription.version
    return Member(
        member.member_id,
        metadata.instance_id,
        metadata.client_id,
        metadata.client_host,
        classic.session_timeout_ms,
        metadata.rebalance_timeout_ms,
        classic.protocols,
        assignment=write_assignment(member.current.assigned, names, version),
        has_synced=True,
        expires_at_ms=member.expires_at_ms,
    )
