"""DeleteTopics (20), versions 1-6: by name, from version 6 on also by id. A deleted topic is gone at once.

A topic that is named twice, or by its name and its id, is not deleted and answered once.
"""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from skylog.broker.api import Api, Context
from skylog.broker.turn import Turn
from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.apis import ApiKey
from skylog.protocol.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from skylog.protocol.schema import ZERO_UUID

Wanted = tuple[str | None, UUID]
"""A topic by its name, or by its id without a name."""


async def handle(context: Context, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    wanted: list[Wanted] = [(name, ZERO_UUID) for name in request.topic_names]
    wanted += [(topic.name, topic.topic_id) for topic in request.topics]
    counts = Counter(wanted)
    names = context.broker.metadata.image.names
    turn = Turn()
    responses = []
    for (name, topic_id), times in counts.items():
        if name is None and topic_id in names and (names[topic_id], ZERO_UUID) in counts:
            continue  # it is answered by its name
        topic = context.broker.metadata.image.topics.get(name) if name is not None else None
        by_both = topic is not None and (None, topic.topic_id) in counts
        responses.append(await _delete(context, name, topic_id, times + by_both))
        await turn.give_way()
    return DeleteTopicsResponse(responses=responses)


async def _delete(context: Context, name: str | None, topic_id: UUID, times: int) -> DeletableTopicResult:
    topics = context.broker.topics
    try:
        if (name is None) == (topic_id == ZERO_UUID):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a topic is deleted either by its name or by its id")
        if times > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the topic stands more than once in the request")
        if name is None:
            name = context.broker.metadata.image.names.get(topic_id)
            if name is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with the id {topic_id}")
        topic = topics.get(name)
        await topics.delete(topic)
    except KafkaError as error:
        code = error.code
        if code is ErrorCode.TOPIC_DELETION_DISABLED and context.version < 3:
            code = ErrorCode.INVALID_REQUEST  # older clients do not know the other
        return DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=error.message)
    return DeletableTopicResult(name=name, topic_id=topic.topic_id)


API = Api(ApiKey.DELETE_TOPICS, 1, 6, handle)
