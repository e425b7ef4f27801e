"""AlterPartitionReassignments (45), version 0: move the replicas of partitions to other brokers, or cancel that.

The response tells whether a reassignment has begun; the controller completes it. If a partition is repeated in a
request, its last row counts, and it has one result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from skylog.broker.api import Api, Context
from skylog.broker.partition_changes import PartitionDecision
from skylog.broker.security.needs import cluster
from skylog.broker.time_slice import cooperatively
from skylog.cluster import PartitionImage
from skylog.cluster.elections import Brokers, ElectionRules
from skylog.cluster.reassignment import begin, cancel
from skylog.errors import KafkaError
from skylog.protocol.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from skylog.protocol.apis import ApiKey
from skylog.security.acl import AclOperation


async def handle(context: Context, request: AlterPartitionReassignmentsRequest) -> AlterPartitionReassignmentsResponse:
    wanted: dict[str, dict[int, PartitionDecision]] = {}
    async for topic in cooperatively(request.topics):
        rows = {row.partition_index: _decision(row.replicas) for row in topic.partitions}
        wanted.setdefault(topic.name, {}).update(rows)
    results = await context.broker.partition_changes.apply(wanted, request.timeout_ms / 1000)
    return AlterPartitionReassignmentsResponse(responses=[_row(*each) async for each in cooperatively(results.items())])


def _decision(target: Sequence[int] | None) -> PartitionDecision:
    if target is None:
        return cancel

    def decide(partition: PartitionImage, brokers: Brokers, rules: ElectionRules) -> PartitionImage:
        return begin(partition, target, brokers, rules)

    return decide


def _row(topic: str, errors: Mapping[int, KafkaError | None]) -> ReassignableTopicResponse:
    return ReassignableTopicResponse(name=topic, partitions=[_result(*each) for each in errors.items()])


def _result(index: int, error: KafkaError | None) -> ReassignablePartitionResponse:
    if error is None:
        return ReassignablePartitionResponse(partition_index=index)
    return ReassignablePartitionResponse(partition_index=index, error_code=error.code, error_message=error.message)


API = Api(
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    0,
    0,
    handle,
    needs=(cluster(AclOperation.ALTER),),
    refuse=lambda _, code: AlterPartitionReassignmentsResponse(error_code=code, responses=[]),
)
