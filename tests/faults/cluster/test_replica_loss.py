"""What a replica may become that has lost its data, or missed what happened to its topic while it was away."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from skylog.cluster.image import NO_LEADER
from skylog.testing import consume, produce, wait_until
from tests.patience import patience

from .nemesis import SESSION_MS
from .power import MachineCluster, new_machines
from .replica_logs import wait_until_identical
from .workload import create_topic

ALL = {1, 2, 3}
SOON_S = 3 * SESSION_MS / 1000


@pytest.fixture(scope="module")
def cluster() -> Iterator[MachineCluster]:
    """Every test leaves it complete."""
    with new_machines() as cluster:
        yield cluster


def values(cluster: MachineCluster, topic: str, count: int) -> list[bytes | None]:
    return [message.value for message in consume(cluster.bootstrap, topic, count, timeout_s=patience(20))]


def alter(cluster: MachineCluster, topic: str, key: str, value: str) -> None:
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(patience(20))


def assert_led_by(cluster: MachineCluster, topic: str, allowed: Collection[int]) -> None:
    """For longer than any session lasts."""
    until = time.monotonic() + SOON_S
    while time.monotonic() < until:
        assert cluster.leader_of(topic) in allowed
        time.sleep(0.05)


def test_a_broker_with_an_empty_disk_does_not_lead_though_it_is_the_only_one(cluster: MachineCluster) -> None:
    create_topic(cluster.bootstrap, "alone", 1)
    produce(cluster.bootstrap, "alone", ["a", "b"])
    cluster.wait_until_in_sync("alone")
    empty = cluster.leader_of("alone")
    cluster.kill(*ALL - {empty})
    cluster.machine(empty).lose_disk()
    cluster.start(empty)
    # Until the sessions of the others have ended, one of them may be elected.
    assert_led_by(cluster, "alone", {NO_LEADER, *ALL} - {empty})
    assert cluster.leader_of("alone") == NO_LEADER
    cluster.start()
    assert cluster.wait_for_leader("alone", seconds=patience(20)) != empty
    produce(cluster.bootstrap, "alone", ["c"])
    assert values(cluster, "alone", 3) == [b"a", b"b", b"c"]
    cluster.wait_until_in_sync("alone", seconds=patience(20))


def test_only_an_unclean_election_makes_a_replica_lead_that_may_lack_something(cluster: MachineCluster) -> None:
    create_topic(cluster.bootstrap, "unclean", 1, min_insync_replicas="1")
    produce(cluster.bootstrap, "unclean", ["a"])
    cluster.wait_until_in_sync("unclean")
    preferred = cluster.leader_of("unclean")
    cluster.kill(preferred)  # it has what was there before, and is elected if that is allowed
    last = cluster.wait_for_leader("unclean", other_than=preferred, seconds=patience(20))
    cluster.kill(*ALL - {preferred, last})
    cluster.wait_until_in_sync("unclean", replicas={last}, seconds=patience(20))
    produce(cluster.bootstrap, "unclean", ["only here"])
    cluster.machine(last).lose_disk()
    cluster.start()
    assert_led_by(cluster, "unclean", {NO_LEADER})
    alter(cluster, "unclean", "unclean.leader.election.enable", "true")
    assert cluster.wait_for_leader("unclean", seconds=patience(20)) != last
    produce(cluster.bootstrap, "unclean", ["b"])
    assert values(cluster, "unclean", 2) == [b"a", b"b"]
    cluster.wait_until_in_sync("unclean", seconds=patience(20))
    wait_until_identical({node: broker.data_dir for node, broker in cluster.brokers.items()}, ["unclean"])


def test_a_topic_that_is_deleted_while_a_replica_is_away_stays_deleted(cluster: MachineCluster) -> None:
    for topic in ("deleted", "recreated"):
        create_topic(cluster.bootstrap, topic, 2)
        produce(cluster.bootstrap, topic, ["old"] * 20, partition=0)
        produce(cluster.bootstrap, topic, ["old"] * 20, partition=1)
        cluster.wait_until_in_sync(topic)
    away = cluster.leader_of("recreated")
    folder = cluster.brokers[away].data_dir
    cluster.kill(away)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for future in admin.delete_topics(["deleted", "recreated"]).values():
        future.result(patience(20))
    wait_until(lambda: not {"deleted", "recreated"} & set(admin.list_topics(timeout=10).topics), "the deletion")
    admin.poll(0)
    assert (folder / "deleted-0").is_dir()
    cluster.start(away)
    create_topic(cluster.bootstrap, "recreated", 1)
    produce(cluster.bootstrap, "recreated", ["new"])
    cluster.wait_until_in_sync("recreated", seconds=patience(20))
    assert values(cluster, "recreated", 1) == [b"new"]
    wait_until(
        lambda: not (folder / "deleted-0").exists(),
        f"the folder to be removed; topics: {[*admin.list_topics(timeout=10).topics]}",
    )
    wait_until(lambda: not (folder / "recreated-1").exists(), "the folder to be removed")
    wait_until_identical({node: broker.data_dir for node, broker in cluster.brokers.items()}, ["recreated"])
    assert not [name for name in admin.list_topics(timeout=10).topics if name == "deleted"]
