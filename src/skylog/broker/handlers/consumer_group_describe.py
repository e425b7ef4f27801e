"""ConsumerGroupDescribe (69), versions 0-1: state, epochs, members and assignments of consumer groups (KIP-848).

A group of the classic protocol is GROUP_ID_NOT_FOUND; DescribeGroups has those.
"""

from __future__ import annotations

from skylog.broker.api import Api, Context
from skylog.broker.authorized_operations import operations_on
from skylog.broker.security.access import check, check_topic
from skylog.broker.security.needs import each_group, each_topic
from skylog.broker.time_slice import cooperatively
from skylog.broker.unique_names import unique
from skylog.errors import ErrorCode, KafkaError
from skylog.groups import ConsumerGroup
from skylog.groups.consumer import ConsumerMember, Partitions
from skylog.protocol.apis import ApiKey
from skylog.protocol.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedAssignment,
    DescribedConsumer,
    DescribedConsumerGroup,
    DescribedTopicPartitions,
)
from skylog.security.acl import AclOperation, ResourceType


async def handle(context: Context, request: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse:
    groups = [_describe(context, group_id) async for group_id in cooperatively(unique(request.group_ids))]
    if request.include_authorized_operations:
        for group in groups:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = operations_on(context, ResourceType.GROUP, group.group_id)
    return ConsumerGroupDescribeResponse(groups=groups)


def _describe(context: Context, group_id: str) -> DescribedConsumerGroup:
    try:
        check(context, AclOperation.DESCRIBE, ResourceType.GROUP, group_id)
        group = context.broker.coordinator.shard(group_id).group(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        if not isinstance(group, ConsumerGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        _check_topics(context, group)
    except KafkaError as error:
        return DescribedConsumerGroup(group_id=group_id, error_code=error.code, error_message=error.message)
    return DescribedConsumerGroup(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.assignor,
        members=[_member(context, group, each) for each in group.members.values()],
    )


def _check_topics(context: Context, group: ConsumerGroup) -> None:
    """Raise TOPIC_AUTHORIZATION_FAILED unless the client may describe all topics of a group."""
    if context.session.rights is None:
        return
    names = context.broker.metadata.image.names
    for member in group.members.values():
        assigned = member.current.assigned.keys() | group.targets.get(member.member_id, {}).keys()
        for topic in {*member.metadata.topic_names, *(names[each] for each in assigned if each in names)}:
            check_topic(context, AclOperation.DESCRIBE, topic)


def _member(context: Context, group: ConsumerGroup, member: ConsumerMember) -> DescribedConsumer:
    metadata = member.metadata
    return DescribedConsumer(
        member_id=member.member_id,
        instance_id=metadata.instance_id,
        rack_id=metadata.rack_id,
        member_epoch=member.current.epoch,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        subscribed_topic_names=sorted(metadata.topic_names),
        subscribed_topic_regex=metadata.pattern or None,
        assignment=_assignment(context, member.current.assigned),
        target_assignment=_assignment(context, group.targets.get(member.member_id, {})),
        member_type=1 if member.classic is None else 0,
    )


def _assignment(context: Context, partitions: Partitions) -> DescribedAssignment:
    """Return partitions with the names of their topics. Topics that are gone are left out."""
    names = context.broker.metadata.image.names
    return DescribedAssignment(
        topic_partitions=[
            DescribedTopicPartitions(topic_id=topic_id, topic_name=names[topic_id], partitions=sorted(numbers))
            for topic_id, numbers in partitions.items()
            if topic_id in names
        ]
    )


API = Api(
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    0,
    1,
    handle,
    has_large_answers=True,
    needs=(each_group(AclOperation.DESCRIBE), each_topic(AclOperation.DESCRIBE)),
)
