"""Requests about the replicas of one broker: its logs, the producers it knows, the epochs it leads in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from skylog.errors import ErrorCode
from skylog.protocol.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from skylog.protocol.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from skylog.protocol.describe_producers import DescribeProducersRequest, DescribeProducersTopic
from skylog.protocol.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

from .local_cluster import LocalCluster
from .raw import batch_of

LEADER, FOLLOWER, OTHER = 1, 2, 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Topic `t` has a leader, a follower that has copied everything, and a broker without a replica."""
    with LocalCluster(tmp_path_factory.mktemp("cluster"), 3) as cluster:
        cluster.create("t", [LEADER, FOLLOWER])
        batch = batch_of(b"x", b"y", producer_id=71, producer_epoch=3, base_sequence=0)
        assert cluster.client(LEADER).produce("t", batch).error_code == 0
        yield cluster


def sizes(cluster: LocalCluster, node_id: int, topics: list[DescribableLogDirTopic] | None) -> dict[str, int]:
    (result,) = cluster.client(node_id).ask(DescribeLogDirsRequest(topics=topics), 4).results
    assert not any(row.is_future_key or row.offset_lag for topic in result.topics for row in topic.partitions)
    return {topic.name: row.partition_size for topic in result.topics for row in topic.partitions}


def test_the_logs_of_followers_are_described_too(cluster: LocalCluster) -> None:
    asked = [DescribableLogDirTopic(topic="t", partitions=[0, 1])]
    for topics in (None, asked):
        found = {node_id: sizes(cluster, node_id, topics) for node_id in cluster.brokers}
        assert set(found[LEADER]) == set(found[FOLLOWER]) == {"t"}
        assert found[LEADER]["t"] == found[FOLLOWER]["t"] > 0
        assert found[OTHER] == {}


def test_every_replica_describes_its_producers(cluster: LocalCluster) -> None:
    def describe(node_id: int, topic: str = "t") -> tuple[ErrorCode, list[tuple[int, int, int]]]:
        asked = [DescribeProducersTopic(name=topic, partition_indexes=[0])]
        (row,) = cluster.client(node_id).ask(DescribeProducersRequest(topics=asked), 0).topics[0].partitions
        found = [(each.producer_id, each.producer_epoch, each.last_sequence) for each in row.active_producers]
        return ErrorCode(row.error_code), found

    assert describe(LEADER) == describe(FOLLOWER) == (ErrorCode.NONE, [(71, 3, 1)])
    assert describe(OTHER) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [])
    assert describe(OTHER, "none") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])


def test_a_log_is_in_the_directory_of_each_broker_that_has_it(cluster: LocalCluster) -> None:
    def code(node_id: int, topic: str = "t") -> ErrorCode:
        path = cluster.look(node_id, lambda broker: str(broker.log_dir.path))
        asked = [AlterReplicaLogDirTopic(name=topic, partitions=[0])]
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=asked)])
        return ErrorCode(cluster.client(node_id).ask(request, 2).results[0].partitions[0].error_code)

    assert code(LEADER) == code(FOLLOWER) == ErrorCode.NONE
    assert code(OTHER) == ErrorCode.REPLICA_NOT_AVAILABLE
    assert code(OTHER, "none") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_only_the_leader_knows_the_end_of_an_epoch(cluster: LocalCluster) -> None:
    def end_of_epoch(node_id: int, topic: str = "t") -> tuple[ErrorCode, int]:
        row = OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
        asked = [OffsetForLeaderTopic(topic=topic, partitions=[row])]
        request = OffsetForLeaderEpochRequest(topics=asked)
        (found,) = cluster.client(node_id).ask(request, 4).topics[0].partitions
        return ErrorCode(found.error_code), found.end_offset

    assert end_of_epoch(LEADER) == (ErrorCode.NONE, 2)
    for node_id in (FOLLOWER, OTHER):
        assert end_of_epoch(node_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert end_of_epoch(OTHER, "none") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
