"""Requests that name one thing thousands of times, or thousands of things: nobody else notices."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from skylog.errors import ErrorCode
from skylog.protocol.alter_client_quotas import AlterClientQuotasRequest, QuotaAlteration, QuotaEntity
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
from skylog.protocol.describe_groups import DescribeGroupsRequest
from skylog.protocol.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from skylog.protocol.describe_producers import DescribeProducersRequest, DescribeProducersTopic
from skylog.protocol.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from skylog.protocol.describe_transactions import DescribeTransactionsRequest
from skylog.protocol.elect_leaders import ElectLeadersRequest, ElectLeadersTopic
from skylog.protocol.find_coordinator import FindCoordinatorRequest
from skylog.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from skylog.protocol.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from skylog.protocol.metadata import MetadataRequest, MetadataRequestTopic
from skylog.protocol.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from skylog.protocol.schema import Message
from tests.patience import patience

from ..broker.conftest import create_topic
from ..broker.process import BrokerProcess
from ..broker.raw import RawClient

pytestmark = pytest.mark.usefixtures("undisturbed")

TIMES = 20_000
PARTITIONS = list(range(100))
TOPIC = "many-partitions"
MAX_RESPONSE_BYTES = 64 * 1024
MAX_GROWTH_BYTES = 100 * 1024 * 1024
ANSWER_SECONDS = 5.0

REPEATED: dict[str, tuple[Callable[[], Message], int]] = {
    "Metadata": (lambda: MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)] * TIMES), 12),
    "Metadata v1": (lambda: MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)] * TIMES), 1),
    "DescribeTopicPartitions": (
        lambda: DescribeTopicPartitionsRequest(topics=[TopicRequest(name=TOPIC)] * TIMES),
        0,
    ),
    "DescribeLogDirs": (
        lambda: DescribeLogDirsRequest(
            topics=[DescribableLogDirTopic(topic=TOPIC, partitions=PARTITIONS)] * (TIMES // 100)
        ),
        4,
    ),
    "DescribeProducers": (
        lambda: DescribeProducersRequest(
            topics=[DescribeProducersTopic(name=TOPIC, partition_indexes=PARTITIONS)] * (TIMES // 100)
        ),
        0,
    ),
    "ElectLeaders": (
        lambda: ElectLeadersRequest(
            topic_partitions=[ElectLeadersTopic(topic=TOPIC, partitions=PARTITIONS)] * (TIMES // 100)
        ),
        2,
    ),
    "AlterReplicaLogDirs": (
        lambda: AlterReplicaLogDirsRequest(
            dirs=[AlterReplicaLogDir(path="/x", topics=[AlterReplicaLogDirTopic(name=TOPIC, partitions=PARTITIONS)])]
            * (TIMES // 100)
        ),
        2,
    ),
    "AlterPartitionReassignments": (
        lambda: AlterPartitionReassignmentsRequest(
            topics=[
                ReassignableTopic(
                    name=TOPIC, partitions=[ReassignablePartition(partition_index=index) for index in PARTITIONS]
                )
            ]
            * (TIMES // 100)
        ),
        0,
    ),
    "ListPartitionReassignments": (
        lambda: ListPartitionReassignmentsRequest(
            topics=[ListPartitionReassignmentsTopics(name=TOPIC, partition_indexes=PARTITIONS)] * (TIMES // 100)
        ),
        0,
    ),
    "OffsetForLeaderEpoch": (
        lambda: OffsetForLeaderEpochRequest(
            topics=[
                OffsetForLeaderTopic(
                    topic=TOPIC,
                    partitions=[OffsetForLeaderPartition(partition=index, leader_epoch=0) for index in PARTITIONS],
                )
            ]
            * (TIMES // 100)
        ),
        4,
    ),
    "FindCoordinator": (lambda: FindCoordinatorRequest(coordinator_keys=["group"] * TIMES), 5),
    "DescribeGroups": (lambda: DescribeGroupsRequest(groups=["group"] * TIMES), 5),
    "DescribeTransactions": (lambda: DescribeTransactionsRequest(transactional_ids=["t"] * TIMES), 0),
    "AlterClientQuotas": (
        lambda: AlterClientQuotasRequest(
            entries=[QuotaAlteration(entity=[QuotaEntity(entity_type="user", entity_name="u")], ops=[])] * TIMES
        ),
        1,
    ),
}


@pytest.fixture(scope="module")
def _topic(broker: BrokerProcess) -> None:
    with RawClient(broker.port) as client:
        create_topic(client, TOPIC, len(PARTITIONS))


@pytest.mark.usefixtures("_topic")
@pytest.mark.parametrize("api", REPEATED)
def test_a_repeated_name_costs_neither_time_nor_memory(broker: BrokerProcess, client: RawClient, api: str) -> None:
    make, version = REPEATED[api]
    frame = client.encode(make(), version)
    size = _answer_size(broker, client, frame)
    assert size < MAX_RESPONSE_BYTES


def test_a_large_group_that_is_named_often_is_described_once(broker: BrokerProcess, client: RawClient) -> None:
    client.ask(FindCoordinatorRequest(key="large"), 0)
    protocols = [JoinGroupRequestProtocol(name="range", metadata=bytes(900_000))]
    join = JoinGroupRequest(
        group_id="large",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id="",
        protocol_type="consumer",
        protocols=protocols,
    )
    assert client.ask(join, 3).error_code == ErrorCode.NONE
    frame = client.encode(DescribeGroupsRequest(groups=["large"] * 2000), 5)
    assert _answer_size(broker, client, frame) < 1024 * 1024


def test_many_unknown_names_are_answered_and_few_of_them_created(broker: BrokerProcess, client: RawClient) -> None:
    names = [f"never-seen-{number}" for number in range(TIMES)]
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
    before = len(client.metadata().topics)
    client.send(request, 12)
    rows = client.receive().topics
    assert [row.name for row in rows] == names
    created = len(client.metadata().topics) - before
    assert created == sum(row.error_code == ErrorCode.NONE for row in rows) <= 100


def _answer_size(broker: BrokerProcess, client: RawClient, frame: Any) -> int:
    """Bytes of the answer, which must come soon and take little memory to make."""
    broker.reset_peak()
    before = broker.rss_bytes
    began = time.monotonic()
    client.send_bytes(frame)
    answer = client.read_frame()
    assert time.monotonic() - began < patience(ANSWER_SECONDS)
    assert broker.peak_rss_bytes - before < MAX_GROWTH_BYTES
    return len(answer)
