"""DeleteTopics (20), versions 1-6: by name, from version 6 on also by id. A deleted topic is gone at once."""

from __future__ import annotations

from uuid import UUID

from skylog.broker.api import Api, Context
from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.apis import ApiKey
from skylog.protocol.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from skylog.protocol.schema import ZERO_UUID


async def handle(context: Context, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    wanted: list[tuple[str | None, UUID]] = [(name, ZERO_UUID) for name in request.topic_names]
    wanted += [(topic.name, topic.topic_id) for topic in request.topics]
    return DeleteTopicsResponse(responses=[await _delete(context, name, topic_id) for name, topic_id in wanted])


async def _delete(context: Context, name: str | None, topic_id: UUID) -> DeletableTopicResult:
    topics = context.broker.topics
    try:
        if name is None:
            name = context.broker.metadata.image.names.get(topic_id)
            if name is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with the id {topic_id}")
        topic = topics.get(name)
        await topics.delete(topic)
    except KafkaError as error:
        return DeletableTopicResult(name=name, topic_id=topic_id, error_code=error.code, error_message=error.message)
    return DeletableTopicResult(name=name, topic_id=topic.topic_id)


API = Api(ApiKey.DELETE_TOPICS, 1, 6, handle)
