"""ListPartitionReassignments (46), version 0: the partitions that are being reassigned.

Kafka omits topics and partitions that do not exist, like those that are not being reassigned.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from skylog.broker.api import Api, Context
from skylog.broker.security.needs import cluster
from skylog.broker.time_slice import cooperatively
from skylog.broker.unique_names import unique_by_topic
from skylog.cluster import TopicImage
from skylog.protocol.apis import ApiKey
from skylog.protocol.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from skylog.security.acl import AclOperation


async def handle(context: Context, request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
    topics = context.broker.metadata.image.topics
    if request.topics is None:
        asked: Mapping[str, Container[int]] = {name: range(len(topic.partitions)) for name, topic in topics.items()}
    else:
        rows = unique_by_topic((topic.name, topic.partition_indexes) for topic in request.topics)
        asked = {name: frozenset(indexes) for name, indexes in rows.items() if name in topics}
    found = [_describe(topics[name], indexes) async for name, indexes in cooperatively(asked.items())]
    return ListPartitionReassignmentsResponse(topics=[row for row in found if row.partitions])


def _describe(topic: TopicImage, indexes: Container[int]) -> OngoingTopicReassignment:
    return OngoingTopicReassignment(
        name=topic.name,
        partitions=[
            OngoingPartitionReassignment(
                partition_index=index,
                replicas=list(each.replicas),
                adding_replicas=list(each.adding),
                removing_replicas=list(each.removing),
            )
            for index, each in enumerate(topic.partitions)
            if each.is_reassigned and index in indexes
        ],
    )


API = Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, handle, needs=(cluster(AclOperation.DESCRIBE),))
