"""LeaveGroup (13), versions 0-5: remove a member, or from version 3 on several, static ones by their instance id."""

from __future__ import annotations

from skylog.broker.api import Api, Context
from skylog.broker.security.needs import group
from skylog.broker.time_slice import cooperatively
from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.apis import ApiKey
from skylog.protocol.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from skylog.security.acl import AclOperation


async def handle(context: Context, request: LeaveGroupRequest) -> LeaveGroupResponse:
    try:
        context.broker.coordinator.shard(request.group_id)
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
            async for each in cooperatively(request.members)
        ]
    )


def _leave(context: Context, group_id: str, member_id: str, instance_id: str | None) -> ErrorCode:
    try:
        context.broker.coordinator.shard(group_id).leave(group_id, member_id, instance_id)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


API = Api(ApiKey.LEAVE_GROUP, 0, 5, handle, needs=(group(AclOperation.READ),))
