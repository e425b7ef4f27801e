"""IncrementalAlterConfigs (44), versions 0-1: set and delete single keys, append to and subtract from lists (KIP-339).

For topics, for a broker, for all brokers (the empty name), and for the levels of this broker's loggers. A resource
that is repeated in a request fails each time.
"""

from __future__ import annotations

from collections import Counter

from skylog.broker.api import Api, Context
from skylog.broker.config_changes import ConfigChange, alter
from skylog.broker.config_descriptions import ResourceType
from skylog.broker.security.access import check_config
from skylog.broker.security.needs import each_topic
from skylog.broker.store_errors import as_kafka_errors
from skylog.broker.time_slice import cooperatively
from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.apis import ApiKey
from skylog.protocol.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from skylog.security.acl import AclOperation


async def handle(context: Context, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    counts = Counter((wanted.resource_type, wanted.resource_name) for wanted in request.resources)
    responses = [
        await _alter(context, wanted, request.validate_only, counts[wanted.resource_type, wanted.resource_name])
        async for wanted in cooperatively(request.resources)
    ]
    return IncrementalAlterConfigsResponse(responses=responses)


async def _alter(
    context: Context, wanted: AlterConfigsResource, validate_only: bool, times: int
) -> AlterConfigsResourceResponse:
    kind, name = wanted.resource_type, wanted.resource_name
    response = AlterConfigsResourceResponse(resource_type=kind, resource_name=name)
    changes = [ConfigChange(config.name, config.config_operation, config.value) for config in wanted.configs]
    try:
        check_config(context, AclOperation.ALTER_CONFIGS, kind == ResourceType.TOPIC, name)
        if times > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the resource appears more than once in the request")
        with as_kafka_errors():
            await alter(context.broker, kind, name, changes, whole=False, validate_only=validate_only)
    except KafkaError as error:
        response.error_code, response.error_message = error.code, error.message
    return response


API = Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, handle, needs=(each_topic(AclOperation.ALTER_CONFIGS),))
