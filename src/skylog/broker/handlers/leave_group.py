"""LeaveGroup (13), versions 0-5: one member goes, or from version 3 on several, static ones by their instance id."""

from __future__ import annotations

from skylog.broker.api import Api, Context
from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.apis import ApiKey
from skylog.protocol.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse


def handle(context: Context, request: LeaveGroupRequest) -> LeaveGroupResponse:
    try:
        context.broker.coordinator.check(request.group_id)
    except KafkaError as error:
        return LeaveGroupResponse(error_code=error.code)
    if context.version < 3:
        return LeaveGroupResponse(error_code=_leave(context, request.group_id, request.member_id, None))
    return LeaveGroupResponse(
        members=[
            MemberResponse(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                error_code=_leave(context, request.group_id, each.member_id, each.group_instance_id),
            )
            for each in request.members
        ]
    )


def _leave(context: Context, group_id: str, member_id: str, instance_id: str | None) -> ErrorCode:
    coordinator = context.broker.coordinator
    group = coordinator.groups.find(group_id)
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    try:
        coordinator.run(group, group.leave(member_id, instance_id, coordinator.now_ms()))
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


API = Api(ApiKey.LEAVE_GROUP, 0, 5, handle)
