"""ListGroups (16), versions 0-5: this broker's groups; from version 4 on filtered by state, from 5 on also by type.

While groups are loading, the response has COORDINATOR_LOAD_IN_PROGRESS and the groups that are loaded.
"""

from __future__ import annotations

from itertools import chain
from typing import Final

from skylog.broker.api import Api, Context
from skylog.broker.security.access import sees
from skylog.broker.security.needs import each_group
from skylog.broker.time_slice import cooperatively
from skylog.errors import ErrorCode
from skylog.groups import AnyGroup, ConsumerGroup
from skylog.protocol.apis import ApiKey
from skylog.protocol.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from skylog.security.acl import AclOperation, ResourceType

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"


async def handle(context: Context, request: ListGroupsRequest) -> ListGroupsResponse:
    coordinator = context.broker.coordinator
    error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if coordinator.is_loading else ErrorCode.NONE
    groups = chain.from_iterable(shard.all_groups() for shard in coordinator.shards())
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    sees_all = sees(context, AclOperation.DESCRIBE, ResourceType.CLUSTER)
    return ListGroupsResponse(
        error_code=error,
        groups=[
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
                group_type=_type(group),
            )
            async for group in cooperatively(groups)
            if (sees_all or sees(context, AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id))
            and (not states or group.state.value.lower() in states)
            and (not types or _type(group) in types)
        ],
    )


def _type(group: AnyGroup) -> str:
    return CONSUMER if isinstance(group, ConsumerGroup) else CLASSIC


API = Api(ApiKey.LIST_GROUPS, 0, 5, handle, has_large_answers=True, needs=(each_group(AclOperation.DESCRIBE),))
