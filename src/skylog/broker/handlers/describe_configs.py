"""DescribeConfigs (32), versions 0-4: the configuration of topics, of this broker and its loggers, with defaults.

The empty broker name returns the settings made at run time for all brokers. A resource that is repeated in a request
has one result, so a small request cannot cause a huge response.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from skylog.broker.api import Api, Context
from skylog.broker.config_descriptions import (
    TYPE_CODES,
    ConfigSource,
    DescribedConfig,
    ResourceType,
    describe_all_brokers,
    describe_broker,
    describe_topic,
)
from skylog.broker.logger_levels import describe_levels
from skylog.broker.security.access import check_config
from skylog.broker.security.needs import each_topic
from skylog.broker.time_slice import cooperatively
from skylog.errors import ErrorCode, KafkaError
from skylog.model import check_topic_name
from skylog.protocol.apis import ApiKey
from skylog.protocol.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from skylog.replication.mirror import MIRROR_KEY, Mirror
from skylog.security.acl import AclOperation

Rows = list[DescribeConfigsResourceResult]


async def handle(context: Context, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    describer = _Describer(context, request)
    wanted: dict[tuple[int, str], DescribeConfigsResource] = {}
    for resource in request.resources:
        wanted.setdefault((resource.resource_type, resource.resource_name), resource)
    return DescribeConfigsResponse(results=[describer.describe(each) async for each in cooperatively(wanted.values())])


class _Describer:
    """Handles one request. Topics with the same overrides share the rows of the response."""

    def __init__(self, context: Context, request: DescribeConfigsRequest) -> None:
        self._context = context
        self._broker = context.broker
        self._request = request
        self._rows_of_topics: dict[frozenset[tuple[str, str]], Rows] = {}

    def describe(self, wanted: DescribeConfigsResource) -> DescribeConfigsResult:
        result = DescribeConfigsResult(resource_type=wanted.resource_type, resource_name=wanted.resource_name)
        try:
            rows = self._find(wanted.resource_type, wanted.resource_name)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
            return result
        keys = frozenset(wanted.configuration_keys or ())  # an empty list means all keys, as in Kafka
        result.configs = [row for row in rows if row.name in keys] if keys else rows
        return result

    def _find(self, kind: int, name: str) -> Rows:
        check_config(self._context, AclOperation.DESCRIBE_CONFIGS, kind == ResourceType.TOPIC, name)
        if kind == ResourceType.TOPIC:
            check_topic_name(name)
            return self._topic_rows(name)
        if kind not in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"resource type {kind} has no configuration")
        broker = self._broker
        broker.configs.check_name(name)
        if kind == ResourceType.BROKER:
            config = broker.config
            return self._rows(describe_broker(config, broker.derived_config) if name else describe_all_brokers(config))
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "loggers belong to one broker: give the broker's id")
        return [
            DescribeConfigsResourceResult(name=logger, value=level, config_source=ConfigSource.DYNAMIC_BROKER_LOGGER)
            for logger, level in describe_levels()
        ]

    def _topic_rows(self, name: str) -> Rows:
        overrides = self._broker.topics.get(name).configs
        shared = frozenset(overrides.items())
        rows = self._rows_of_topics.get(shared)
        if rows is None:
            rows = self._rows_of_topics[shared] = self._rows(describe_topic(self._broker.config, overrides))
        owner = self._broker.mirrors.owner(name)
        return rows if owner is None else [*rows, _mirror_row(owner)]

    def _rows(self, configs: Sequence[DescribedConfig]) -> Rows:
        return list(map(partial(_row, self._request), configs))


def _mirror_row(owner: Mirror) -> DescribeConfigsResourceResult:
    """Show that a topic is a mirror: to those who administer it, and to other mirrors, which leave it out."""
    return DescribeConfigsResourceResult(
        name=MIRROR_KEY, value=f"{owner.name} of {owner.source}", read_only=True, config_source=ConfigSource.DEFAULT
    )


def _row(request: DescribeConfigsRequest, each: DescribedConfig) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=each.key,
        value=each.value,
        read_only=each.read_only,
        is_default=each.source is ConfigSource.DEFAULT,
        config_source=each.source,
        is_sensitive=each.setting.is_secret,
        synonyms=[
            DescribeConfigsSynonym(name=synonym.key, value=synonym.value, source=synonym.source)
            for synonym in (each.synonyms if request.include_synonyms else ())
        ],
        config_type=TYPE_CODES[each.setting.kind],
        documentation=each.setting.doc if request.include_documentation else None,
    )


API = Api(
    ApiKey.DESCRIBE_CONFIGS, 0, 4, handle, has_large_answers=True, needs=(each_topic(AclOperation.DESCRIBE_CONFIGS),)
)
