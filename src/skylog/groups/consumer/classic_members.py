"""Serves members of the classic protocol in a consumer group, while its consumers are upgraded one by one.

To such a member, the member epoch is the generation. The broker assigns its partitions like those of all others:

* JoinGroup reconciles the member at once. No response waits for other members, and there is no leader.
* SyncGroup returns the partitions of the member.
* Heartbeat asks the member to rejoin if there is a new epoch, something to revoke, or something to get.

A member that does not rejoin, or does not sync, within its rebalance timeout is removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from skylog.errors import ErrorCode, KafkaError
from skylog.groups.consumer.embedded_protocol import (
    Subscription,
    read_subscription,
    to_partitions,
    write_assignment,
)
from skylog.groups.consumer.group import CONSUMER, ConsumerGroup
from skylog.groups.consumer.member import ClassicProtocols, ConsumerMember, MemberState, Metadata
from skylog.groups.consumer.topics import Topics
from skylog.groups.effects import JoinResponse, SyncResponse
from skylog.groups.member import JoinRequest, Token


def update(group: ConsumerGroup, member_id: str, request: JoinRequest, topics: Topics, now_ms: int) -> None:
    """Apply a JoinGroup request: the first step, like `ConsumerGroup.update`. Raises KafkaError.

    `member_id` is that of the request, or a new one if the request has none.
    """
    subscription = _subscription(group, member_id, request)
    member = _member_of(group, member_id, request)
    metadata = Metadata(
        request.instance_id,
        subscription.rack_id,
        request.client_id,
        request.client_host,
        subscription.topics,
        "",
        request.rebalance_timeout_ms,
        None,
        ClassicProtocols(request.session_timeout_ms, request.protocols),
    )
    group.describe(member, metadata)
    group.touch(member, now_ms)
    group.compare_topics(topics)


def _subscription(group: ConsumerGroup, member_id: str, request: JoinRequest) -> Subscription:
    """Return the subscription of a request. Raises INCONSISTENT_GROUP_PROTOCOL unless it suits the classic members."""
    others = (each.classic for key, each in group.members.items() if key != member_id)
    offered = {name for name, _ in request.protocols}
    shared = offered.intersection(*(each.supports() for each in others if each is not None))
    found = read_subscription(request.protocols[0][1]) if request.protocols else None
    if request.protocol_type != CONSUMER or not shared or found is None:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return found


def _member_of(group: ConsumerGroup, member_id: str, request: JoinRequest) -> ConsumerMember:
    if request.instance_id is None:
        return group.members.get(member_id) or group.add(member_id)
    if request.member_id:
        return group.roster.find(member_id, request.instance_id)
    old = group.roster.static_member(request.instance_id)
    if old is None:
        return group.add(member_id)
    epoch = old.current.previous_epoch if old.has_left else old.current.epoch
    return group.replace_static(old, member_id, old.current._replace(epoch=epoch))


def respond_to_join(
    group: ConsumerGroup, member_id: str, request: JoinRequest, topics: Topics, token: Token, now_ms: int
) -> JoinResponse:
    """Reconcile a member that joins, and return the response: the third step."""
    member = group.roster.find(member_id)
    subscription = read_subscription(request.protocols[0][1])
    assert subscription is not None
    group.reconcile(member, to_partitions(subscription.owned, topics), now_ms)
    member.joins_until_ms = None
    member.syncs_until_ms = now_ms + request.rebalance_timeout_ms
    group.next_tick_ms = 0
    return JoinResponse(
        token,
        generation=member.current.epoch,
        protocol_type=CONSUMER,
        protocol=request.protocols[0][0],
        member_id=member_id,
    )


def sync(
    group: ConsumerGroup,
    member_id: str,
    instance_id: str | None,
    generation: int,
    names: Mapping[UUID, str],
    token: Token,
    now_ms: int,
    protocol_type: str | None = None,
    protocol: str | None = None,
) -> SyncResponse:
    """Return the partitions of a member. Raises KafkaError."""
    member, classic = _find(group, member_id, instance_id, generation)
    name, metadata = classic.protocols[0]
    for given, mine in ((protocol_type, CONSUMER), (protocol, name)):
        if given is not None and given != mine:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if group.epoch > member.current.epoch and member.current.state is not MemberState.UNREVOKED_PARTITIONS:
        raise _rejoin(group, member, now_ms)
    member.syncs_until_ms = None
    group.touch(member, now_ms)
    subscription = read_subscription(metadata)
    version = 0 if subscription is None else subscription.version
    assignment = write_assignment(member.current.assigned, names, version)
    return SyncResponse(token, protocol_type=CONSUMER, protocol=name, assignment=assignment)


def heartbeat(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> None:
    """Handle a heartbeat. Raises REBALANCE_IN_PROGRESS if the member has to rejoin."""
    member, _ = _find(group, member_id, instance_id, generation)
    group.touch(member, now_ms)
    current = member.current
    can_go_on = current.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(member)
    if current.epoch < group.epoch or current.state is MemberState.UNREVOKED_PARTITIONS or can_go_on:
        raise _rejoin(group, member, now_ms)


def leave(group: ConsumerGroup, member_id: str, instance_id: str | None) -> None:
    """Remove a member. A static member of either protocol may be given by its instance id alone. Raises KafkaError."""
    if member_id:
        member, _ = _find(group, member_id, instance_id)
    else:
        found = group.roster.static_member(instance_id)
        if found is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        member = found
    group.remove(member)


def _find(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int | None = None
) -> tuple[ConsumerMember, ClassicProtocols]:
    member = group.roster.find(member_id, instance_id)
    if member.classic is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "the member uses the consumer protocol")
    if generation is not None and generation != member.current.epoch:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    return member, member.classic


def _rejoin(group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> KafkaError:
    if member.joins_until_ms is None:
        member.joins_until_ms = now_ms + member.metadata.rebalance_timeout_ms
        group.next_tick_ms = 0
    return KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
