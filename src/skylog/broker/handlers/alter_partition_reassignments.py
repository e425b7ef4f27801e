"""AlterPartitionReassignments (45), version 0: which brokers have the replicas of a partition.

There is one broker, so a valid assignment is the present one and nothing moves. A cancellation finds nothing to cancel.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from skylog.broker.api import Api, Context
from skylog.broker.turn import in_turns
from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from skylog.protocol.apis import ApiKey


async def handle(context: Context, request: AlterPartitionReassignmentsRequest) -> AlterPartitionReassignmentsResponse:
    wanted: dict[str, dict[int, ReassignablePartition]] = {}
    async for topic in in_turns(request.topics):
        wanted.setdefault(topic.name, {}).update({row.partition_index: row for row in topic.partitions})
    return AlterPartitionReassignmentsResponse(
        responses=[
            ReassignableTopicResponse(
                name=topic, partitions=[_result(context, topic, row) async for row in in_turns(rows.values())]
            )
            async for topic, rows in in_turns(wanted.items())
        ]
    )


def _result(context: Context, topic: str, row: ReassignablePartition) -> ReassignablePartitionResponse:
    broker = context.broker
    try:
        broker.partitions.get(topic, row.partition_index)
        if row.replicas is None:
            raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no reassignment of the partition is in progress")
        _check(row.replicas, broker.metadata.image.brokers.keys())
    except KafkaError as error:
        return ReassignablePartitionResponse(
            partition_index=row.partition_index, error_code=error.code, error_message=error.message
        )
    return ReassignablePartitionResponse(partition_index=row.partition_index)


def _check(replicas: Sequence[int], brokers: Collection[int]) -> None:
    if not replicas:
        reason = "a partition needs at least one replica"
    elif unknown := sorted(set(replicas) - set(brokers)):
        reason = f"there is no broker {unknown[0]}"
    elif len(set(replicas)) < len(replicas):
        reason = "a broker is named more than once"
    else:
        return
    raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)


API = Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 0, handle)
