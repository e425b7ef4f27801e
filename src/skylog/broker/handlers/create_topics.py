"""CreateTopics (19), versions 2-7: topics with counts or an assignment, and configs.

From version 5 on the answer carries the counts and every config, which Java's admin client takes for granted.
"""

from __future__ import annotations

from collections import Counter

from skylog.broker.api import Api, Context
from skylog.broker.topic_configs import describe_topic
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


async def handle(context: Context, request: CreateTopicsRequest) -> CreateTopicsResponse:
    repeated = {name for name, count in Counter(topic.name for topic in request.topics).items() if count > 1}
    results = [await _create(context, topic, request.validate_only, topic.name in repeated) for topic in request.topics]
    return CreateTopicsResponse(topics=results)


async def _create(
    context: Context, wanted: CreatableTopic, validate_only: bool, is_repeated: bool
) -> CreatableTopicResult:
    topics = context.broker.topics
    topic_id = ZERO_UUID
    try:
        if is_repeated:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"topic '{wanted.name}' stands twice in one request")
        configs = {}
        for config in wanted.configs:
            if config.value is None:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"{config.name}: a value is missing")
            configs[config.name] = config.value
        configs = topics.complete(wanted.name, configs)
        assignment = topics.plan(
            wanted.name,
            wanted.num_partitions,
            wanted.replication_factor,
            {row.partition_index: row.broker_ids for row in wanted.assignments},
            configs,
        )
        if not validate_only:
            topic_id = (await topics.create(wanted.name, assignment, configs)).topic_id
    except KafkaError as error:
        return CreatableTopicResult(name=wanted.name, error_code=error.code, error_message=error.message)
    return CreatableTopicResult(
        name=wanted.name,
        topic_id=topic_id,
        num_partitions=len(assignment),
        replication_factor=len(assignment[0]),
        configs=[
            CreatableTopicConfigs(name=each.key, value=each.value, read_only=False, config_source=each.source)
            for each in describe_topic(context.broker.config, configs)
        ],
    )


API = Api(ApiKey.CREATE_TOPICS, 2, 7, handle)
