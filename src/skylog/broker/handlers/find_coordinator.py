"""FindCoordinator (10), versions 0-5: there is no coordinator of groups or transactions yet, and this says so.

It is served all the same: librdkafka takes its absence as a sign of a broker that is too old for lz4, and then sends
uncompressed without a word.
"""

from __future__ import annotations

from typing import Final

from skylog.broker.api import Api, Context
from skylog.errors import ErrorCode
from skylog.protocol.apis import ApiKey
from skylog.protocol.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

_REASON: Final = "this broker coordinates no groups and no transactions; assign partitions explicitly"


def handle(context: Context, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return FindCoordinatorResponse(
        error_code=code,
        error_message=_REASON,
        coordinators=[
            Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=_REASON)
            for key in request.coordinator_keys
        ],
    )


API = Api(ApiKey.FIND_COORDINATOR, 0, 5, handle)
