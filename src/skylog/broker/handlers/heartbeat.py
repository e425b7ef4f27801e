"""Heartbeat (12), versions 0-4: a member's sign of life, and how it learns of a rebalance."""

from __future__ import annotations

from skylog.broker.api import Api, Context
from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.apis import ApiKey
from skylog.protocol.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(context: Context, request: HeartbeatRequest) -> HeartbeatResponse:
    coordinator = context.broker.coordinator
    try:
        coordinator.check(request.group_id)
        group = coordinator.groups.find(request.group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        group.heartbeat(request.member_id, request.group_instance_id, request.generation_id, coordinator.now_ms())
    except KafkaError as error:
        # While the group is being read back nobody can say who is a member; the sign of life itself is not refused.
        loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return HeartbeatResponse(error_code=ErrorCode.NONE if loading else error.code)
    return HeartbeatResponse()


API = Api(ApiKey.HEARTBEAT, 0, 4, handle)
