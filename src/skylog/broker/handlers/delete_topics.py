"""DeleteTopics (20), versions 1-6: delete topics by name, from version 6 on also by id. Deletion is immediate.

A topic that is repeated, or given by both name and id, is not deleted and has one result. From version 5 on a topic
may be refused with THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""

from __future__ import annotations

from collections import Counter
from typing import Final
from uuid import UUID

from skylog.broker.api import Api, Context
from skylog.broker.quotas.usage import count_mutations
from skylog.broker.security.access import check_topic
from skylog.broker.security.needs import each_topic
from skylog.broker.store_errors import as_kafka_errors
from skylog.broker.time_slice import TimeSlice
from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.apis import ApiKey
from skylog.protocol.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from skylog.protocol.schema import ZERO_UUID
from skylog.security.acl import AclOperation

STRICT_FROM: Final = 5

Wanted = tuple[str | None, UUID]
"""A topic by name, or by id if the name is None."""


async def handle(context: Context, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    wanted: list[Wanted] = [(name, ZERO_UUID) for name in request.topic_names]
    wanted += [(topic.name, topic.topic_id) for topic in request.topics]
    counts = Counter(wanted)
    names = context.broker.metadata.image.names
    time_slice = TimeSlice()
    responses = []
    for (name, topic_id), times in counts.items():
        if name is None and topic_id in names and (names[topic_id], ZERO_UUID) in counts:
            continue  # its result is the one by name
        topic = context.broker.metadata.image.topics.get(name) if name is not None else None
        by_both = topic is not None and (None, topic.topic_id) in counts
        responses.append(await _delete(context, name, topic_id, times + by_both))
        await time_slice.yield_if_over()
    return DeleteTopicsResponse(responses=responses)


async def _delete(context: Context, name: str | None, topic_id: UUID, times: int) -> DeletableTopicResult:
    topics = context.broker.topics
    try:
        if (name is None) == (topic_id == ZERO_UUID):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "give either the name or the id of a topic")
        if name is not None:
            check_topic(context, AclOperation.DESCRIBE, name)
        if times > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the topic appears more than once in the request")
        if name is None:
            found = context.broker.metadata.image.names.get(topic_id)
            if found is not None:
                check_topic(context, AclOperation.DESCRIBE, found)
                name = found
            else:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with the id {topic_id}")
        topic = topics.get(name)
        check_topic(context, AclOperation.DELETE, name)
        topics.check_may_delete(topic)
        count_mutations(context, len(topic.partitions), strict_from=STRICT_FROM)
        with as_kafka_errors():
            await topics.delete(topic)
    except KafkaError as error:
        code = error.code
        if code is ErrorCode.TOPIC_DELETION_DISABLED and context.version < 3:
            code = ErrorCode.INVALID_REQUEST  # older clients do not know TOPIC_DELETION_DISABLED
        return DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=error.message)
    return DeletableTopicResult(name=name, topic_id=topic.topic_id)


API = Api(ApiKey.DELETE_TOPICS, 1, 6, handle, needs=(each_topic(AclOperation.DELETE),))
