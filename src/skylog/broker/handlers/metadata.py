"""Metadata (3), versions 0-12: brokers, topics, partitions and their leaders.

In version 0 an empty list means all topics, in later versions null does. From version 12 on topics can be requested by
id. An unknown topic is created if the request (before version 4 always) and `auto.create.topics.enable` allow it.

Every broker carries out administration, so the "controller" to which clients send it is the broker that answers. The
real one may just have died: librdkafka would wait for it for a minute. DescribeCluster names the real one.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final
from uuid import UUID

from skylog.broker.api import Api, Context
from skylog.broker.authorized_operations import NOT_REQUESTED, operations_on, operations_on_cluster
from skylog.broker.quotas.usage import count_mutations
from skylog.broker.security.access import check_topic, may, sees
from skylog.broker.security.needs import each_topic
from skylog.broker.store_errors import as_kafka_errors
from skylog.broker.time_slice import cooperatively
from skylog.broker.topic_rows import encoder
from skylog.cluster import TopicImage
from skylog.cluster.image import NO_CONTROLLER
from skylog.errors import ErrorCode, KafkaError
from skylog.model import check_topic_name
from skylog.protocol.apis import ApiKey
from skylog.protocol.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from skylog.protocol.schema import ZERO_UUID, EncodedItems
from skylog.security.acl import AclOperation, ResourceType

MAX_CREATED: Final = 100
"""Topics that one request may create. The others are unknown, and clients request them again."""


async def handle(context: Context, request: MetadataRequest) -> MetadataResponse:
    broker = context.broker
    lookup = _TopicLookup(context, request)
    if request.topics is None or (context.version == 0 and not request.topics):
        everything = list(broker.metadata.image.topics.values())
        if context.session.rights is not None:
            everything = [topic async for topic in cooperatively(everything) if _sees(context, topic.name)]
        topics = EncodedItems([lookup.describe(topic) async for topic in cooperatively(everything)])
    else:
        asked: dict[Hashable, MetadataRequestTopic] = {}
        async for topic in cooperatively(request.topics):
            asked.setdefault(_key(context, topic), topic)
        topics = EncodedItems([await lookup.find(topic) async for topic in cooperatively(asked.values())])
    image = broker.metadata.image
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=each.node_id, host=each.host, port=each.port, rack=each.rack)
            for each in broker.addresses(context.connection)
        ],
        cluster_id=image.cluster_id,
        controller_id=NO_CONTROLLER if image.live_controller_id == NO_CONTROLLER else broker.identity.node_id,
        topics=topics,
        cluster_authorized_operations=(
            operations_on_cluster(context) if request.include_cluster_authorized_operations else NOT_REQUESTED
        ),
    )


def _sees(context: Context, topic: str) -> bool:
    return sees(context, AclOperation.DESCRIBE, ResourceType.TOPIC, topic)


def _is_by_id(context: Context, asked: MetadataRequestTopic) -> bool:
    """Return whether the topic is requested by id. An id takes precedence: Java also sends an empty name."""
    return context.version >= 12 and asked.topic_id != ZERO_UUID


def _key(context: Context, asked: MetadataRequestTopic) -> Hashable:
    """Return the id or name by which a topic is requested. The response has one row for each."""
    return asked.topic_id if _is_by_id(context, asked) else asked.name


class _TopicLookup:
    """Finds or creates the topics of one request, and encodes their rows."""

    def __init__(self, context: Context, request: MetadataRequest) -> None:
        self._context = context
        self._broker = context.broker
        self._with_operations = request.include_topic_authorized_operations
        self._may_create = (
            MAX_CREATED
            if request.allow_auto_topic_creation and self._broker.config.broker.auto_create_topics_enable
            else 0
        )

    def describe(self, topic: TopicImage) -> bytes:
        return self._broker.topic_rows.row(topic, self._context.version, self._operations(topic.name))

    async def find(self, asked: MetadataRequestTopic) -> bytes:
        image = self._broker.metadata.image
        name = asked.name
        if _is_by_id(self._context, asked):
            name = image.names.get(asked.topic_id)
            if name is None:
                return self._refuse(ErrorCode.UNKNOWN_TOPIC_ID, None, asked.topic_id)
            if not may(self._context, AclOperation.DESCRIBE, ResourceType.TOPIC, name):
                return self._refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, asked.topic_id)
        if name is None:  # versions 10 and 11 have ids, but cannot request by id: their response has no null name
            return self._refuse(ErrorCode.INVALID_REQUEST, "")
        topic = image.topics.get(name)
        try:
            check_topic(self._context, AclOperation.DESCRIBE, name)
            return self.describe(topic if topic is not None else await self._create(name))
        except KafkaError as error:
            return self._refuse(error.code, name)

    async def _create(self, name: str) -> TopicImage:
        topics = self._broker.topics
        check_topic_name(name)
        if self._may_create <= 0:
            return topics.get(name)
        if not sees(self._context, AclOperation.CREATE, ResourceType.CLUSTER):
            check_topic(self._context, AclOperation.CREATE, name)
        self._may_create -= 1
        try:
            assignment = topics.plan(name)
            count_mutations(self._context, len(assignment), strict_from=None)
            with as_kafka_errors():
                return await topics.create(name, assignment)
        except KafkaError as error:
            if error.code is ErrorCode.TOPIC_ALREADY_EXISTS:  # created by another client meanwhile
                return topics.get(name)
            raise

    def _operations(self, name: str) -> int:
        return operations_on(self._context, ResourceType.TOPIC, name) if self._with_operations else NOT_REQUESTED

    def _refuse(self, code: ErrorCode, name: str | None, topic_id: UUID = ZERO_UUID) -> bytes:
        operations = NOT_REQUESTED if name is None else self._operations(name)
        row = MetadataResponseTopic(
            error_code=code, name=name, topic_id=topic_id, partitions=[], topic_authorized_operations=operations
        )
        return encoder(self._context.version)(row)


API = Api(ApiKey.METADATA, 0, 12, handle, needs=(each_topic(AclOperation.DESCRIBE),))
