"""Metadata (3), versions 0-12: brokers, topics, partitions and their leaders.

Topics: version 0 takes an empty list for all of them, later ones null; from 12 on they may be asked for by id. An
unknown topic is created where the request (before version 4 always) and `auto.create.topics.enable` allow it.
"""

from __future__ import annotations

from skylog.broker.api import Api, Context
from skylog.cluster import TopicImage
from skylog.errors import ErrorCode, KafkaError
from skylog.model import INTERNAL_TOPICS, check_topic_name
from skylog.protocol.apis import ApiKey
from skylog.protocol.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from skylog.protocol.schema import ZERO_UUID


async def handle(context: Context, request: MetadataRequest) -> MetadataResponse:
    broker = context.broker
    if request.topics is None or (context.version == 0 and not request.topics):
        topics = [_describe(topic) for topic in broker.metadata.image.topics.values()]
    else:
        topics = [await _find(context, asked, request.allow_auto_topic_creation) for asked in request.topics]
    image = broker.metadata.image
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=each.node_id, host=each.host, port=each.port, rack=each.rack)
            for each in broker.addresses(context.connection)
        ],
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        topics=topics,
    )


async def _find(context: Context, asked: MetadataRequestTopic, may_create: bool) -> MetadataResponseTopic:
    image = context.broker.metadata.image
    name = asked.name
    if context.version >= 12 and asked.topic_id != ZERO_UUID:  # an id wins: Java sends an empty name beside it
        name = image.names.get(asked.topic_id)
        if name is None:
            return MetadataResponseTopic(
                error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=asked.topic_id, partitions=[]
            )
    if name is None:  # versions 10 and 11 carry ids, but cannot ask by them: their answer has no null name
        return MetadataResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name="", partitions=[])
    topic = image.topics.get(name)
    try:
        if topic is None:
            if not may_create or not context.broker.config.broker.auto_create_topics_enable:
                check_topic_name(name)
                topic = context.broker.topics.get(name)
            else:
                topic = await _create(context, name)
    except KafkaError as error:
        return MetadataResponseTopic(error_code=error.code, name=name, topic_id=ZERO_UUID, partitions=[])
    return _describe(topic)


async def _create(context: Context, name: str) -> TopicImage:
    topics = context.broker.topics
    try:
        return await topics.create(name, topics.plan(name))
    except KafkaError as error:
        if error.code is ErrorCode.TOPIC_ALREADY_EXISTS:  # by another client, a moment ago
            return topics.get(name)
        raise


def _describe(topic: TopicImage) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            MetadataResponsePartition(
                partition_index=index,
                leader_id=each.leader,
                leader_epoch=each.leader_epoch,
                replica_nodes=list(each.replicas),
                isr_nodes=list(each.in_sync_replicas),
            )
            for index, each in enumerate(topic.partitions)
        ],
    )


API = Api(ApiKey.METADATA, 0, 12, handle)
