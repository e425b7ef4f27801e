"""Metadata (key 3), versions 0-12: the brokers, the topics and the leader of each partition.

Version 1 added the controller, racks and the internal flag, 2 the cluster id, 3 the throttle time, 4 whether to create
missing topics, 5 offline replicas, 7 leader epochs (KIP-320), 8 authorized operations (KIP-430), 9 the compact
encoding, 10 topic ids (KIP-516), 11 removed the cluster's authorized operations (now in DescribeCluster), 12 added
requests by topic id only. 6 equals 5.

All topics: an empty list in version 0, null from version 1 on, where an empty list means none.
"""

from __future__ import annotations

from uuid import UUID

from skylog.protocol.schema import ZERO_UUID, Int16, Int32, Message, field, message, struct

NO_AUTHORIZED_OPERATIONS = -(2**31)
"""The value of the authorized operations bit fields if they were not requested."""


@struct
class MetadataRequestTopic:
    topic_id: UUID = field("10+", default=ZERO_UUID)
    name: str | None = field("0+", nullable="10+")


@message(api_key=3, versions="0-12", flexible="9+")
class MetadataRequest(Message):
    topics: list[MetadataRequestTopic] | None = field("0+", nullable="1+")
    allow_auto_topic_creation: bool = field("4+", default=True)
    include_cluster_authorized_operations: bool = field("8-10", default=False)
    include_topic_authorized_operations: bool = field("8+", default=False)


@struct
class MetadataResponseBroker:
    node_id: Int32 = field("0+")
    host: str = field("0+")
    port: Int32 = field("0+")
    rack: str | None = field("1+", nullable="1+", default=None)


@struct
class MetadataResponsePartition:
    error_code: Int16 = field("0+", default=0)
    partition_index: Int32 = field("0+")
    leader_id: Int32 = field("0+")
    leader_epoch: Int32 = field("7+", default=-1)
    replica_nodes: list[Int32] = field("0+")
    isr_nodes: list[Int32] = field("0+")
    offline_replicas: list[Int32] = field("5+", default_factory=list)


@struct
class MetadataResponseTopic:
    error_code: Int16 = field("0+", default=0)
    name: str | None = field("0+", nullable="12+")
    topic_id: UUID = field("10+", default=ZERO_UUID)
    is_internal: bool = field("1+", default=False)
    partitions: list[MetadataResponsePartition] = field("0+")
    topic_authorized_operations: Int32 = field("8+", default=NO_AUTHORIZED_OPERATIONS)


@message(api_key=3, versions="0-12", flexible="9+")
class MetadataResponse(Message):
    throttle_time_ms: Int32 = field("3+", default=0)
    brokers: list[MetadataResponseBroker] = field("0+")
    cluster_id: str | None = field("2+", nullable="2+", default=None)
    controller_id: Int32 = field("1+", default=-1)
    topics: list[MetadataResponseTopic] = field("0+")
    cluster_authorized_operations: Int32 = field("8-10", default=NO_AUTHORIZED_OPERATIONS)
