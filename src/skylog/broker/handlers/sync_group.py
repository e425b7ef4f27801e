"""SyncGroup (14), versions 0-5: the leader hands in the assignment, everyone gets their part of it."""

from __future__ import annotations

import asyncio

from skylog.broker.api import Api, Context
from skylog.errors import ErrorCode, KafkaError
from skylog.groups import SyncAnswer
from skylog.protocol.apis import ApiKey
from skylog.protocol.sync_group import SyncGroupRequest, SyncGroupResponse


async def handle(context: Context, request: SyncGroupRequest) -> SyncGroupResponse:
    coordinator = context.broker.coordinator
    try:
        coordinator.check(request.group_id)
    except KafkaError as error:
        return SyncGroupResponse(error_code=error.code)
    group = coordinator.groups.find(request.group_id)
    if group is None:
        return SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
    token: asyncio.Future[SyncAnswer] = asyncio.get_running_loop().create_future()
    effects = group.sync(
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        [(each.member_id, bytes(each.assignment)) for each in request.assignments],
        token,
        coordinator.now_ms(),
        request.protocol_type,
        request.protocol_name,
    )
    coordinator.run(group, effects)
    answer = await token
    return SyncGroupResponse(
        error_code=answer.error,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol,
        assignment=answer.assignment,
    )


API = Api(ApiKey.SYNC_GROUP, 0, 5, handle, may_wait=True)
