"""JoinGroup (11), versions 0-9: join a group, or rejoin it for a rebalance. Waits until all members have joined.

From version 4 on a new member first gets an id, with which it joins (KIP-394). From 5 on a member may be static
(KIP-345). From 9 on the response can make a static leader that rejoins skip the assignment (KIP-814).

A member may support up to MAX_PROTOCOLS assignors. Clients have a handful, and each join compares those of all members.
"""

from __future__ import annotations

from typing import Final

from skylog.broker.api import Api, Context
from skylog.broker.security.needs import group
from skylog.errors import ErrorCode, KafkaError
from skylog.groups import JoinRequest, JoinResponse
from skylog.protocol.apis import ApiKey
from skylog.protocol.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from skylog.security.acl import AclOperation

MAX_PROTOCOLS: Final = 32


async def handle(context: Context, request: JoinGroupRequest) -> JoinGroupResponse:
    try:
        shard = context.broker.coordinator.shard(request.group_id)
        result = await shard.join(request.group_id, _join_request(context, request))
    except KafkaError as error:
        result = JoinResponse(None, error.code, member_id=request.member_id)
    return _response(context, result)


def _join_request(context: Context, request: JoinGroupRequest) -> JoinRequest:
    if len(request.protocols) > MAX_PROTOCOLS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"a member may have {MAX_PROTOCOLS} protocols at most")
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


def _response(context: Context, result: JoinResponse) -> JoinGroupResponse:
    name = result.protocol if context.version >= 7 else result.protocol or ""
    return JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name=name,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            JoinGroupResponseMember(member_id=member_id, group_instance_id=instance_id, metadata=metadata)
            for member_id, instance_id, metadata in result.members
        ],
    )


API = Api(
    ApiKey.JOIN_GROUP,
    0,
    9,
    handle,
    may_wait=True,
    needs=(group(AclOperation.READ),),
    refuse=lambda request, code: JoinGroupResponse(error_code=code, member_id=request.member_id),
)
