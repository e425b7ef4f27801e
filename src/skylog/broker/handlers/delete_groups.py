"""DeleteGroups (42), versions 0-2: delete groups that have no members, with their committed offsets."""

from __future__ import annotations

from skylog.broker.api import Api, Context
from skylog.broker.security.access import check
from skylog.broker.security.needs import each_group
from skylog.broker.time_slice import cooperatively
from skylog.broker.unique_names import unique
from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.apis import ApiKey
from skylog.protocol.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from skylog.security.acl import AclOperation, ResourceType


async def handle(context: Context, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    results = [
        DeletableGroupResult(group_id=group_id, error_code=await _delete(context, group_id))
        async for group_id in cooperatively(unique(request.groups_names))
    ]
    return DeleteGroupsResponse(results=results)


async def _delete(context: Context, group_id: str) -> ErrorCode:
    try:
        check(context, AclOperation.DELETE, ResourceType.GROUP, group_id)
        await context.broker.coordinator.shard(group_id, may_be_empty=True).delete(group_id)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


API = Api(ApiKey.DELETE_GROUPS, 0, 2, handle, needs=(each_group(AclOperation.DELETE),))
