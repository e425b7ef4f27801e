"""One request of every API that needs rights, about one topic, one group and one transactional id."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from skylog.errors import ErrorCode
from skylog.protocol import alter_configs, incremental_alter_configs
from skylog.protocol.add_offsets_to_txn import AddOffsetsToTxnRequest
from skylog.protocol.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from skylog.protocol.alter_client_quotas import AlterClientQuotasRequest, QuotaAlteration, QuotaEntity, QuotaOperation
from skylog.protocol.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from skylog.protocol.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from skylog.protocol.alter_user_scram_credentials import AlterUserScramCredentialsRequest, ScramCredentialUpsertion
from skylog.protocol.apis import ApiKey
from skylog.protocol.consumer_group_describe import ConsumerGroupDescribeRequest
from skylog.protocol.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from skylog.protocol.create_acls import AclCreation, CreateAclsRequest
from skylog.protocol.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from skylog.protocol.create_topics import CreatableTopic, CreateTopicsRequest
from skylog.protocol.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from skylog.protocol.delete_groups import DeleteGroupsRequest
from skylog.protocol.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from skylog.protocol.delete_topics import DeleteTopicsRequest, DeleteTopicState
from skylog.protocol.describe_acls import DescribeAclsRequest
from skylog.protocol.describe_client_quotas import DescribeClientQuotasRequest
from skylog.protocol.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from skylog.protocol.describe_groups import DescribeGroupsRequest
from skylog.protocol.describe_log_dirs import DescribeLogDirsRequest
from skylog.protocol.describe_producers import DescribeProducersRequest, DescribeProducersTopic
from skylog.protocol.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from skylog.protocol.describe_transactions import DescribeTransactionsRequest
from skylog.protocol.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from skylog.protocol.elect_leaders import ElectLeadersRequest, ElectLeadersTopic
from skylog.protocol.end_txn import EndTxnRequest
from skylog.protocol.find_coordinator import FindCoordinatorRequest
from skylog.protocol.heartbeat import HeartbeatRequest
from skylog.protocol.init_producer_id import InitProducerIdRequest
from skylog.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from skylog.protocol.leave_group import LeaveGroupRequest, MemberIdentity
from skylog.protocol.list_config_resources import ListConfigResourcesRequest
from skylog.protocol.list_groups import ListGroupsRequest
from skylog.protocol.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from skylog.protocol.list_partition_reassignments import ListPartitionReassignmentsRequest
from skylog.protocol.list_transactions import ListTransactionsRequest
from skylog.protocol.metadata import MetadataRequest, MetadataRequestTopic
from skylog.protocol.mirrors import AlterMirrorsRequest, DescribeMirrorsRequest
from skylog.protocol.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from skylog.protocol.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from skylog.protocol.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from skylog.protocol.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from skylog.protocol.schema import Message
from skylog.protocol.sync_group import SyncGroupRequest
from skylog.protocol.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from skylog.protocol.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest

from .raw import batch_of, fetch_request, produce_request

TOPIC: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
TRANSACTION: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


LONG_MS: Final = 600_000
"""No session and no transaction expires during a test: that would change what a refused request must not change."""


class Named(NamedTuple):
    topic: str
    group: str
    transactional_id: str


class Case(NamedTuple):
    """A request, its version, and the error without rights; None where the response leaves things out."""

    version: int
    error: ErrorCode | None
    request: Callable[[Named], Message]


EVERY_REQUEST: Final[Mapping[ApiKey, Case]] = {
    ApiKey.ADD_OFFSETS_TO_TXN: Case(
        3,
        TRANSACTION,
        lambda of: AddOffsetsToTxnRequest(
            transactional_id=of.transactional_id, producer_id=0, producer_epoch=0, group_id=of.group
        ),
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: Case(
        3,
        TRANSACTION,
        lambda of: AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=of.transactional_id,
            v3_and_below_producer_id=0,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=of.topic, partitions=[0])],
        ),
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: Case(
        1,
        CLUSTER,
        lambda _: AlterClientQuotasRequest(
            entries=[
                QuotaAlteration(
                    entity=[QuotaEntity(entity_type="user", entity_name="u")],
                    ops=[QuotaOperation(key="producer_byte_rate", value=1.0)],
                )
            ]
        ),
    ),
    ApiKey.ALTER_CONFIGS: Case(
        2,
        TOPIC,
        lambda of: alter_configs.AlterConfigsRequest(
            resources=[
                alter_configs.AlterConfigsResource(
                    resource_type=2,
                    resource_name=of.topic,
                    configs=[alter_configs.AlterableConfig(name="retention.ms", value="1234")],
                )
            ]
        ),
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Case(
        0,
        CLUSTER,
        lambda of: AlterPartitionReassignmentsRequest(
            topics=[
                ReassignableTopic(name=of.topic, partitions=[ReassignablePartition(partition_index=0, replicas=[0])])
            ]
        ),
    ),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Case(
        2,
        CLUSTER,
        lambda of: AlterReplicaLogDirsRequest(
            dirs=[AlterReplicaLogDir(path="/d", topics=[AlterReplicaLogDirTopic(name=of.topic, partitions=[0])])]
        ),
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Case(
        0,
        CLUSTER,
        lambda _: AlterUserScramCredentialsRequest(
            deletions=[],
            upsertions=[
                ScramCredentialUpsertion(name="new", mechanism=1, iterations=4096, salt=b"s", salted_password=b"p" * 32)
            ],
        ),
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Case(1, GROUP, lambda of: ConsumerGroupDescribeRequest(group_ids=[of.group])),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Case(
        1,
        GROUP,
        lambda of: ConsumerGroupHeartbeatRequest(
            group_id="consumer-" + of.group,
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=LONG_MS,
            subscribed_topic_names=[of.topic],
            topic_partitions=[],
        ),
    ),
    ApiKey.CREATE_ACLS: Case(
        3,
        CLUSTER,
        lambda of: CreateAclsRequest(
            creations=[
                AclCreation(
                    resource_type=2,
                    resource_name=of.topic,
                    principal="User:other",
                    host="*",
                    operation=3,
                    permission_type=3,
                )
            ]
        ),
    ),
    ApiKey.CREATE_PARTITIONS: Case(
        3,
        TOPIC,
        lambda of: CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=of.topic, count=2)], timeout_ms=1000),
    ),
    ApiKey.CREATE_TOPICS: Case(
        7,
        TOPIC,
        lambda of: CreateTopicsRequest(
            topics=[CreatableTopic(name=of.topic + "-new", num_partitions=1, replication_factor=1)]
        ),
    ),
    ApiKey.DELETE_ACLS: Case(
        3,
        CLUSTER,
        lambda of: DeleteAclsRequest(
            filters=[
                DeleteAclsFilter(
                    resource_type_filter=2,
                    resource_name_filter=of.topic,
                    principal_filter="User:other",
                    host_filter=None,
                    operation=1,
                    permission_type=1,
                )
            ]
        ),
    ),
    ApiKey.DELETE_GROUPS: Case(2, GROUP, lambda of: DeleteGroupsRequest(groups_names=[of.group])),
    ApiKey.DELETE_RECORDS: Case(
        2,
        TOPIC,
        lambda of: DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(name=of.topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=1)])
            ],
            timeout_ms=1000,
        ),
    ),
    ApiKey.DELETE_TOPICS: Case(
        6, TOPIC, lambda of: DeleteTopicsRequest(topics=[DeleteTopicState(name=of.topic)], timeout_ms=1000)
    ),
    ApiKey.DESCRIBE_ACLS: Case(
        3,
        CLUSTER,
        lambda _: DescribeAclsRequest(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        ),
    ),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Case(1, CLUSTER, lambda _: DescribeClientQuotasRequest(components=[])),
    ApiKey.DESCRIBE_CONFIGS: Case(
        4,
        TOPIC,
        lambda of: DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=2, resource_name=of.topic)]),
    ),
    ApiKey.DESCRIBE_GROUPS: Case(6, GROUP, lambda of: DescribeGroupsRequest(groups=[of.group])),
    ApiKey.DESCRIBE_LOG_DIRS: Case(4, CLUSTER, lambda _: DescribeLogDirsRequest(topics=None)),
    ApiKey.DESCRIBE_PRODUCERS: Case(
        0,
        TOPIC,
        lambda of: DescribeProducersRequest(topics=[DescribeProducersTopic(name=of.topic, partition_indexes=[0])]),
    ),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Case(
        0, TOPIC, lambda of: DescribeTopicPartitionsRequest(topics=[TopicRequest(name=of.topic)])
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: Case(
        0, TRANSACTION, lambda of: DescribeTransactionsRequest(transactional_ids=[of.transactional_id])
    ),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Case(0, CLUSTER, lambda _: DescribeUserScramCredentialsRequest(users=None)),
    ApiKey.ELECT_LEADERS: Case(
        2,
        CLUSTER,
        lambda of: ElectLeadersRequest(topic_partitions=[ElectLeadersTopic(topic=of.topic, partitions=[0])]),
    ),
    ApiKey.END_TXN: Case(
        3,
        TRANSACTION,
        lambda of: EndTxnRequest(transactional_id=of.transactional_id, producer_id=0, producer_epoch=0, committed=True),
    ),
    ApiKey.FETCH: Case(12, TOPIC, lambda of: fetch_request(of.topic, 0)),
    ApiKey.FIND_COORDINATOR: Case(4, GROUP, lambda of: FindCoordinatorRequest(coordinator_keys=[of.group])),
    ApiKey.HEARTBEAT: Case(4, GROUP, lambda of: HeartbeatRequest(group_id=of.group, generation_id=1, member_id="m")),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Case(
        1,
        TOPIC,
        lambda of: incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=[
                incremental_alter_configs.AlterConfigsResource(
                    resource_type=2,
                    resource_name=of.topic,
                    configs=[
                        incremental_alter_configs.AlterableConfig(name="retention.ms", config_operation=0, value="1234")
                    ],
                )
            ]
        ),
    ),
    ApiKey.INIT_PRODUCER_ID: Case(
        4,
        TRANSACTION,
        lambda of: InitProducerIdRequest(transactional_id=of.transactional_id, transaction_timeout_ms=LONG_MS),
    ),
    ApiKey.JOIN_GROUP: Case(
        9,
        GROUP,
        lambda of: JoinGroupRequest(
            group_id=of.group,
            session_timeout_ms=LONG_MS,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        ),
    ),
    ApiKey.LEAVE_GROUP: Case(
        4, GROUP, lambda of: LeaveGroupRequest(group_id=of.group, members=[MemberIdentity(member_id="m")])
    ),
    ApiKey.ALTER_MIRRORS: Case(0, CLUSTER, lambda _: AlterMirrorsRequest(name="m", action="pause")),
    ApiKey.DESCRIBE_MIRRORS: Case(0, CLUSTER, lambda _: DescribeMirrorsRequest()),
    ApiKey.LIST_CONFIG_RESOURCES: Case(0, CLUSTER, lambda _: ListConfigResourcesRequest()),
    ApiKey.LIST_GROUPS: Case(4, None, lambda _: ListGroupsRequest()),
    ApiKey.LIST_OFFSETS: Case(
        7,
        TOPIC,
        lambda of: ListOffsetsRequest(
            topics=[ListOffsetsTopic(name=of.topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])]
        ),
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Case(0, CLUSTER, lambda _: ListPartitionReassignmentsRequest(topics=None)),
    ApiKey.LIST_TRANSACTIONS: Case(0, None, lambda _: ListTransactionsRequest()),
    ApiKey.METADATA: Case(
        9,
        TOPIC,
        lambda of: MetadataRequest(topics=[MetadataRequestTopic(name=of.topic)], allow_auto_topic_creation=False),
    ),
    ApiKey.OFFSET_COMMIT: Case(
        8,
        GROUP,
        lambda of: OffsetCommitRequest(
            group_id=of.group,
            topics=[
                OffsetCommitRequestTopic(
                    name=of.topic,
                    partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=7)],
                )
            ],
        ),
    ),
    ApiKey.OFFSET_DELETE: Case(
        0,
        GROUP,
        lambda of: OffsetDeleteRequest(
            group_id=of.group,
            topics=[
                OffsetDeleteRequestTopic(name=of.topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
            ],
        ),
    ),
    ApiKey.OFFSET_FETCH: Case(
        8,
        GROUP,
        lambda of: OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id=of.group, topics=[OffsetFetchRequestTopics(name=of.topic, partition_indexes=[0])]
                )
            ]
        ),
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Case(
        4,
        TOPIC,
        lambda of: OffsetForLeaderEpochRequest(
            topics=[
                OffsetForLeaderTopic(topic=of.topic, partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=0)])
            ]
        ),
    ),
    ApiKey.PRODUCE: Case(9, TOPIC, lambda of: produce_request(of.topic, batch_of(b"v"))),
    ApiKey.SYNC_GROUP: Case(5, GROUP, lambda of: SyncGroupRequest(group_id=of.group, generation_id=1, member_id="m")),
    ApiKey.TXN_OFFSET_COMMIT: Case(
        3,
        TRANSACTION,
        lambda of: TxnOffsetCommitRequest(
            transactional_id=of.transactional_id,
            group_id=of.group,
            producer_id=0,
            producer_epoch=0,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=of.topic,
                    partitions=[TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7)],
                )
            ],
        ),
    ),
    ApiKey.WRITE_TXN_MARKERS: Case(
        1,
        CLUSTER,
        lambda of: WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=0,
                    producer_epoch=0,
                    transaction_result=True,
                    topics=[WritableTxnMarkerTopic(name=of.topic, partition_indexes=[0])],
                    coordinator_epoch=0,
                )
            ]
        ),
    ),
}
