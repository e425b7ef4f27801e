"""DescribeGroups (15), versions 0-5: state, members and their assignments. An unknown group is shown as Dead."""

from __future__ import annotations

from skylog.broker.api import Api, Context
from skylog.errors import KafkaError
from skylog.groups import GroupState
from skylog.protocol.apis import ApiKey
from skylog.protocol.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)


def handle(context: Context, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(groups=[_describe(context, group_id) for group_id in request.groups])


def _describe(context: Context, group_id: str) -> DescribedGroup:
    coordinator = context.broker.coordinator
    try:
        coordinator.check(group_id, may_be_empty=True)
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code)
    group = coordinator.groups.find(group_id)
    if group is None:
        return DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
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


API = Api(ApiKey.DESCRIBE_GROUPS, 0, 5, handle)
