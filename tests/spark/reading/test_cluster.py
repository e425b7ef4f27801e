"""The driver's view of a cluster, while the cluster or one of its brokers is away."""

import pytest

from skylog.client import Admin, BrokerUnreachableError
from skylog.model import TopicPartition
from skylog.spark.reading.cluster import Cluster
from skylog.testing import BrokerCluster, BrokerProcess, wait_until


def test_the_offsets_of_a_cluster_that_went_away_are_reported_as_unreachable() -> None:
    """librdkafka knows that the leader is gone, and fails at once with an error that names no broker."""
    partition = TopicPartition("away", 0)
    with BrokerProcess() as broker:
        Admin(broker.bootstrap).create_topic("away", partitions=1)
        cluster = Cluster({"bootstrap.servers": broker.bootstrap})
        assert cluster.latest([partition]) == {partition: 0}
        broker.kill()
        with pytest.raises(BrokerUnreachableError):
            cluster.latest([partition])


def test_the_offsets_of_a_partition_whose_leader_was_killed_are_those_of_the_next_one() -> None:
    """A query of many jobs must not end because a broker does."""
    partition = TopicPartition("led", 0)
    with BrokerCluster(3) as brokers:
        Admin(brokers.bootstrap).create_topic("led", partitions=1, replication_factor=3)
        wait_until(lambda: len(brokers.partition("led").in_sync_replicas) == 3, "three replicas in sync")
        cluster = Cluster({"bootstrap.servers": brokers.bootstrap})
        for _ in range(2):
            brokers.kill(brokers.partition("led").leader)
            assert cluster.latest([partition]) == {partition: 0}


def test_options_that_librdkafka_does_not_know_are_ignored(skylog_broker: BrokerProcess, skylog_topic: str) -> None:
    cluster = Cluster({"bootstrap.servers": skylog_broker.bootstrap, "max.block.ms": "1000", "batch.size.java": "1"})
    assert skylog_topic in cluster.topics()
