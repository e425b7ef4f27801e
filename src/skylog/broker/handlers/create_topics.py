"""CreateTopics (19), versions 2-7: topics with counts or an assignment, and configs.

From version 5 on the answer carries the counts and every config, which Java's admin client takes for granted. A topic
that stands twice in a request is not created and answered once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from skylog.broker.api import Api, Context
from skylog.broker.topic_configs import describe_topic
from skylog.broker.turn import in_turns
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
    counts = Counter(topic.name for topic in request.topics)
    wanted = {topic.name: topic for topic in request.topics}
    creation = _Creation(context, request.validate_only)
    results = [await creation.create(topic, counts[name]) async for name, topic in in_turns(wanted.items())]
    return CreateTopicsResponse(topics=results)


class _Creation:
    """Carries out one request. Topics with the same configs share their rows."""

    def __init__(self, context: Context, validate_only: bool) -> None:
        self._broker = context.broker
        self._validate_only = validate_only
        self._told: dict[frozenset[tuple[str, str]], list[CreatableTopicConfigs]] = {}

    async def create(self, wanted: CreatableTopic, times: int) -> CreatableTopicResult:
        topics = self._broker.topics
        topic_id = ZERO_UUID
        try:
            if times > 1:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, f"topic '{wanted.name}' stands {times} times in one request"
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
                topic_id = (await topics.create(wanted.name, assignment, configs)).topic_id
        except KafkaError as error:
            return CreatableTopicResult(name=wanted.name, error_code=error.code, error_message=error.message)
        return CreatableTopicResult(
            name=wanted.name,
            topic_id=topic_id,
            num_partitions=len(assignment),
            replication_factor=len(assignment[0]),
            configs=self._tell(configs),
        )

    def _tell(self, configs: Mapping[str, str]) -> list[CreatableTopicConfigs]:
        shared = frozenset(configs.items())
        told = self._told.get(shared)
        if told is None:
            told = self._told[shared] = [
                CreatableTopicConfigs(name=each.key, value=each.value, read_only=False, config_source=each.source)
                for each in describe_topic(self._broker.config, configs)
            ]
        return told


def _given_configs(wanted: CreatableTopic) -> dict[str, str]:
    configs = {}
    for config in wanted.configs:
        if config.value is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{config.name}: a value is missing")
        configs[config.name] = config.value
    return configs


API = Api(ApiKey.CREATE_TOPICS, 2, 7, handle, has_large_answers=True)
