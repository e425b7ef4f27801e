"""The driver's view of a cluster, while the cluster is away."""

import pytest

from skylog.client import Admin, BrokerUnreachableError
from skylog.model import TopicPartition
from skylog.spark.reading.cluster import Cluster
from skylog.testing import BrokerProcess


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


def test_options_that_librdkafka_does_not_know_are_ignored(skylog_broker: BrokerProcess, skylog_topic: str) -> None:
    cluster = Cluster({"bootstrap.servers": skylog_broker.bootstrap, "max.block.ms": "1000", "batch.size.java": "1"})
    assert skylog_topic in cluster.topics()
