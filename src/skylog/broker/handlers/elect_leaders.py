"""ElectLeaders (43), versions 0-2: elect the preferred replica, or any live one of partitions without a leader.

The response to a request for all partitions has only those that needed an election, as in Kafka. A standalone broker
leads all its partitions, so none does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from skylog.broker.api import Api, Context
from skylog.broker.partition_changes import PartitionDecision
from skylog.broker.security.needs import cluster
from skylog.broker.time_slice import cooperatively
from skylog.broker.unique_names import unique_by_topic
from skylog.cluster import PartitionImage
from skylog.cluster.elections import Brokers, ElectionRules, prefer, unclean
from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.apis import ApiKey
from skylog.protocol.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionElectionResult,
    ReplicaElectionResult,
)
from skylog.security.acl import AclOperation


def _prefer(partition: PartitionImage, brokers: Brokers, _: ElectionRules) -> PartitionImage:
    return prefer(partition, brokers)


ELECTIONS: Final[Mapping[int, PartitionDecision]] = {0: _prefer, 1: unclean}


async def handle(context: Context, request: ElectLeadersRequest) -> ElectLeadersResponse:
    wanted = _wanted(context, request)
    decide = ELECTIONS.get(request.election_type)
    if decide is None:
        error = KafkaError(ErrorCode.INVALID_REQUEST, f"unknown election type {request.election_type}")
        results = {topic: dict.fromkeys(indexes, error) for topic, indexes in wanted.items()}
        return ElectLeadersResponse(
            error_code=error.code, replica_election_results=[_row(*each) for each in results.items()]
        )
    found = await context.broker.partition_changes.apply(
        {topic: dict.fromkeys(indexes, decide) for topic, indexes in wanted.items()}, request.timeout_ms / 1000
    )
    if request.topic_partitions is None:
        found = {topic: dict(filter(_was_needed, errors.items())) for topic, errors in found.items()}
    return ElectLeadersResponse(replica_election_results=[_row(*each) async for each in cooperatively(found.items())])


def _refuse(request: ElectLeadersRequest, code: ErrorCode) -> ElectLeadersResponse:
    asked = unique_by_topic((topic.topic, topic.partitions) for topic in request.topic_partitions or ())
    error = KafkaError(code)
    rows = [_row(topic, dict.fromkeys(indexes, error)) for topic, indexes in asked.items()]
    return ElectLeadersResponse(error_code=code, replica_election_results=rows)


def _wanted(context: Context, request: ElectLeadersRequest) -> dict[str, list[int]]:
    if request.topic_partitions is not None:
        return unique_by_topic((topic.topic, topic.partitions) for topic in request.topic_partitions)
    topics = context.broker.metadata.image.topics
    return {name: list(range(len(topic.partitions))) for name, topic in topics.items()}


def _was_needed(result: tuple[int, KafkaError | None]) -> bool:
    error = result[1]
    return error is None or error.code is not ErrorCode.ELECTION_NOT_NEEDED


def _row(topic: str, errors: Mapping[int, KafkaError | None]) -> ReplicaElectionResult:
    return ReplicaElectionResult(topic=topic, partition_result=[_result(*each) for each in errors.items()])


def _result(index: int, error: KafkaError | None) -> PartitionElectionResult:
    if error is None:
        return PartitionElectionResult(partition_id=index)
    return PartitionElectionResult(partition_id=index, error_code=error.code, error_message=error.message)


API = Api(ApiKey.ELECT_LEADERS, 0, 2, handle, needs=(cluster(AclOperation.ALTER),), refuse=_refuse)
