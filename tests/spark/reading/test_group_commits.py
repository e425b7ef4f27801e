"""Commits for a group without members, with a broker that restarts."""

from __future__ import annotations

import pytest

from skylog import Admin
from skylog.client import BrokerUnreachableError, ConsumerGroups
from skylog.model import TopicPartition
from skylog.spark.reading.cluster import Cluster
from skylog.testing import BrokerProcess, produce, wait_until

KEY = TopicPartition("away", 0)
ROUNDS = 5  # librdkafka's admin client aborts the process in the second or third


def is_committed(cluster: Cluster, offset: int) -> bool:
    try:
        cluster.commit("group", {KEY: offset})
    except BrokerUnreachableError:
        return False
    return True


def test_a_broker_that_goes_away_and_comes_back_gets_the_next_commit() -> None:
    with BrokerProcess() as broker:
        Admin(broker.bootstrap).create_topic("away", partitions=1)
        produce(broker.bootstrap, "away", ["x"] * ROUNDS)
        cluster = Cluster({"bootstrap.servers": broker.bootstrap})
        for offset in range(1, ROUNDS + 1):
            wait_until(lambda: is_committed(cluster, offset), "a commit", 60)  # noqa: B023
            [group] = ConsumerGroups(broker.bootstrap).describe_groups(["group"])
            assert [each.committed_offset for each in group.partitions] == [offset]
            broker.kill()
            with pytest.raises(BrokerUnreachableError):
                cluster.commit("group", {KEY: offset - 1})
            broker.start()
