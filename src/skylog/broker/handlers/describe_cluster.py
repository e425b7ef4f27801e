"""DescribeCluster (60), versions 0-1: the brokers and which of them is the controller."""

from __future__ import annotations

from skylog.broker.api import Api, Context
from skylog.broker.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED_FOR
from skylog.errors import ErrorCode
from skylog.protocol.apis import ApiKey
from skylog.protocol.describe_cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse

BROKERS = 1


def handle(context: Context, request: DescribeClusterRequest) -> DescribeClusterResponse:
    image = context.broker.metadata.image
    if request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="only brokers listen here; there are no separate controllers",
            endpoint_type=request.endpoint_type,
            cluster_id=image.cluster_id,
            brokers=[],
        )
    return DescribeClusterResponse(
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=each.node_id, host=each.host, port=each.port, rack=each.rack)
            for each in context.broker.addresses(context.connection)
        ],
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED_FOR
        ),
    )


API = Api(ApiKey.DESCRIBE_CLUSTER, 0, 1, handle)
