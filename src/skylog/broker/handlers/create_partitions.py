"""CreatePartitions (37), versions 0-3: add partitions to topics. A repeated topic fails and has one result.

In version 3 a topic may be refused with THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from skylog.broker.api import Api, Context
from skylog.broker.quotas.usage import count_mutations
from skylog.broker.security.access import check_topic
from skylog.broker.security.needs import each_topic
from skylog.broker.store_errors import as_kafka_errors
from skylog.broker.time_slice import cooperatively
from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.apis import ApiKey
from skylog.protocol.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from skylog.security.acl import AclOperation

STRICT_FROM: Final = 3


async def handle(context: Context, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    counts = Counter(topic.name for topic in request.topics)
    wanted = {topic.name: topic for topic in request.topics}
    results = [
        await _grow(context, topic, request.validate_only, counts[name])
        async for name, topic in cooperatively(wanted.items())
    ]
    return CreatePartitionsResponse(results=results)


async def _grow(
    context: Context, wanted: CreatePartitionsTopic, validate_only: bool, times: int
) -> CreatePartitionsTopicResult:
    topics = context.broker.topics
    try:
        check_topic(context, AclOperation.ALTER, wanted.name)
        if times > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"topic '{wanted.name}' appears {times} times in the request")
        topic = topics.get(wanted.name)
        context.broker.mirrors.check_may_write(wanted.name)
        given = None if wanted.assignments is None else [row.broker_ids for row in wanted.assignments]
        assignment = topics.plan_growth(topic, wanted.count, given)
        if not validate_only:
            count_mutations(context, len(assignment), strict_from=STRICT_FROM)
            with as_kafka_errors():
                await topics.grow(topic, assignment)
    except KafkaError as error:
        return CreatePartitionsTopicResult(name=wanted.name, error_code=error.code, error_message=error.message)
    return CreatePartitionsTopicResult(name=wanted.name)


API = Api(ApiKey.CREATE_PARTITIONS, 0, 3, handle, needs=(each_topic(AclOperation.ALTER),))
