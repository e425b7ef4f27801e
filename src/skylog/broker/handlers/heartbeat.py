"""Heartbeat (12), versions 0-4: keep a member's session alive. The response notifies it of a rebalance."""

from __future__ import annotations

from skylog.broker.api import Api, Context
from skylog.broker.group_shard import MemberId
from skylog.broker.security.needs import group
from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.apis import ApiKey
from skylog.protocol.heartbeat import HeartbeatRequest, HeartbeatResponse
from skylog.security.acl import AclOperation


def handle(context: Context, request: HeartbeatRequest) -> HeartbeatResponse:
    member = MemberId(request.member_id, request.group_instance_id, request.generation_id)
    try:
        context.broker.coordinator.shard(request.group_id).heartbeat(request.group_id, member)
    except KafkaError as error:
        # While the group is loading, its members are not known yet. The heartbeat succeeds, as in Kafka.
        loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return HeartbeatResponse(error_code=ErrorCode.NONE if loading else error.code)
    return HeartbeatResponse()


API = Api(ApiKey.HEARTBEAT, 0, 4, handle, needs=(group(AclOperation.READ),))
