"""AlterPartitionReassignments and ListPartitionReassignments in a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from skylog.cluster import EmbeddedSession, Entry, PartitionImage
from skylog.cluster.elections import Brokers, ElectionRules
from skylog.cluster.reassignment import begin
from skylog.errors import ErrorCode
from skylog.model import TopicPartition
from skylog.protocol.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from skylog.protocol.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)

from .local_cluster import LocalCluster
from .loop_cluster import LoopCluster, soon
from .process import until
from .raw import batch_of, values_in

Listed = dict[tuple[str, int], tuple[list[int], list[int], list[int]]]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path, 3, {"auto.leader.rebalance.enable": "false"}) as cluster:
        yield cluster


def alter(
    cluster: LocalCluster, topic: str, targets: dict[int, list[int] | None], through: int = 1
) -> dict[int, ErrorCode]:
    rows = [ReassignablePartition(partition_index=index, replicas=target) for index, target in targets.items()]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=rows)])
    response = cluster.client(through).ask(request, 0)
    assert response.error_code == ErrorCode.NONE
    (result,) = response.responses
    assert result.name == topic
    assert all(bool(each.error_message) == (each.error_code != 0) for each in result.partitions)
    return {each.partition_index: ErrorCode(each.error_code) for each in result.partitions}


def listed(cluster: LocalCluster, wanted: dict[str, list[int]] | None = None, through: int = 1) -> Listed:
    """Return replicas, adding and removing replicas of the partitions that are being reassigned."""
    topics = None
    if wanted is not None:
        topics = [ListPartitionReassignmentsTopics(name=name, partition_indexes=each) for name, each in wanted.items()]
    response = cluster.client(through).ask(ListPartitionReassignmentsRequest(topics=topics), 0)
    assert response.error_code == ErrorCode.NONE
    return {
        (topic.name, row.partition_index): (row.replicas, row.adding_replicas, row.removing_replicas)
        for topic in response.topics
        for row in topic.partitions
    }


def pause_copying(cluster: LocalCluster, node_id: int) -> None:
    """Keep a broker from copying anything, so that a reassignment to it does not end."""
    membership = cluster.look(node_id, lambda broker: broker.membership)
    cluster.run(membership.fetchers.stop())  # type: ignore[attr-defined]


@pytest.mark.parametrize("through", [1, 2, 3])
def test_a_partition_moves_to_other_brokers_with_its_records(cluster: LocalCluster, through: int) -> None:
    cluster.create("t", [1])
    cluster.client(1).produce("t", batch_of(b"x"))
    assert alter(cluster, "t", {0: [3, 2]}, through) == {0: ErrorCode.NONE}
    until(lambda: cluster.partition("t").replicas == (3, 2), "the reassignment")
    cluster.until_in_sync("t", [2, 3])
    assert cluster.partition("t").leader == 3
    until(lambda: cluster.client(3).fetch("t", 0).error_code == 0, "the new leader")
    assert values_in(cluster.client(3).fetch("t", 0).records) == [(0, b"x")]
    assert listed(cluster, through=through) == {}
    until(lambda: cluster.look(1, lambda broker: broker.replicas.find(TopicPartition("t", 0)) is None), "its removal")


def test_what_moves_is_listed_with_the_replicas_that_come_and_go(cluster: LocalCluster) -> None:
    pause_copying(cluster, 3)
    cluster.create("t", [1, 2], [2, 1])
    cluster.create("other", [1])
    assert alter(cluster, "t", {1: [2, 3]}) == {1: ErrorCode.NONE}
    moving = {("t", 1): ([2, 3, 1], [3], [1])}
    for wanted in (None, {"t": [0, 1, 7], "other": [0], "none": [0]}, {"t": [1]}):
        assert listed(cluster, wanted, through=2) == moving, wanted
    for wanted in ({}, {"t": [0]}, {"other": [0]}):
        assert listed(cluster, wanted) == {}, wanted
    assert cluster.client(2).topic("t").partitions[1].replica_nodes == [2, 3, 1]


def test_a_reassignment_is_cancelled(cluster: LocalCluster) -> None:
    pause_copying(cluster, 3)
    cluster.create("t", [1, 2])
    alter(cluster, "t", {0: [3]})
    assert set(listed(cluster)) == {("t", 0)}
    assert alter(cluster, "t", {0: None}, through=2) == {0: ErrorCode.NONE}
    assert listed(cluster, through=2) == {}
    assert cluster.partition("t", seen_by=2).replicas == (1, 2)
    assert alter(cluster, "t", {0: None}) == {0: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS}


def test_each_partition_has_its_own_result(cluster: LocalCluster) -> None:
    cluster.create("t", [1], [2], [3], [1])
    results = alter(cluster, "t", {0: [1, 1], 1: [4], 2: [], 3: [2], 9: [1]})
    invalid = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert results == {0: invalid, 1: invalid, 2: invalid, 3: 0, 9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    until(lambda: cluster.partition("t", 3).replicas == (2,), "the valid one")
    assert [cluster.partition("t", index).replicas for index in range(3)] == [(1,), (2,), (3,)]


def test_another_order_makes_another_replica_the_preferred_leader(cluster: LocalCluster) -> None:
    cluster.create("t", [1, 2, 3])
    assert alter(cluster, "t", {0: [3, 2, 1]}) == {0: ErrorCode.NONE}
    assert (cluster.partition("t").replicas, cluster.partition("t").leader) == ((3, 2, 1), 1)
    assert listed(cluster) == {}


class HeldReports:
    """Holds back what the store reports to one broker. Then the broker gets only the last state of each entry."""

    def __init__(self, session: EmbeddedSession) -> None:
        self._publish = session.publish
        self._held: dict[str, Entry | None] = {}
        self._session = session
        session.publish = self._held.update  # type: ignore[method-assign, assignment]

    def release(self) -> None:
        self._session.publish = self._publish  # type: ignore[method-assign]
        self._publish(self._held)


async def move(cluster: LoopCluster, through: int, *target: int) -> None:
    """Reassign partition 0 of topic `t`, and wait until that has ended or needs a replica that is not in sync."""

    def decide(partition: PartitionImage, brokers: Brokers, rules: ElectionRules) -> PartitionImage:
        return begin(partition, target, brokers, rules)

    broker = cluster.brokers[through]
    results = await broker.partition_changes.apply({"t": {0: decide}}, 10)
    assert results == {"t": {0: None}}
    await soon(lambda: not cluster.image(seen_by=through).removing, "the reassignment")


def test_a_replica_that_left_and_came_back_unseen_by_the_leader_is_not_in_sync(tmp_path: Path) -> None:
    """Its log is empty. The leader still knew how far the former one was."""

    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster:
            await cluster.start(3, 1, 2)  # the first is the controller
            await cluster.create("t", [1, 2])
            await cluster.append(1, b"a")
            reports = HeldReports(cluster.sessions[1])
            await move(cluster, 3, 1)
            await soon(lambda: cluster.find(2) is None, "the removal")
            await cluster.membership(2).fetchers.stop()
            await move(cluster, 3, 1, 2)
            await soon(lambda: cluster.find(2) is not None, "the new replica")
            reports.release()
            assert cluster.image(seen_by=1).replicas == (1, 2)
            await cluster.membership(1).in_sync_sets._check_all()
            await asyncio.sleep(0.2)
            assert cluster.image().in_sync_replicas == (1,)
            cluster.membership(2).fetchers.start()
            await cluster.until_in_sync(1, 2)
            assert cluster.values(2) == [b"a"]

    asyncio.run(run())
