"""DeleteGroups (42), versions 0-2: forget groups that have no members, with everything they have committed."""

from __future__ import annotations

from skylog.broker.api import Api, Context
from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.apis import ApiKey
from skylog.protocol.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


async def handle(context: Context, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    results = [
        DeletableGroupResult(group_id=group_id, error_code=await _delete(context, group_id))
        for group_id in request.groups_names
    ]
    return DeleteGroupsResponse(results=results)


async def _delete(context: Context, group_id: str) -> ErrorCode:
    try:
        await context.broker.coordinator.delete(group_id)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


API = Api(ApiKey.DELETE_GROUPS, 0, 2, handle)
