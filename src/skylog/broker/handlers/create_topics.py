"""CreateTopics (19), versions 2-7: create topics, given counts or an assignment, and configs.

From version 5 on the response has the counts and all configs, which Java's admin client relies on. A topic that is
repeated in a request is not created and has one result. From version 6 on a topic may be refused with
THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from skylog.broker.api import Api, Context
from skylog.broker.config_descriptions import describe_topic
from skylog.broker.quotas.usage import count_mutations
from skylog.broker.security.access import check_topic, sees
from skylog.broker.security.needs import each_topic
from skylog.broker.store_errors import as_kafka_errors
from skylog.broker.time_slice import cooperatively
from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.apis import ApiKey
from skylog.protocol.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from skylog.protocol.schema import ZERO_UUID
from skylog.security.acl import AclOperation, ResourceType

STRICT_FROM: Final = 6


async def handle(context: Context, request: CreateTopicsRequest) -> CreateTopicsResponse:
    counts = Counter(topic.name for topic in request.topics)
    wanted = {topic.name: topic for topic in request.topics}
    creation = _Creation(context, request.validate_only)
    results = [await creation.create(topic, counts[name]) async for name, topic in cooperatively(wanted.items())]
    return CreateTopicsResponse(topics=results)


class _Creation:
    """Handles one request. Topics with the same configs share the rows of the response."""

    def __init__(self, context: Context, validate_only: bool) -> None:
        self._context = context
        self._broker = context.broker
        self._validate_only = validate_only
        self._rows: dict[frozenset[tuple[str, str]], list[CreatableTopicConfigs]] = {}

    async def create(self, wanted: CreatableTopic, times: int) -> CreatableTopicResult:
        topics = self._broker.topics
        topic_id = ZERO_UUID
        try:
            if not sees(self._context, AclOperation.CREATE, ResourceType.CLUSTER):
                check_topic(self._context, AclOperation.CREATE, wanted.name)
            if times > 1:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, f"topic '{wanted.name}' appears {times} times in the request"
                )
            configs = topics.complete(wanted.name, _given_configs(wanted))
            assignment = topics.plan(
                wanted.name,
                wanted.num_partitions,
                wanted.replication_factor,
                {row.partition_index: row.broker_ids for row in wanted.assignments},
                configs,
            )
            if not self._validate_only:
                count_mutations(self._context, len(assignment), strict_from=STRICT_FROM)
                with as_kafka_errors():
                    topic_id = (await topics.create(wanted.name, assignment, configs)).topic_id
        except KafkaError as error:
            return CreatableTopicResult(name=wanted.name, error_code=error.code, error_message=error.message)
        if not sees(self._context, AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, wanted.name):
            return CreatableTopicResult(
                name=wanted.name,
                topic_id=topic_id,
                topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                configs=None,
            )
        return CreatableTopicResult(
            name=wanted.name,
            topic_id=topic_id,
            num_partitions=len(assignment),
            replication_factor=len(assignment[0]),
            configs=self._describe(configs),
        )

    def _describe(self, configs: Mapping[str, str]) -> list[CreatableTopicConfigs]:
        shared = frozenset(configs.items())
        rows = self._rows.get(shared)
        if rows is None:
            rows = self._rows[shared] = [
                CreatableTopicConfigs(name=each.key, value=each.value, read_only=False, config_source=each.source)
                for each in describe_topic(self._broker.config, configs)
            ]
        return rows


def _given_configs(wanted: CreatableTopic) -> dict[str, str]:
    configs = {}
    for config in wanted.configs:
        if config.value is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{config.name}: the value is missing")
        configs[config.name] = config.value
    return configs


API = Api(ApiKey.CREATE_TOPICS, 2, 7, handle, has_large_answers=True, needs=(each_topic(AclOperation.CREATE),))
