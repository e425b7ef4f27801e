"""SyncGroup (14), versions 0-5: the leader sends the assignment, and each member receives its part."""

from __future__ import annotations

from skylog.broker.api import Api, Context
from skylog.broker.group_shard import MemberId
from skylog.broker.security.needs import group
from skylog.errors import KafkaError
from skylog.protocol.apis import ApiKey
from skylog.protocol.sync_group import SyncGroupRequest, SyncGroupResponse
from skylog.security.acl import AclOperation


async def handle(context: Context, request: SyncGroupRequest) -> SyncGroupResponse:
    try:
        result = await context.broker.coordinator.shard(request.group_id).sync(
            request.group_id,
            MemberId(request.member_id, request.group_instance_id, request.generation_id),
            [(each.member_id, bytes(each.assignment)) for each in request.assignments],
            request.protocol_type,
            request.protocol_name,
        )
    except KafkaError as error:
        return SyncGroupResponse(error_code=error.code)
    return SyncGroupResponse(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol,
        assignment=result.assignment,
    )


API = Api(ApiKey.SYNC_GROUP, 0, 5, handle, may_wait=True, needs=(group(AclOperation.READ),))
