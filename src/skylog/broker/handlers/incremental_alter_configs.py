"""IncrementalAlterConfigs (44), versions 0-1: set and delete single keys, append to and subtract from lists (KIP-339).

Topics only: a broker reads its own configuration when it starts.
"""

from __future__ import annotations

from skylog.broker.api import Api, Context
from skylog.broker.topic_configs import BROKER, TOPIC, change_configs
from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.apis import ApiKey
from skylog.protocol.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


async def handle(context: Context, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    responses = [await _alter(context, wanted, request.validate_only) for wanted in request.resources]
    return IncrementalAlterConfigsResponse(responses=responses)


async def _alter(context: Context, wanted: AlterConfigsResource, validate_only: bool) -> AlterConfigsResourceResponse:
    response = AlterConfigsResourceResponse(resource_type=wanted.resource_type, resource_name=wanted.resource_name)
    changes = [(config.name, config.config_operation, config.value) for config in wanted.configs]
    try:
        await apply_to_topic(
            context, wanted.resource_type, wanted.resource_name, changes, validate_only, keep_present=True
        )
    except KafkaError as error:
        response.error_code, response.error_message = error.code, error.message
    return response


async def apply_to_topic(
    context: Context,
    resource_type: int,
    name: str,
    changes: list[tuple[str, int, str | None]],
    validate_only: bool,
    *,
    keep_present: bool,
) -> None:
    """Change a topic's overrides, from what they are or from none. Raises KafkaError."""
    if resource_type != TOPIC:
        what = "a broker's configuration is read when it starts" if resource_type == BROKER else "no such resource"
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"only topics can be altered: {what}")
    broker = context.broker
    topic = broker.topics.get(name)
    configs = change_configs(topic.configs if keep_present else {}, broker.config.log, changes)
    broker.topics.check_configs(name, configs)
    if not validate_only:
        await broker.topics.configure(topic, configs)


API = Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, handle)
