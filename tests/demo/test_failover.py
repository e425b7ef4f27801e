"""The demo's failure, on brokers of the test kit: a leader is killed, and what the cluster does is told."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from skylog.client import Admin, Connection, Partition
from skylog.demo.failover import ClusterView, Failover, describe_change
from skylog.demo.layout import EVENTS
from skylog.testing import BrokerCluster, wait_until


def partition(leader: int, *in_sync: int, replicas: tuple[int, ...] = (1, 2, 3)) -> Partition:
    return Partition(0, leader, replicas, in_sync)


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        (partition(1, 1, 2, 3), partition(1, 3, 2, 1), ""),
        (partition(1, 1, 2, 3), partition(-1, 1), "page_views-0 has no leader"),
        (
            partition(1, 1, 2, 3),
            partition(2, 3, 2),
            "page_views-0 is led by broker 2 in place of broker 1; in sync: 2, 3",
        ),
        (partition(-1, 2), partition(2, 2), "page_views-0 is led by broker 2 in place of nobody; in sync: 2"),
        (partition(2, 2, 3), partition(2, 2, 3, 1), "page_views-0: in sync: 1, 2, 3"),
    ],
)
def test_a_change_of_a_partition_is_told_in_words(before: Partition, now: Partition, told: str) -> None:
    assert describe_change(before, now) == told


def test_a_cluster_is_whole_if_all_replicas_are_in_sync() -> None:
    assert ClusterView([partition(1, 3, 2, 1)]).is_whole
    assert not ClusterView([partition(1, 1, 2, 3), partition(1, 1, 2)]).is_whole
    assert not ClusterView([partition(-1, 1, 2, 3)]).is_whole


@dataclass
class Servers:
    """A cluster of the test kit in place of the demo's."""

    cluster: BrokerCluster

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    def kill_broker(self, node_id: int) -> None:
        self.cluster.kill(node_id)

    def is_running(self, node_id: int) -> bool:
        return self.cluster.brokers[node_id].is_running


def test_a_leader_is_killed_once_and_the_failover_is_over_when_it_is_back_in_sync() -> None:
    with BrokerCluster(session_timeout_ms=1500) as cluster:
        Admin(Connection(cluster.bootstrap)).create_topic(EVENTS, 2)
        views: list[ClusterView] = []
        failover = Failover(0.0)
        failover.start(Servers(cluster))
        try:
            wait_until(lambda: len(failover.view.partitions) == 2, "the partitions")
            leader = cluster.leader_of(EVENTS)
            assert failover.is_over
            failover.begin(views.append)
            wait_until(lambda: not cluster.brokers[leader].is_running, "the kill")
            assert not failover.is_over
            cluster.wait_for_leader(EVENTS, other_than=leader)
            wait_until(lambda: not failover.view.is_whole, "the failover in the view")
            cluster.start(leader)
            wait_until(lambda: failover.is_over, "all replicas in sync", 60)
        finally:
            failover.stop()
        told = "\n".join(views[-1].happenings)
        assert told.count("kill -9 of broker") == 1
        assert f"kill -9 of broker {leader}, the leader of {EVENTS}-0" in told
        assert f"in place of broker {leader}" in told or "in place of nobody" in told
        assert told.endswith("in sync: 1, 2, 3")
