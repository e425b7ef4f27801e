"""DescribeCluster (key 60), versions 0-1: the brokers, the controller and the cluster id (KIP-700).

Version 1 added the choice between brokers and controllers (KIP-919). Both versions have the compact encoding.
"""

from __future__ import annotations

from skylog.protocol.schema import Int8, Int16, Int32, Message, field, message, struct


@message(api_key=60, versions="0-1", flexible="0+")
class DescribeClusterRequest(Message):
    """`endpoint_type` is 1 for brokers, 2 for controllers."""

    include_cluster_authorized_operations: bool = field("0+", default=False)
    endpoint_type: Int8 = field("1+", default=1)


@struct
class DescribeClusterBroker:
    broker_id: Int32 = field("0+")
    host: str = field("0+")
    port: Int32 = field("0+")
    rack: str | None = field("0+", nullable="0+", default=None)


@message(api_key=60, versions="0-1", flexible="0+")
class DescribeClusterResponse(Message):
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    error_message: str | None = field("0+", nullable="0+", default=None)
    endpoint_type: Int8 = field("1+", default=1)
    cluster_id: str = field("0+")
    controller_id: Int32 = field("0+", default=-1)
    brokers: list[DescribeClusterBroker] = field("0+")
    cluster_authorized_operations: Int32 = field("0+", default=-(2**31))
