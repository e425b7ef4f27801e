"""ElectLeaders (43), versions 0-2: the preferred or any live replica becomes the leader.

A partition has one replica, which leads it already: ELECTION_NOT_NEEDED. A request for all partitions is answered as in
Kafka with the partitions that something was done for, so with none.
"""

from __future__ import annotations

from typing import Final

from skylog.broker.api import Api, Context
from skylog.broker.repeats import once_by_topic
from skylog.broker.turn import in_turns
from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.apis import ApiKey
from skylog.protocol.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionElectionResult,
    ReplicaElectionResult,
)

ELECTION_TYPES: Final = (0, 1)  # preferred, unclean


async def handle(context: Context, request: ElectLeadersRequest) -> ElectLeadersResponse:
    if request.topic_partitions is None:
        topics = context.broker.metadata.image.topics
        return ElectLeadersResponse(
            replica_election_results=[ReplicaElectionResult(topic=name, partition_result=[]) for name in topics]
        )
    error = _check(request)
    asked = once_by_topic((topic.topic, topic.partitions) for topic in request.topic_partitions)
    return ElectLeadersResponse(
        error_code=error.code if error else ErrorCode.NONE,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic,
                partition_result=[_result(context, topic, index, error) async for index in in_turns(partitions)],
            )
            async for topic, partitions in in_turns(asked.items())
        ],
    )


def _check(request: ElectLeadersRequest) -> KafkaError | None:
    if request.election_type in ELECTION_TYPES:
        return None
    return KafkaError(ErrorCode.INVALID_REQUEST, f"unknown election type {request.election_type}")


def _result(context: Context, topic: str, index: int, error: KafkaError | None) -> PartitionElectionResult:
    try:
        if error is not None:
            raise error
        context.broker.partitions.get(topic, index)
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, "the partition has the wanted leader already")
    except KafkaError as reason:
        return PartitionElectionResult(partition_id=index, error_code=reason.code, error_message=reason.message)


API = Api(ApiKey.ELECT_LEADERS, 0, 2, handle)
