"""A cluster in the tests of another project: its brokers are started, killed, paused and cut off."""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Iterator

import pytest

from skylog.client import Admin, Connection
from skylog.testing import BrokerCluster, BrokerProcessError, consume, produce, wait_until


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    """Every test leaves it complete."""
    with BrokerCluster(session_timeout_ms=1000) as cluster:
        yield cluster


def create(cluster: BrokerCluster, topic: str) -> int:
    """Create a topic with one partition on all brokers; return its leader."""
    admin(cluster.bootstrap).create_topic(topic, 1, len(cluster.brokers))
    return cluster.wait_for_leader(topic)


def admin(bootstrap: str) -> Admin:
    return Admin(Connection(bootstrap))


def values(cluster: BrokerCluster, topic: str, count: int) -> list[bytes | None]:
    return [message.value for message in consume(cluster.bootstrap, topic, count, timeout_s=20)]


def connect(cluster: BrokerCluster, node_id: int, client_id: str) -> socket.socket:
    """Send the head of a request through the proxy of a broker."""
    host, _, port = cluster.address(node_id).rpartition(":")
    connection = socket.create_connection((host, int(port)), 10)
    connection.sendall(struct.pack(">ihhih", 100, 18, 3, 0, len(client_id)) + client_id.encode())
    return connection


def test_a_cluster_forms_and_replicates(cluster: BrokerCluster) -> None:
    leader = create(cluster, "forms")
    assert leader in {1, 2, 3}
    produce(cluster.bootstrap, "forms", ["a", "b"])
    assert values(cluster, "forms", 2) == [b"a", b"b"]
    for node_id in cluster.brokers:
        (found,) = [each for each in admin(cluster.address(node_id)).list_topics() if each.name == "forms"]
        assert (found.partitions[0].leader, set(found.partitions[0].replicas)) == (leader, {1, 2, 3})
    cluster.wait_until_in_sync("forms")
    assert set(cluster.partition("forms").replicas) == {1, 2, 3}


def test_what_does_not_exist_is_named(cluster: BrokerCluster) -> None:
    create(cluster, "small")
    with pytest.raises(LookupError, match="there is no topic 'smaller'"):
        cluster.leader_of("smaller")
    with pytest.raises(LookupError, match="topic 'small' has no partition 1"):
        cluster.leader_of("small", 1)


def test_another_broker_leads_when_the_leader_is_killed(cluster: BrokerCluster) -> None:
    leader = create(cluster, "killed")
    produce(cluster.bootstrap, "killed", ["a"])
    cluster.kill(leader)
    assert cluster.wait_for_leader("killed", other_than=leader) != leader
    produce(cluster.bootstrap, "killed", ["b"])
    cluster.wait_until_in_sync("killed", replicas={1, 2, 3} - {leader})
    cluster.start(leader)
    cluster.wait_until_in_sync("killed")
    assert values(cluster, "killed", 2) == [b"a", b"b"]


def test_a_clean_stop_moves_leaders_and_a_start_brings_the_replica_back(cluster: BrokerCluster) -> None:
    leader = create(cluster, "stopped")
    produce(cluster.bootstrap, "stopped", ["a"])
    cluster.stop(leader)
    assert cluster.wait_for_leader("stopped", other_than=leader) != leader
    produce(cluster.bootstrap, "stopped", ["b"])
    cluster.start()
    cluster.wait_until_in_sync("stopped")
    assert values(cluster, "stopped", 2) == [b"a", b"b"]


def test_a_paused_leader_is_replaced_and_follows_when_it_is_resumed(cluster: BrokerCluster) -> None:
    leader = create(cluster, "paused")
    produce(cluster.bootstrap, "paused", ["a"])
    cluster.pause(leader)
    try:
        cluster.wait_for_leader("paused", other_than=leader)
        produce(cluster.bootstrap, "paused", ["b"])
    finally:
        cluster.resume(leader)
    cluster.wait_until_in_sync("paused")
    assert values(cluster, "paused", 2) == [b"a", b"b"]


