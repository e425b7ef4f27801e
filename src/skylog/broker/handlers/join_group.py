"""JoinGroup (11), versions 0-9: become a member, or take part in a rebalance. Answered when the round is complete.

From version 4 on a new member is first given an id to come back with (KIP-394), from 5 on it may be static (KIP-345),
from 9 on a static leader that is back can be told to leave the assignment as it is (KIP-814).
"""

from __future__ import annotations

import asyncio

from skylog.broker.api import Api, Context
from skylog.errors import ErrorCode, KafkaError
from skylog.groups import JoinAnswer, JoinRequest
from skylog.protocol.apis import ApiKey
from skylog.protocol.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember


async def handle(context: Context, request: JoinGroupRequest) -> JoinGroupResponse:
    coordinator = context.broker.coordinator
    config = context.broker.config.groups
    try:
        coordinator.check(request.group_id)
        if not config.min_session_timeout_ms <= request.session_timeout_ms <= config.max_session_timeout_ms:
            raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)
        group = coordinator.groups.find(request.group_id)
        if group is None:
            if request.member_id:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            group = coordinator.groups.get_or_create(request.group_id)
    except KafkaError as error:
        return _response(context, JoinAnswer(None, error.code, member_id=request.member_id))
    token: asyncio.Future[JoinAnswer] = asyncio.get_running_loop().create_future()
    coordinator.run(group, group.join(_wish(context, request), token, coordinator.now_ms()))
    coordinator.groups.drop_unused(group)
    return _response(context, await token)


def _wish(context: Context, request: JoinGroupRequest) -> JoinRequest:
    rebalance_ms = request.rebalance_timeout_ms if context.version >= 1 else request.session_timeout_ms
    return JoinRequest(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=context.client_id or "",
        client_host="/" + context.connection.peer.rpartition(":")[0],
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=rebalance_ms if rebalance_ms > 0 else request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((each.name, bytes(each.metadata)) for each in request.protocols),
        needs_known_id=context.version >= 4,
        knows_skip_assignment=context.version >= 9,
    )


def _response(context: Context, answer: JoinAnswer) -> JoinGroupResponse:
    name = answer.protocol if context.version >= 7 else answer.protocol or ""
    return JoinGroupResponse(
        error_code=answer.error,
        generation_id=answer.generation,
        protocol_type=answer.protocol_type,
        protocol_name=name,
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=[
            JoinGroupResponseMember(member_id=member_id, group_instance_id=instance_id, metadata=metadata)
            for member_id, instance_id, metadata in answer.members
        ],
    )


API = Api(ApiKey.JOIN_GROUP, 0, 9, handle, may_wait=True)
