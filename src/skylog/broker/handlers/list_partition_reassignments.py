"""ListPartitionReassignments (46), version 0: the partitions on their way to other brokers. With one broker, none."""

from __future__ import annotations

from skylog.broker.api import Api, Context
from skylog.protocol.apis import ApiKey
from skylog.protocol.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


def handle(_: Context, __: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
    """As in Kafka a topic that does not exist is left out like one that does not move."""
    return ListPartitionReassignmentsResponse()


API = Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, handle)
