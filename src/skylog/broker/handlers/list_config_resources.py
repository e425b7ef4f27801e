"""ListConfigResources (74), version 0: the subscriptions to client metrics. There are none."""

from __future__ import annotations

from skylog.broker.api import Api, Context
from skylog.broker.security.needs import cluster
from skylog.protocol.apis import ApiKey
from skylog.protocol.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from skylog.security.acl import AclOperation


def handle(_: Context, __: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    return ListConfigResourcesResponse()


API = Api(ApiKey.LIST_CONFIG_RESOURCES, 0, 0, handle, needs=(cluster(AclOperation.DESCRIBE_CONFIGS),))
