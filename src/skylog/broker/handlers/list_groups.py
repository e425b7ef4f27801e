"""ListGroups (16), versions 0-5: every group; from version 4 on filtered by state, from 5 on by type.

While groups are still being read back the list says so, with those that are known.
"""

from __future__ import annotations

from typing import Final

from skylog.broker.api import Api, Context
from skylog.errors import ErrorCode
from skylog.protocol.apis import ApiKey
from skylog.protocol.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

CLASSIC: Final = "classic"


def handle(context: Context, request: ListGroupsRequest) -> ListGroupsResponse:
    coordinator = context.broker.coordinator
    error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if coordinator.is_loading else ErrorCode.NONE
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    if types and CLASSIC not in types:
        return ListGroupsResponse(error_code=error)
    return ListGroupsResponse(
        error_code=error,
        groups=[
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
                group_type=CLASSIC,
            )
            for group in coordinator.groups.all()
            if not states or group.state.value.lower() in states
        ],
    )


API = Api(ApiKey.LIST_GROUPS, 0, 5, handle)
