"""Metadata, DescribeCluster and DescribeTopicPartitions in a cluster whose brokers come and go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skylog.cluster import EntryChange
from skylog.cluster.metadata import CONTROLLER
from skylog.errors import ErrorCode
from skylog.model import TopicPartition
from skylog.protocol.describe_cluster import DescribeClusterRequest
from skylog.protocol.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest

from .local_cluster import LocalCluster
from .process import until

VERSIONS = range(13)
RACKS = {1: "east", 2: "west", 3: "east"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    racks = {node_id: {"broker.rack": rack} for node_id, rack in RACKS.items()}
    with LocalCluster(tmp_path, 3, own=racks) as cluster:
        yield cluster


def described(cluster: LocalCluster, topic: str, through: int = 1) -> Any:
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=topic)])
    return cluster.client(through).ask(request, 0).topics[0].partitions


def rows(cluster: LocalCluster, topic: str, version: int = 12, through: int = 1) -> Any:
    return cluster.client(through).metadata(topic, version=version).topics[0].partitions


def test_every_version_has_the_live_brokers_and_the_replicas_and_the_broker_itself_administers(
    cluster: LocalCluster,
) -> None:
    cluster.create("t", [2, 3, 1])
    for version in VERSIONS:
        response = cluster.client(3).metadata("t", version=version)
        assert {each.node_id: each.port for each in response.brokers} == cluster.ports
        if version >= 1:
            assert {each.node_id: each.rack for each in response.brokers} == RACKS
            assert response.controller_id == 3
        (row,) = response.topics[0].partitions
        assert (row.error_code, row.leader_id, row.replica_nodes, sorted(row.isr_nodes)) == (0, 2, [2, 3, 1], [1, 2, 3])


def test_a_replica_whose_broker_is_away_is_offline_until_it_is_back(cluster: LocalCluster) -> None:
    cluster.create("t", [1, 2])
    assert all(rows(cluster, "t", version)[0].offline_replicas == [] for version in VERSIONS)
    cluster.stop(2)
    for version in VERSIONS:
        (row,) = rows(cluster, "t", version)
        assert (row.leader_id, row.isr_nodes) == (1, [1])
        if version == 0:
            assert (row.error_code, row.replica_nodes) == (ErrorCode.REPLICA_NOT_AVAILABLE, [1])
        else:
            assert (row.error_code, row.replica_nodes) == (ErrorCode.NONE, [1, 2])
            assert row.offline_replicas == ([2] if version >= 5 else [])
    cluster.start(2)
    for version in VERSIONS:
        (row,) = rows(cluster, "t", version)
        assert (row.error_code, row.replica_nodes, row.offline_replicas) == (ErrorCode.NONE, [1, 2], [])


def test_a_partition_without_a_leader_has_leader_not_available(cluster: LocalCluster) -> None:
    cluster.create("t", [2], [1])
    epoch = cluster.partition("t").leader_epoch
    assert all(rows(cluster, "t", version)[0].leader_id == 2 for version in VERSIONS)
    cluster.stop(2)
    until(lambda: cluster.partition("t").leader == -1, "the partition to be offline")
    for version in VERSIONS:
        row, other = rows(cluster, "t", version)
        assert (row.error_code, row.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        assert (row.replica_nodes, row.isr_nodes) == (([], []) if version == 0 else ([2], [2]))
        assert row.leader_epoch == (epoch + 1 if version >= 7 else -1)
        assert (other.error_code, other.leader_id) == (ErrorCode.NONE, 1)


def test_a_leader_that_is_away_is_none_even_before_another_is_elected(cluster: LocalCluster) -> None:
    """The controller, which would elect one, is stopped."""
    cluster.create("t", [2, 1])
    assert rows(cluster, "t")[0].leader_id == 2
    for node_id in (1, 3):
        membership = cluster.look(node_id, lambda broker: broker.membership)
        cluster.run(membership.controller.stop())  # type: ignore[attr-defined]
    gone = cluster.look(2, lambda broker: broker.membership)
    cluster.run(gone.member.stop())  # type: ignore[attr-defined]  # it would join again
    cluster.run(cluster.sessions[2].commit([EntryChange("/brokers/2", None, 1)]))
    until(lambda: cluster.look(1, lambda broker: 2 not in broker.metadata.image.brokers), "broker 2 to be gone")
    assert cluster.partition("t").leader == 2
    for (row,) in (rows(cluster, "t"), described(cluster, "t")):
        assert (row.error_code, row.leader_id, row.offline_replicas) == (ErrorCode.LEADER_NOT_AVAILABLE, -1, [2])


def test_describe_topic_partitions_has_the_same_and_never_null(cluster: LocalCluster) -> None:
    cluster.create("one", [2])
    cluster.create("two", [2, 1], min_insync_replicas="2")

    def compare(*eligible: int) -> None:
        for topic in ("one", "two"):
            ((row,), (found,)) = rows(cluster, topic), described(cluster, topic)
            for field in ("error_code", "leader_id", "leader_epoch", "replica_nodes", "isr_nodes", "offline_replicas"):
                assert getattr(row, field) == getattr(found, field), field
            assert found.eligible_leader_replicas == (list(eligible) if topic == "two" else [])
            assert found.last_known_elr == []

    compare()
    cluster.stop(2)
    until(lambda: cluster.partition("one").leader == -1, "an offline partition")
    until(lambda: cluster.partition("two").eligible_replicas == (2,), "an eligible replica")
    compare(2)
    assert described(cluster, "one")[0].offline_replicas == [2]


def test_a_replica_whose_log_cannot_be_opened_is_offline_as_its_own_broker_sees_it(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    (tmp_path / "broker-2" / "t-1").write_text("a file where the folder should be")
    cluster.create("t", [1, 2], [1, 2])
    until(lambda: cluster.look(2, lambda broker: TopicPartition("t", 1) in broker.replicas.offline), "an offline log")
    for find in (rows, described):
        assert [row.offline_replicas for row in find(cluster, "t", through=2)] == [[], [2]]
        assert [row.offline_replicas for row in find(cluster, "t", through=1)] == [[], []]
    (tmp_path / "broker-2" / "t-1").unlink()
    cluster.run(cluster.brokers[2].replicas.reopen_offline())
    for find in (rows, described):
        assert [row.offline_replicas for row in find(cluster, "t", through=2)] == [[], []]


def test_the_controller_is_one_of_the_live_brokers_or_none(cluster: LocalCluster) -> None:
    def controllers(through: int) -> tuple[int, int]:
        """The broker that administers, and the controller."""
        client = cluster.client(through)
        return client.metadata("t").controller_id, client.ask(DescribeClusterRequest(), 1).controller_id

    found = cluster.client(1).ask(DescribeClusterRequest(), 1)
    assert {each.broker_id: (each.port, each.rack) for each in found.brokers} == {
        node_id: (port, RACKS[node_id]) for node_id, port in cluster.ports.items()
    }
    controller = cluster.look(1, lambda broker: broker.metadata.image.controller_id)
    assert [controllers(each) for each in (1, 2, 3)] == [(1, controller), (2, controller), (3, controller)]
    for node_id in cluster.brokers:
        membership = cluster.look(node_id, lambda broker: broker.membership)
        cluster.run(membership.controller.stop())  # type: ignore[attr-defined]
    cluster.run(cluster.sessions[controller].commit([EntryChange(CONTROLLER, None, 1)]))
    until(lambda: controllers(1) == (-1, -1), "no controller")
    cluster.run(cluster.sessions[1].commit([EntryChange(CONTROLLER, {"node_id": 9}, 0)]))
    until(lambda: cluster.look(1, lambda broker: broker.metadata.image.controller_id) == 9, "another controller")
    assert controllers(1) == (-1, -1)
