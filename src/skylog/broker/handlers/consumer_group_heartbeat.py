"""ConsumerGroupHeartbeat (68), versions 0-1: join, stay in and leave a consumer group (KIP-848).

The response has the member's epoch, and its partitions if they have changed. From version 1 on members generate their
own ids (KIP-1082) and may subscribe by regular expression.
"""

from __future__ import annotations

from typing import Final
from uuid import uuid4

from skylog.broker.api import Api, Context
from skylog.broker.security.access import check_topic
from skylog.broker.security.needs import each_topic, group
from skylog.errors import ErrorCode, KafkaError
from skylog.groups.consumer import Heartbeat, Partitions, check_heartbeat, partitions_of
from skylog.protocol.apis import ApiKey
from skylog.protocol.consumer_group_heartbeat import (
    AssignedTopicPartitions,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
)
from skylog.security.acl import AclOperation

MAX_SUBSCRIPTION_CHARACTERS: Final = 256 * 1024
"""Limits what is stored of a member, which must fit into one batch."""
MAX_OWNED_PARTITIONS: Final = 250_000


async def handle(context: Context, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
    config = context.broker.config.consumer_groups
    try:
        if not request.group_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "GroupId can't be empty.")
        _check_size(request)
        for topic in request.subscribed_topic_names or ():
            check_topic(context, AclOperation.DESCRIBE, topic)
        heartbeat = _heartbeat(context, request)
        check_heartbeat(heartbeat, needs_id=context.version >= 1, assignors=config.assignors)
        if not heartbeat.member_id:
            heartbeat = heartbeat._replace(member_id=str(uuid4()))
        shard = context.broker.coordinator.shard(request.group_id)
        response = await shard.consumer_heartbeat(request.group_id, heartbeat, context.session.rights)
    except KafkaError as error:
        return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
    return ConsumerGroupHeartbeatResponse(
        member_id=response.member_id,
        member_epoch=response.epoch,
        heartbeat_interval_ms=config.heartbeat_interval_ms,
        assignment=None if response.assigned is None else _assignment(response.assigned),
    )


def _check_size(request: ConsumerGroupHeartbeatRequest) -> None:
    """Raise INVALID_REQUEST if a request names more than any member can subscribe to or own."""
    names, owned = request.subscribed_topic_names or (), request.topic_partitions or ()
    if sum(map(len, names)) + len(names) > MAX_SUBSCRIPTION_CHARACTERS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the names of the subscribed topics are too long")
    if len(owned) + sum(len(each.partitions) for each in owned) > MAX_OWNED_PARTITIONS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "there are too many owned partitions")


def _heartbeat(context: Context, request: ConsumerGroupHeartbeatRequest) -> Heartbeat:
    names, owned = request.subscribed_topic_names, request.topic_partitions
    return Heartbeat(
        request.member_id,
        request.member_epoch,
        request.instance_id,
        request.rack_id,
        request.rebalance_timeout_ms,
        None if names is None else frozenset(names),
        request.subscribed_topic_regex,
        request.server_assignor,
        None if owned is None else partitions_of((each.topic_id, each.partitions) for each in owned),
        context.client_id or "",
        "/" + context.connection.peer.rpartition(":")[0],
    )


def _assignment(partitions: Partitions) -> HeartbeatAssignment:
    return HeartbeatAssignment(
        topic_partitions=[
            AssignedTopicPartitions(topic_id=topic_id, partitions=sorted(numbers))
            for topic_id, numbers in partitions.items()
        ]
    )


API = Api(
    ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1, handle, needs=(group(AclOperation.READ), each_topic(AclOperation.DESCRIBE))
)