@pytest.mark.parametrize("silently", [False, True])
def test_a_leader_that_is_cut_off_is_replaced_and_follows_when_it_is_healed(
    cluster: BrokerCluster, silently: bool
) -> None:
    topic = f"cut-{silently}"
    leader = create(cluster, topic)
    produce(cluster.bootstrap, topic, ["a"])
    cluster.cut_off(leader, silently=silently)
    try:
        cluster.wait_for_leader(topic, other_than=leader)
        produce(cluster.bootstrap, topic, ["b"])
        assert cluster.brokers[leader].is_running
    finally:
        cluster.heal(leader)
    cluster.wait_until_in_sync(topic)
    assert values(cluster, topic, 2) == [b"a", b"b"]


def test_a_link_is_cut_in_one_direction(cluster: BrokerCluster) -> None:
    cluster.cut_link(1, 2)
    with connect(cluster, 2, "broker-1") as cut, connect(cluster, 2, "broker-3") as other:
        with pytest.raises(ConnectionResetError):
            cut.recv(1)
        other.settimeout(0.1)
        with pytest.raises(TimeoutError):
            other.recv(1)
    cluster.heal_link(1, 2)
    with connect(cluster, 2, "broker-1") as healed:
        healed.settimeout(0.1)
        with pytest.raises(TimeoutError):
            healed.recv(1)


def test_sessions_and_connections_live_on_while_the_test_holds_its_interpreter() -> None:
    """As librdkafka's callbacks may do for seconds: PyDLL calls C without releasing the GIL."""
    with BrokerCluster(2, session_timeout_ms=1000) as cluster:
        create(cluster, "held")
        produce(cluster.bootstrap, "held", ["a"])
        cluster.wait_until_in_sync("held")
        before = cluster.store.entries("/brokers/"), cluster.partition("held")
        ctypes.PyDLL(None).sleep(3)
        assert (cluster.store.entries("/brokers/"), cluster.partition("held")) == before


def test_settings_reach_all_brokers_and_single_ones() -> None:
    racks = {1: {"broker.rack": "east"}, 2: {"broker.rack": "west"}}
    with BrokerCluster(2, {"num.partitions": "3"}, broker_settings=racks) as cluster:
        produce(cluster.bootstrap, "letters", ["a"], partition=2)
        stored = cluster.store.entries("/brokers/")
        assert [stored[f"/brokers/{node_id}"].value["rack"] for node_id in (1, 2)] == ["east", "west"]
        addresses = {f"{entry.value['host']}:{entry.value['port']}" for entry in stored.values()}
        assert addresses == set(cluster.bootstrap.split(","))


def test_a_cluster_keeps_its_data_when_all_brokers_are_killed() -> None:
    with BrokerCluster(2, session_timeout_ms=1000) as cluster:
        create(cluster, "kept")
        produce(cluster.bootstrap, "kept", ["a"])
        cluster.wait_until_in_sync("kept")
        cluster.kill()
        assert not any(broker.is_running for broker in cluster.brokers.values())
        cluster.start()
        cluster.wait_for_leader("kept")
        assert values(cluster, "kept", 1) == [b"a"]


def test_the_error_of_a_broker_that_does_not_start_has_its_stderr_and_nothing_is_left() -> None:
    cluster = BrokerCluster(2, broker_settings={2: {"num.partitionz": "1"}})
    with pytest.raises(BrokerProcessError, match=r"num\.partitions"), cluster:
        pass
    assert not any(broker.is_running for broker in cluster.brokers.values())


def test_the_fixture_is_a_cluster(skylog_cluster: BrokerCluster) -> None:
    produce(skylog_cluster.bootstrap, "letters", ["a"])
    wait_until(lambda: len(skylog_cluster.partition("letters").in_sync_replicas) == 3, "three replicas in sync")
