"""DescribeConfigs (32), versions 0-4: the configuration of topics and of this broker, defaults included."""

from __future__ import annotations

from skylog.broker.api import Api, Context
from skylog.broker.topic_configs import (
    BROKER,
    TOPIC,
    TYPE_CODES,
    DescribedConfig,
    Source,
    describe_broker,
    describe_topic,
)
from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.apis import ApiKey
from skylog.protocol.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


def handle(context: Context, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=[_describe(context, request, wanted) for wanted in request.resources])


def _describe(
    context: Context, request: DescribeConfigsRequest, wanted: DescribeConfigsResource
) -> DescribeConfigsResult:
    try:
        configs = _find(context, wanted)
    except KafkaError as error:
        return DescribeConfigsResult(
            error_code=error.code,
            error_message=error.message,
            resource_type=wanted.resource_type,
            resource_name=wanted.resource_name,
        )
    keys = wanted.configuration_keys
    return DescribeConfigsResult(
        resource_type=wanted.resource_type,
        resource_name=wanted.resource_name,
        configs=[
            _result(each, wanted.resource_type == BROKER, request)
            for each in configs
            if keys is None or each.key in keys
        ],
    )


def _find(context: Context, wanted: DescribeConfigsResource) -> list[DescribedConfig]:
    broker = context.broker
    if wanted.resource_type == TOPIC:
        return describe_topic(broker.config, broker.topics.get(wanted.resource_name).configs)
    if wanted.resource_type == BROKER:
        if wanted.resource_name not in ("", str(broker.identity.node_id)):
            reason = f"this is broker {broker.identity.node_id}, not '{wanted.resource_name}'"
            raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
        return describe_broker(broker.config) if wanted.resource_name else []
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"resource type {wanted.resource_type} has no configuration here")


def _result(each: DescribedConfig, read_only: bool, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=each.key,
        value=each.value,
        read_only=read_only,
        is_default=each.source is Source.DEFAULT,
        config_source=each.source,
        synonyms=[
            DescribeConfigsSynonym(name=synonym.key, value=synonym.value, source=synonym.source)
            for synonym in (each.synonyms if request.include_synonyms else ())
        ],
        config_type=TYPE_CODES[each.setting.kind],
        documentation=each.setting.doc if request.include_documentation else None,
    )


API = Api(ApiKey.DESCRIBE_CONFIGS, 0, 4, handle)
