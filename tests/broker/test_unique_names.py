"""A name that is repeated in a request has one result, in every API that takes names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from skylog.broker.unique_names import unique, unique_by_topic
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
from skylog.protocol.delete_groups import DeleteGroupsRequest
from skylog.protocol.describe_groups import DescribeGroupsRequest
from skylog.protocol.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from skylog.protocol.describe_producers import DescribeProducersRequest, DescribeProducersTopic
from skylog.protocol.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from skylog.protocol.describe_transactions import DescribeTransactionsRequest
from skylog.protocol.elect_leaders import ElectLeadersRequest, ElectLeadersTopic
from skylog.protocol.find_coordinator import FindCoordinatorRequest
from skylog.protocol.list_transactions import ListTransactionsRequest
from skylog.protocol.metadata import MetadataRequest, MetadataRequestTopic
from skylog.protocol.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from skylog.protocol.schema import Message

from .conftest import MakeTopic
from .raw import RawClient

TIMES = 50


def test_unique_keeps_the_order_of_the_first_mention() -> None:
    assert unique(["b", "a", "b", "c", "a"]) == ["b", "a", "c"]


def test_unique_by_topic_merges_the_partitions_of_a_repeated_topic() -> None:
    assert unique_by_topic([("b", [2, 1, 2]), ("a", [0]), ("b", [1, 3])]) == {"b": [2, 1, 3], "a": [0]}


def _epochs(partitions: list[int]) -> list[OffsetForLeaderPartition]:
    return [OffsetForLeaderPartition(partition=index, leader_epoch=0) for index in partitions]


def _reassigned(partitions: list[int]) -> list[ReassignablePartition]:
    return [ReassignablePartition(partition_index=index, replicas=[1]) for index in partitions]


# The request, given one mention of a topic with its partitions, and the partitions in its response.
BY_PARTITION: dict[str, tuple[Callable[[str, list[int]], Message], int, Callable[[Any], list[tuple[str, int]]]]] = {
    "ElectLeaders": (
        lambda name, indexes: ElectLeadersRequest(
            topic_partitions=[ElectLeadersTopic(topic=name, partitions=indexes)] * TIMES
        ),
        2,
        lambda answer: [
            (row.topic, each.partition_id) for row in answer.replica_election_results for each in row.partition_result
        ],
    ),
    "AlterReplicaLogDirs": (
        lambda name, indexes: AlterReplicaLogDirsRequest(
            dirs=[AlterReplicaLogDir(path="/x", topics=[AlterReplicaLogDirTopic(name=name, partitions=indexes)] * 2)]
            * TIMES
        ),
        2,
        lambda answer: [(row.topic_name, each.partition_index) for row in answer.results for each in row.partitions],
    ),
    "AlterPartitionReassignments": (
        lambda name, indexes: AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=name, partitions=_reassigned(indexes))] * TIMES
        ),
        0,
        lambda answer: [(row.name, each.partition_index) for row in answer.responses for each in row.partitions],
    ),
    "DescribeLogDirs": (
        lambda name, indexes: DescribeLogDirsRequest(
            topics=[DescribableLogDirTopic(topic=name, partitions=indexes)] * TIMES
        ),
        4,
        lambda answer: [
            (row.name, each.partition_index)
            for directory in answer.results
            for row in directory.topics
            for each in row.partitions
        ],
    ),
    "DescribeProducers": (
        lambda name, indexes: DescribeProducersRequest(
            topics=[DescribeProducersTopic(name=name, partition_indexes=indexes)] * TIMES
        ),
        0,
        lambda answer: [(row.name, each.partition_index) for row in answer.topics for each in row.partitions],
    ),
    "OffsetForLeaderEpoch": (
        lambda name, indexes: OffsetForLeaderEpochRequest(
            topics=[OffsetForLeaderTopic(topic=name, partitions=_epochs(indexes))] * TIMES
        ),
        4,
        lambda answer: [(row.topic, each.partition) for row in answer.topics for each in row.partitions],
    ),
}


@pytest.mark.parametrize("api", BY_PARTITION)
def test_each_partition_is_answered_once(client: RawClient, make_topic: MakeTopic, api: str) -> None:
    make, version, partitions = BY_PARTITION[api]
    topic = make_topic(partitions=2)
    found = partitions(client.ask(make(topic, [0, 1, 0, 1, 1]), version))
    assert found == [(topic, 0), (topic, 1)]


# The request, given names, and the names in its response.
BY_NAME: dict[str, tuple[Callable[[list[str]], Message], int, Callable[[Any], list[str]]]] = {
    "Metadata": (
        lambda names: MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names]),
        12,
        lambda answer: [topic.name for topic in answer.topics],
    ),
    "Metadata of an old version": (
        lambda names: MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names]),
        1,
        lambda answer: [topic.name for topic in answer.topics],
    ),
    "DescribeTopicPartitions": (
        lambda names: DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in names]),
        0,
        lambda answer: [topic.name for topic in answer.topics],
    ),
    "DescribeGroups": (
        lambda names: DescribeGroupsRequest(groups=names),
        5,
        lambda answer: [group.group_id for group in answer.groups],
    ),
    "DeleteGroups": (
        lambda names: DeleteGroupsRequest(groups_names=names),
        2,
        lambda answer: [result.group_id for result in answer.results],
    ),
    "FindCoordinator": (
        lambda names: FindCoordinatorRequest(coordinator_keys=names),
        5,
        lambda answer: [coordinator.key for coordinator in answer.coordinators],
    ),
    "DescribeTransactions": (
        lambda names: DescribeTransactionsRequest(transactional_ids=names),
        0,
        lambda answer: [row.transactional_id for row in answer.transaction_states],
    ),
    "ListTransactions": (
        lambda names: ListTransactionsRequest(state_filters=names),
        1,
        lambda answer: answer.unknown_state_filters,
    ),
    "AlterClientQuotas": (
        lambda names: AlterClientQuotasRequest(
            entries=[
                QuotaAlteration(entity=[QuotaEntity(entity_type="user", entity_name=name)], ops=[]) for name in names
            ]
        ),
        1,
        lambda answer: [row.entity[0].entity_name for row in answer.entries],
    ),
}


@pytest.mark.parametrize("api", BY_NAME)
def test_each_name_is_answered_once(client: RawClient, make_topic: MakeTopic, api: str) -> None:
    make, version, names = BY_NAME[api]
    known = make_topic()
    asked = [known, "unknown-to-" + api.split()[0]] * TIMES
    assert Counter(names(client.ask(make(asked), version))) == Counter(set(asked))


def test_each_id_is_answered_once(client: RawClient, make_topic: MakeTopic) -> None:
    topic = client.topic(make_topic())
    asked = [MetadataRequestTopic(topic_id=topic.topic_id, name=None)] * TIMES
    assert client.ask(MetadataRequest(topics=asked), 12).topics == [topic]


def test_a_repeated_topic_is_created_once(client: RawClient, new_name: str) -> None:
    asked = [MetadataRequestTopic(name=new_name)] * TIMES
    (made,) = client.ask(MetadataRequest(topics=asked), 12).topics
    assert (made.name, made.error_code) == (new_name, ErrorCode.NONE)
