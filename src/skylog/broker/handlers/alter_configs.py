"""AlterConfigs (33), versions 0-2: replace all of a topic's configuration; keys left out get their default back."""

from __future__ import annotations

from skylog.broker.api import Api, Context
from skylog.broker.handlers.incremental_alter_configs import apply_to_topic
from skylog.broker.topic_configs import Operation
from skylog.errors import KafkaError
from skylog.protocol.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from skylog.protocol.apis import ApiKey


async def handle(context: Context, request: AlterConfigsRequest) -> AlterConfigsResponse:
    responses = [await _alter(context, wanted, request.validate_only) for wanted in request.resources]
    return AlterConfigsResponse(responses=responses)


async def _alter(context: Context, wanted: AlterConfigsResource, validate_only: bool) -> AlterConfigsResourceResponse:
    response = AlterConfigsResourceResponse(resource_type=wanted.resource_type, resource_name=wanted.resource_name)
    changes = [(config.name, int(Operation.SET), config.value) for config in wanted.configs]
    try:
        await apply_to_topic(
            context, wanted.resource_type, wanted.resource_name, changes, validate_only, keep_present=False
        )
    except KafkaError as error:
        response.error_code, response.error_message = error.code, error.message
    return response


API = Api(ApiKey.ALTER_CONFIGS, 0, 2, handle)
