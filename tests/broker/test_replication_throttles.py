"""Throttled replicas are copied at the rate of their broker until they are in sync; the others are not slowed down."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from skylog.broker.replication.throttles import names_replica
from skylog.errors import ErrorCode
from skylog.model import TopicPartition
from skylog.protocol.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)

from .local_cluster import LocalCluster
from .process import until
from .raw import batch_of
from .test_broker_configs import change
from .test_configs import DELETE, SET, alter_one

BATCH_BYTES = 10_000
BATCHES = 30
RATE = 100_000
AT_LEAST_S = BATCHES * BATCH_BYTES / RATE - 2  # a second in advance, and a last piece of up to a second
FOLLOWER, LEADER = "follower.replication.throttled", "leader.replication.throttled"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("cluster"), 3) as cluster:
        yield cluster


@pytest.fixture
def rates(cluster: LocalCluster) -> Iterator[None]:
    """Delete the rates when a test ends."""
    yield
    for name in ("", "1", "2", "3"):
        for key in (f"{FOLLOWER}.rate", f"{LEADER}.rate"):
            assert change(cluster.client(1), name, (key, DELETE, None)) == 0


def set_rate(cluster: LocalCluster, key: str, node_id: int, rate: int) -> None:
    """Set a rate on a broker, and wait until it is in force."""
    assert change(cluster.client(node_id), str(node_id), (f"{key}.rate", SET, str(rate))) == 0


def fill(cluster: LocalCluster, topic: str, partition: int = 0) -> None:
    for _ in range(BATCHES):
        assert cluster.client(1).produce(topic, batch_of(bytes(BATCH_BYTES)), partition=partition).error_code == 0


def reassign(cluster: LocalCluster, topic: str, *targets: list[int]) -> None:
    rows = [ReassignablePartition(partition_index=index, replicas=target) for index, target in enumerate(targets)]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=rows)])
    (result,) = cluster.client(1).ask(request, 0).responses
    assert {each.error_code for each in result.partitions} == {ErrorCode.NONE}


def is_in_sync(cluster: LocalCluster, topic: str, node_id: int, partition: int = 0) -> bool:
    return node_id in cluster.partition(topic, partition).in_sync_replicas


@pytest.mark.usefixtures("rates")
@pytest.mark.parametrize(("key", "throttled", "limited"), [(FOLLOWER, "0:2,7:3", 2), (LEADER, "0:1", 1)])
def test_a_named_replica_is_copied_at_the_rate_and_others_are_not_slowed_down(
    cluster: LocalCluster, key: str, throttled: str, limited: int
) -> None:
    slow, fast = f"slow-{limited}", f"fast-{limited}"
    for topic in (slow, fast):
        cluster.create(topic, [1])
        fill(cluster, topic)
    set_rate(cluster, key, limited, RATE)
    assert alter_one(cluster.client(1), slow, [(f"{key}.replicas", SET, throttled)]).error_code == 0
    began = time.monotonic()
    reassign(cluster, slow, [1, 2])
    reassign(cluster, fast, [1, 2])
    until(lambda: is_in_sync(cluster, fast, 2), "the other topic")
    assert not is_in_sync(cluster, slow, 2)
    until(lambda: is_in_sync(cluster, slow, 2), "the throttled topic")
    assert time.monotonic() - began >= AT_LEAST_S


@pytest.mark.usefixtures("rates")
def test_the_rate_is_that_of_all_partitions_together(cluster: LocalCluster) -> None:
    cluster.create("many", *[[1]] * 10, follower_replication_throttled_replicas="*")
    for partition in range(10):
        batch = batch_of(bytes(BATCH_BYTES * BATCHES // 10))
        assert cluster.client(1).produce("many", batch, partition=partition).error_code == 0
    set_rate(cluster, FOLLOWER, 3, RATE)
    began = time.monotonic()
    reassign(cluster, "many", *[[1, 3]] * 10)
    until(lambda: all(is_in_sync(cluster, "many", 3, partition) for partition in range(10)), "all partitions")
    assert time.monotonic() - began >= AT_LEAST_S


@pytest.mark.usefixtures("rates")
@pytest.mark.parametrize("key", [FOLLOWER, LEADER])
@pytest.mark.parametrize("how", ["rate", "replicas"])
def test_a_throttle_that_is_lifted_has_no_effect_any_more(cluster: LocalCluster, key: str, how: str) -> None:
    topic = f"lifted-{key}-{how}"
    cluster.create(topic, [1])
    limited = 2 if key == FOLLOWER else 1
    set_rate(cluster, key, limited, 0)
    assert alter_one(cluster.client(1), topic, [(f"{key}.replicas", SET, "*")]).error_code == 0
    until(lambda: cluster.client(1).topic(topic).error_code == 0, "the topic")
    fill(cluster, topic)
    reassign(cluster, topic, [1, 2])
    time.sleep(0.2)
    assert not is_in_sync(cluster, topic, 2)
    if how == "rate":
        assert change(cluster.client(1), str(limited), (f"{key}.rate", DELETE, None)) == 0
    else:
        assert alter_one(cluster.client(2), topic, [(f"{key}.replicas", DELETE, None)]).error_code == 0
    until(lambda: is_in_sync(cluster, topic, 2), "the replica")


@pytest.mark.usefixtures("rates")
def test_a_rate_is_in_force_for_partitions_that_are_being_copied_already(cluster: LocalCluster) -> None:
    cluster.create(
        "copied", [1], follower_replication_throttled_replicas="*", leader_replication_throttled_replicas="*"
    )
    fill(cluster, "copied")
    set_rate(cluster, LEADER, 1, 0)  # it is not in sync before the other rate is set
    reassign(cluster, "copied", [1, 2])
    fetchers = cluster.brokers[2].membership.fetchers  # type: ignore[attr-defined]
    until(lambda: TopicPartition("copied", 0) in fetchers._leaders, "the copy to begin")

    def throttled() -> int:
        return cluster.look(2, lambda _: sum(len(each._throttle.taken) for each in fetchers._fetchers.values()))

    assert throttled() == 0
    set_rate(cluster, FOLLOWER, 2, RATE)
    assert throttled() == 1
    assert change(cluster.client(2), "2", (f"{FOLLOWER}.rate", DELETE, None)) == 0
    assert throttled() == 0


@pytest.mark.usefixtures("rates")
@pytest.mark.parametrize("key", [FOLLOWER, LEADER])
def test_replicas_in_sync_are_not_throttled(cluster: LocalCluster, key: str) -> None:
    topic = f"in-sync-{key}"
    cluster.create(topic, [1, 2])
    for node_id in (1, 2):
        set_rate(cluster, key, node_id, 0)
    assert alter_one(cluster.client(1), topic, [(f"{key}.replicas", SET, "*")]).error_code == 0
    fill(cluster, topic)
    assert cluster.client(1).end_offset(topic) == BATCHES


def test_a_replica_is_named_by_partition_and_broker_or_by_a_star() -> None:
    assert names_replica(("*",), 3, 1)
    assert names_replica(("0:1", "3:1"), 3, 1)
    assert not names_replica(("3:2", "1:3", "13:1", "3:11"), 3, 1)
    assert not names_replica((), 3, 1)
