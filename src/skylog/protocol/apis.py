"""The registry of all APIs that can be decoded and encoded: key, request, response and versions.

The broker's table of handlers decides what it advertises: a subset of this registry. The only exception is Produce,
which is advertised from version 0 on (see `produce`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from skylog.protocol.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from skylog.protocol.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from skylog.protocol.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from skylog.protocol.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from skylog.protocol.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from skylog.protocol.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from skylog.protocol.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from skylog.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from skylog.protocol.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from skylog.protocol.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from skylog.protocol.create_acls import CreateAclsRequest, CreateAclsResponse
from skylog.protocol.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from skylog.protocol.create_topics import CreateTopicsRequest, CreateTopicsResponse
from skylog.protocol.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from skylog.protocol.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from skylog.protocol.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from skylog.protocol.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from skylog.protocol.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from skylog.protocol.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from skylog.protocol.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from skylog.protocol.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from skylog.protocol.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from skylog.protocol.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from skylog.protocol.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from skylog.protocol.describe_topic_partitions import DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse
from skylog.protocol.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from skylog.protocol.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from skylog.protocol.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from skylog.protocol.end_txn import EndTxnRequest, EndTxnResponse
from skylog.protocol.fetch import FetchRequest, FetchResponse
from skylog.protocol.fields import Versions
from skylog.protocol.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from skylog.protocol.heartbeat import HeartbeatRequest, HeartbeatResponse
from skylog.protocol.incremental_alter_configs import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from skylog.protocol.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from skylog.protocol.join_group import JoinGroupRequest, JoinGroupResponse
from skylog.protocol.leave_group import LeaveGroupRequest, LeaveGroupResponse
from skylog.protocol.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from skylog.protocol.list_groups import ListGroupsRequest, ListGroupsResponse
from skylog.protocol.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from skylog.protocol.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from skylog.protocol.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from skylog.protocol.metadata import MetadataRequest, MetadataResponse
from skylog.protocol.mirrors import (
    AlterMirrorsRequest,
    AlterMirrorsResponse,
    DescribeMirrorsRequest,
    DescribeMirrorsResponse,
)
from skylog.protocol.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from skylog.protocol.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from skylog.protocol.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from skylog.protocol.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from skylog.protocol.produce import ProduceRequest, ProduceResponse
from skylog.protocol.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from skylog.protocol.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from skylog.protocol.schema import Message
from skylog.protocol.sync_group import SyncGroupRequest, SyncGroupResponse
from skylog.protocol.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from skylog.protocol.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse


class ApiKey(IntEnum):
    """Kafka's API keys, by Kafka's names, and those of skylog."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    # skylog's own, far from those that Kafka may add:
    DESCRIBE_MIRRORS = 20000
    ALTER_MIRRORS = 20001


@dataclass(frozen=True, slots=True)
class ApiSpec:
    """One API: its request and response, which always have the same versions."""

    key: ApiKey
    request: type[Message]
    response: type[Message]

    @property
    def versions(self) -> Versions:
        return self.request.versions

    def is_flexible(self, version: int) -> bool:
        """Whether `version` has the compact encoding and tagged fields, and therefore the newer headers."""
        return version in self.request.flexible

    def response_header_version(self, version: int) -> int:
        """Return the header version of a response. ApiVersions keeps 0: its reader does not know the broker yet."""
        return int(self.is_flexible(version) and self.key is not ApiKey.API_VERSIONS)


API_SPECS: Final[dict[int, ApiSpec]] = {
    request.api_key: ApiSpec(ApiKey(request.api_key), request, response)
    for request, response in (
        (ProduceRequest, ProduceResponse),
        (FetchRequest, FetchResponse),
        (ListOffsetsRequest, ListOffsetsResponse),
        (MetadataRequest, MetadataResponse),
        (OffsetCommitRequest, OffsetCommitResponse),
        (OffsetFetchRequest, OffsetFetchResponse),
        (FindCoordinatorRequest, FindCoordinatorResponse),
        (JoinGroupRequest, JoinGroupResponse),
        (HeartbeatRequest, HeartbeatResponse),
        (LeaveGroupRequest, LeaveGroupResponse),
        (SyncGroupRequest, SyncGroupResponse),
        (DescribeGroupsRequest, DescribeGroupsResponse),
        (ListGroupsRequest, ListGroupsResponse),
        (SaslHandshakeRequest, SaslHandshakeResponse),
        (ApiVersionsRequest, ApiVersionsResponse),
        (CreateTopicsRequest, CreateTopicsResponse),
        (DeleteTopicsRequest, DeleteTopicsResponse),
        (DeleteRecordsRequest, DeleteRecordsResponse),
        (InitProducerIdRequest, InitProducerIdResponse),
        (OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse),
        (AddPartitionsToTxnRequest, AddPartitionsToTxnResponse),
        (AddOffsetsToTxnRequest, AddOffsetsToTxnResponse),
        (EndTxnRequest, EndTxnResponse),
        (WriteTxnMarkersRequest, WriteTxnMarkersResponse),
        (TxnOffsetCommitRequest, TxnOffsetCommitResponse),
        (DescribeAclsRequest, DescribeAclsResponse),
        (CreateAclsRequest, CreateAclsResponse),
        (DeleteAclsRequest, DeleteAclsResponse),
        (DescribeConfigsRequest, DescribeConfigsResponse),
        (AlterConfigsRequest, AlterConfigsResponse),
        (AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse),
        (DescribeLogDirsRequest, DescribeLogDirsResponse),
        (SaslAuthenticateRequest, SaslAuthenticateResponse),
        (CreatePartitionsRequest, CreatePartitionsResponse),
        (DeleteGroupsRequest, DeleteGroupsResponse),
        (ElectLeadersRequest, ElectLeadersResponse),
        (IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse),
        (AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse),
        (ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse),
        (OffsetDeleteRequest, OffsetDeleteResponse),
        (DescribeClientQuotasRequest, DescribeClientQuotasResponse),
        (AlterClientQuotasRequest, AlterClientQuotasResponse),
        (DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse),
        (AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse),
        (DescribeClusterRequest, DescribeClusterResponse),
        (DescribeProducersRequest, DescribeProducersResponse),
        (DescribeTransactionsRequest, DescribeTransactionsResponse),
        (ListTransactionsRequest, ListTransactionsResponse),
        (ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse),
        (ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse),
        (ListConfigResourcesRequest, ListConfigResourcesResponse),
        (DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse),
        (DescribeMirrorsRequest, DescribeMirrorsResponse),
        (AlterMirrorsRequest, AlterMirrorsResponse),
    )
}
"""Every API by its key."""
