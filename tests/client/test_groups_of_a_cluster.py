"""ConsumerGroups when the coordinators of groups move and fail."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from skylog.client import Admin, ClusterAdmin, Connection, ConsumerGroups, ResetTo, offset_commits
from skylog.model import CONSUMER_OFFSETS_TOPIC, TopicPartition
from skylog.testing import BrokerCluster, wait_until

TIMEOUT_S = 2.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    with BrokerCluster(3, {"offsets.topic.num.partitions": "1"}) as cluster:
        Admin(cluster.bootstrap).create_topic("orders", 1, 3)
        yield cluster


@pytest.fixture
def groups(cluster: BrokerCluster) -> ConsumerGroups:
    """A client that has seen the group `readers`, and so knows its coordinator."""
    groups = ConsumerGroups(Connection(cluster.bootstrap, timeout_s=TIMEOUT_S))
    groups.reset(groups.plan_reset("readers", ResetTo.EARLIEST, wanted={"orders": None}))
    assert names(groups) == ["readers"]
    return groups


def names(groups: ConsumerGroups) -> list[str]:
    return [group.name for group in groups.list_groups()]


def test_a_group_is_found_at_its_new_coordinator(cluster: BrokerCluster, groups: ConsumerGroups) -> None:
    """librdkafka crashes if it asks the former coordinator for offsets."""
    offsets = TopicPartition(CONSUMER_OFFSETS_TOPIC, 0)
    for _ in range(3):
        former = cluster.leader_of(*offsets)
        ClusterAdmin(cluster.bootstrap).make_leader(offsets, former % 3 + 1)
        wait_until(lambda: names(groups) == ["readers"], "the coordinator to load the group")
        assert groups.describe_groups(["readers"])[0].partitions[0].committed_offset == 0
        assert groups.committed_metadata() == {}


def test_groups_are_not_waited_for_each_time_after_their_coordinator_is_gone(
    cluster: BrokerCluster, groups: ConsumerGroups
) -> None:
    coordinator = cluster.leader_of(CONSUMER_OFFSETS_TOPIC)
    cluster.kill(coordinator)
    groups.list_groups()
    cluster.wait_for_leader(CONSUMER_OFFSETS_TOPIC, other_than=coordinator)
    wait_until(lambda: names(groups) == ["readers"], "the new coordinator to load the group")
    began = time.monotonic()
    assert names(groups) == ["readers"]
    assert time.monotonic() - began < TIMEOUT_S
    cluster.start(coordinator)
    cluster.wait_until_in_sync(CONSUMER_OFFSETS_TOPIC)


def test_a_reset_goes_to_the_next_coordinator_when_its_own_dies_meanwhile(
    cluster: BrokerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = ConsumerGroups(Connection(cluster.bootstrap, timeout_s=30))
    plan = groups.plan_reset("late", ResetTo.EARLIEST, wanted={"orders": None})
    coordinator = cluster.leader_of(CONSUMER_OFFSETS_TOPIC)
    commit, attempts = offset_commits.commit_offsets, []

    def kill_and_commit(*args: Any) -> Any:
        attempts.append(args)
        if len(attempts) == 1:
            cluster.kill(coordinator)
        return commit(*args)

    monkeypatch.setattr(offset_commits, "commit_offsets", kill_and_commit)
    groups.reset(plan)
    assert len(attempts) > 1
    assert groups.describe_groups(["late"])[0].partitions[0].committed_offset == 0
    cluster.start(coordinator)
    cluster.wait_until_in_sync(CONSUMER_OFFSETS_TOPIC)
