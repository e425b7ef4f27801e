"""DescribeCluster (60), versions 0-1: return the brokers and the controller.

A broker that is not part of the cluster now, as it has lost its session, knows only how the cluster was. It returns
no controller, so that nobody takes that for the present.
"""

from __future__ import annotations

from skylog.broker.api import Api, Context
from skylog.broker.authorized_operations import NOT_REQUESTED, operations_on_cluster
from skylog.cluster.image import NO_CONTROLLER
from skylog.errors import ErrorCode
from skylog.protocol.apis import ApiKey
from skylog.protocol.describe_cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse

BROKERS = 1


def handle(context: Context, request: DescribeClusterRequest) -> DescribeClusterResponse:
    image = context.broker.metadata.image
    if request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="there are no separate controllers, only brokers",
            endpoint_type=request.endpoint_type,
            cluster_id=image.cluster_id,
            brokers=[],
        )
    return DescribeClusterResponse(
        cluster_id=image.cluster_id,
        controller_id=image.live_controller_id if context.broker.replicas.may_lead else NO_CONTROLLER,
        brokers=[
            DescribeClusterBroker(broker_id=each.node_id, host=each.host, port=each.port, rack=each.rack)
            for each in context.broker.addresses(context.connection)
        ],
        cluster_authorized_operations=(
            operations_on_cluster(context) if request.include_cluster_authorized_operations else NOT_REQUESTED
        ),
    )


API = Api(ApiKey.DESCRIBE_CLUSTER, 0, 1, handle)
