"""DescribeGroups (15), versions 0-6: state, members and their assignments of classic groups.

An unknown group is Dead, and so is one of the consumer protocol. From version 6 on there is also GROUP_ID_NOT_FOUND.
"""

from __future__ import annotations

from skylog.broker.api import Api, Context
from skylog.broker.authorized_operations import operations_on
from skylog.broker.security.access import check
from skylog.broker.security.needs import each_group
from skylog.broker.time_slice import cooperatively
from skylog.broker.unique_names import unique
from skylog.errors import ErrorCode, KafkaError
from skylog.groups import Group, GroupState
from skylog.protocol.apis import ApiKey
from skylog.protocol.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from skylog.security.acl import AclOperation, ResourceType


async def handle(context: Context, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    groups = [_describe(context, group_id) async for group_id in cooperatively(unique(request.groups))]
    if request.include_authorized_operations:
        for group in groups:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = operations_on(context, ResourceType.GROUP, group.group_id)
    return DescribeGroupsResponse(groups=groups)


def _describe(context: Context, group_id: str) -> DescribedGroup:
    try:
        check(context, AclOperation.DESCRIBE, ResourceType.GROUP, group_id)
        group = context.broker.coordinator.shard(group_id, may_be_empty=True).group(group_id)
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code)
    if not isinstance(group, Group):
        reason = "not found" if group is None else "is not a classic group"
        return DescribedGroup(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND if context.version >= 6 else ErrorCode.NONE,
            error_message=f"Group {group_id} {reason}.",
            group_state=GroupState.DEAD.value,
        )
    shown = group.protocol if group.state is GroupState.STABLE else None
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=shown or "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(shown),
                member_assignment=member.assignment if shown else b"",
            )
            for member in group.members.values()
        ],
    )


API = Api(ApiKey.DESCRIBE_GROUPS, 0, 6, handle, has_large_answers=True, needs=(each_group(AclOperation.DESCRIBE),))
