"""`skylog cluster describe`, `elect`, `reassign`, `drain` and `registry`, with a cluster of real brokers."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator

import pytest

from skylog import Consumer
from skylog.client import Admin, ClusterAdmin, ConsumerGroups
from skylog.model import TopicPartition
from skylog.testing import BrokerCluster, produce, wait_until
from tests.broker_views import wait_until_known
from tests.cli.conftest import Skylog


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    with BrokerCluster(4, broker_settings={1: {"broker.rack": "a"}, 2: {"broker.rack": "b"}}) as cluster:
        yield cluster


@pytest.fixture
def skylog(cluster: BrokerCluster) -> Skylog:
    return Skylog(cluster.bootstrap)


@pytest.fixture
def orders(cluster: BrokerCluster, topic: str) -> str:
    """A new topic: its partition 0 has replicas on the brokers 1, 2 and 3, of which 1 leads; it has some data."""
    Admin(cluster.bootstrap).create_topic(topic, 1, 3)
    move(cluster, topic, 1, 2, 3)
    ClusterAdmin(cluster.bootstrap).elect_leaders([TopicPartition(topic, 0)])
    wait_until_known(cluster, topic)
    produce(cluster.bootstrap, topic, ["x" * 1000] * 100)
    return topic


def move(cluster: BrokerCluster, topic: str, *replicas: int) -> None:
    ClusterAdmin(cluster.bootstrap).reassign({TopicPartition(topic, 0): replicas})
    wait_until(lambda: cluster.partition(topic).replicas == replicas, "the reassignment")
    wait_until_known(cluster, topic)


# -- describe


def test_describe_lists_the_brokers_and_a_summary(skylog: Skylog, cluster: BrokerCluster, orders: str) -> None:
    printed = skylog("cluster", "describe").stdout
    assert "4 of 4 brokers are live" in printed
    assert all(cluster.address(node_id) in printed for node_id in cluster.brokers)
    assert ", 0 under-replicated, 0 offline" in printed
    assert orders not in printed
    listed = skylog("cluster", "describe", "--topics", "--partitions").stdout.splitlines()
    assert any(line.split() == [orders, "1", "3", "0", "0"] for line in listed)
    assert any(line.split()[:4] == [orders, "0", "1", "1,2,3"] for line in listed)


def test_describe_as_json_has_everything(skylog: Skylog, orders: str) -> None:
    document = skylog.json("cluster", "describe", "--json")
    assert [(row["node_id"], row["live"], row["rack"]) for row in document["brokers"]] == [
        (1, True, "a"),
        (2, True, "b"),
        (3, True, None),
        (4, True, None),
    ]
    assert document["controller_id"] in (1, 2, 3, 4)
    [partition] = [row for row in document["partitions"] if row["topic"] == orders]
    assert (partition["leader"], partition["preferred_leader"], partition["replicas"]) == (1, 1, [1, 2, 3])
    assert [row["partitions"] for row in document["topics"] if row["topic"] == orders] == [1]
    assert document["reassignments"] == []


def test_describe_says_when_the_brokers_only_know_how_the_cluster_was(skylog: Skylog, cluster: BrokerCluster) -> None:
    for node_id in cluster.brokers:
        cluster.store.cut(f"broker-{node_id}")
    wait_until(lambda: "there is no controller" in skylog("cluster", "describe").stderr, "the sessions to expire")
    for node_id in cluster.brokers:
        cluster.store.heal(f"broker-{node_id}")
    wait_until(lambda: "there is no controller" not in skylog("cluster", "describe").stderr, "a controller")


def test_describe_names_the_broker_that_a_partition_without_a_leader_waits_for() -> None:
    """Broker 2 was stopped last, but a start after a clean stop counts as one after a crash."""
    with BrokerCluster(2, settings={"default.replication.factor": "2", "min.insync.replicas": "2"}) as cluster:
        produce(cluster.bootstrap, "letters", ["a"])
        wait_until(lambda: len(cluster.partition("letters").in_sync_replicas) == 2, "both in sync")
        cluster.stop(1)
        cluster.stop(2)
        cluster.start(2)
        skylog = Skylog(cluster.address(2))
        assert "offline until broker 1 is back" in " ".join(skylog("cluster", "describe").stdout.split())
        cluster.start(1)
        wait_until(lambda: "0 offline" in skylog("cluster", "describe").stdout, "a leader")


def test_describe_names_the_partitions_and_brokers_with_problems(
    skylog: Skylog, cluster: BrokerCluster, orders: str
) -> None:
    cluster.kill(3)
    wait_until(lambda: 3 not in cluster.partition(orders).in_sync_replicas, "the in-sync set to shrink")
    printed = skylog("cluster", "describe").stdout
    assert "3 of 4 brokers are live" in printed
    assert any(line.split()[:2] == ["3", "missing"] for line in printed.splitlines())
    [line] = [line for line in printed.splitlines() if line.startswith(orders)]
    assert "broker 3 missing" in line
    refused = skylog("cluster", "elect", "--topic", orders, "--partition", 0, "--leader", 3, code=1).stderr
    assert "is not in sync; start the broker" in refused
    cluster.start(3)
    cluster.wait_until_in_sync(orders)


def test_describe_works_with_a_single_broker(bootstrap: str) -> None:
    alone = Skylog(bootstrap)
    assert "1 of 1 brokers are live" in alone("cluster", "describe").stdout
    assert "no election was needed" in alone("cluster", "elect").stderr
    assert [row["broker"] for row in alone.json("cluster", "registry", "--json")["brokers"]] == [1]


# -- elect


def test_elect_moves_leaders_back_to_the_preferred_replicas(
    skylog: Skylog, cluster: BrokerCluster, orders: str
) -> None:
    move(cluster, orders, 2, 1, 3)
    assert cluster.leader_of(orders) == 1
    result = skylog("cluster", "elect")
    assert any(line.split()[:4] == [orders, "0", "1", "2"] for line in result.stdout.splitlines())
    assert "1 leader moved" in result.stderr
    assert cluster.leader_of(orders) == 2
    assert "no election was needed" in skylog("cluster", "elect", "--topic", orders).stderr


def test_elect_makes_a_named_broker_the_leader(skylog: Skylog, cluster: BrokerCluster, orders: str) -> None:
    assert skylog.json("cluster", "elect", "--topic", orders, "--partition", 0, "--leader", 3, "--json") == [
        {"topic": orders, "partition": 0, "from_leader": 1, "to_leader": 3, "error": None}
    ]
    assert cluster.leader_of(orders) == 3


def test_elect_rejects_options_that_do_not_go_together(skylog: Skylog) -> None:
    assert "needs --topic" in skylog("cluster", "elect", "--partition", 0, code=2).stderr
    assert "one --partition" in skylog("cluster", "elect", "--topic", "t", "--leader", 1, code=2).stderr


def test_an_unclean_election_must_be_confirmed_and_gives_an_offline_partition_a_leader(
    skylog: Skylog, cluster: BrokerCluster, orders: str
) -> None:
    Admin(cluster.bootstrap).alter_configs(orders, {"min.insync.replicas": "1"})
    move(cluster, orders, 3, 4)
    cluster.kill(4)
    wait_until(lambda: cluster.partition(orders).in_sync_replicas == (3,), "the in-sync set to shrink")
    cluster.kill(3)
    wait_until(lambda: cluster.leader_of(orders) == -1, "the leader to be gone")
    cluster.start(4)
    assert "1 offline" in skylog("cluster", "describe").stdout
    assert "can lose messages" in skylog("cluster", "elect", "--unclean", code=1).stderr
    assert "find-hanging" in skylog("cluster", "elect", "--unclean", "--topic", orders, "--yes").stderr
    assert cluster.leader_of(orders) == 4
    cluster.start(3)
    cluster.wait_until_in_sync(orders)


# -- reassign


def test_reassign_shows_the_plan_and_moves_the_replicas(skylog: Skylog, cluster: BrokerCluster, orders: str) -> None:
    options = ("cluster", "reassign", "--topic", orders, "--brokers", "2,4", "--replication-factor", 2)
    planned = skylog(*options, "--dry-run")
    assert any(line.split()[:3] == [orders, "0", "1,2,3"] for line in planned.stdout.splitlines())
    assert "dry run: nothing was changed" in planned.stderr
    assert cluster.partition(orders).replicas == (1, 2, 3)
    assert "1 partition moved" in skylog(*options).stderr
    assert sorted(cluster.partition(orders).replicas) == [2, 4]
    assert "nothing to move" in skylog(*options).stderr


def test_reassign_as_json_has_the_moves(skylog: Skylog, cluster: BrokerCluster, orders: str) -> None:
    document = skylog.json(
        "cluster", "reassign", "--topic", orders, "--brokers", "1,2", "--replication-factor", 2, "--json"
    )
    assert document == {
        "dry_run": False,
        "complete": True,
        "moves": [{"topic": orders, "partition": 0, "from_replicas": [1, 2, 3], "to_replicas": [1, 2]}],
        "abandoned": [],
    }


@pytest.mark.parametrize(
    ("options", "reason", "code"),
    [
        (["--brokers", "1,2"], "choose the topics", 2),
        (["--topic", "no-such-topic"], "there is no topic 'no-such-topic'", 1),
        (["--all-topics", "--brokers", "1,9"], "there is no broker 9", 1),
        (["--all-topics", "--brokers", "1,x"], "expected numbers such as 1,2,3", 2),
        (["--all-topics", "--throttle", "fast"], "use a form such as 50MB", 2),
        (["--all-topics", "--replication-factor", "5"], "needs 5 brokers for 5 replicas; there are 4", 1),
    ],
)
def test_what_reassign_cannot_do_is_an_error_that_says_why(
    skylog: Skylog, orders: str, options: list[str], reason: str, code: int
) -> None:
    assert reason in skylog("cluster", "reassign", *options, code=code).stderr


def test_reassign_without_waiting_says_how_to_wait_and_to_cancel(
    skylog: Skylog, cluster: BrokerCluster, orders: str
) -> None:
    cluster.cut_link(4, 1)
    try:
        options = ("--topic", orders, "--brokers", "1,2,4", "--throttle", "50MB")
        began = skylog("cluster", "reassign", *options, "--no-wait").stderr
        assert "to wait for the end and remove the throttle: skylog cluster reassign --topic" in began
        assert f"to cancel it: skylog cluster reassign --topic {orders} --cancel" in began
        assert "1 being reassigned" in skylog("cluster", "describe").stdout
        assert is_throttled(cluster, orders)
        other = skylog("cluster", "reassign", "--topic", orders, "--brokers", "1,3,4", "--no-wait").stderr
        assert "1 partition being reassigned to other brokers: this replaces it" in other
        cancelled = skylog("cluster", "reassign", "--topic", orders, "--cancel")
        assert "cancelled the reassignment of 1 partition" in cancelled.stderr
    finally:
        cluster.heal_link(4, 1)
    assert sorted(cluster.partition(orders).replicas) == [1, 2, 3]
    assert not is_throttled(cluster, orders)


def test_the_throttle_is_removed_at_the_end_even_if_nobody_waited_for_it(
    skylog: Skylog, cluster: BrokerCluster, orders: str
) -> None:
    options = ("cluster", "reassign", "--topic", orders, "--brokers", "1,2,4", "--throttle", "50MB")
    skylog(*options, "--no-wait")
    wait_until(lambda: set(cluster.partition(orders).in_sync_replicas) == {1, 2, 4}, "the reassignment")
    assert is_throttled(cluster, orders)
    skylog(*options)
    assert not is_throttled(cluster, orders)


def is_throttled(cluster: BrokerCluster, topic: str) -> bool:
    configs = Admin(cluster.bootstrap).describe_configs(topic)
    return any(each.value for each in configs if "throttled" in each.name)


def test_ctrl_c_ends_the_waiting_and_the_same_command_waits_again(
    skylog: Skylog, cluster: BrokerCluster, orders: str
) -> None:
    options = ("cluster", "reassign", "--topic", orders, "--brokers", "1,2,4")
    cluster.cut_link(4, 1)
    try:
        with skylog.start(*options, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as waiting:
            wait_until(lambda: cluster.partition(orders).is_reassigned, "the reassignment to begin")
            waiting.send_signal(signal.SIGINT)
            _, printed = waiting.communicate(timeout=30)
        assert waiting.returncode == 130
        assert f"to wait for the end: skylog cluster reassign --topic {orders} --brokers 1,2,4" in printed
        assert cluster.partition(orders).is_reassigned
        with skylog.start(*options, stderr=subprocess.PIPE, text=True) as again:
            assert again.stderr is not None
            assert again.stderr.readline() == "1 partition being reassigned already\n"
            cluster.heal_link(4, 1)
            assert "1 partition moved" in again.communicate(timeout=30)[1]
        assert again.returncode == 0
    finally:
        cluster.heal_link(4, 1)
    assert sorted(cluster.partition(orders).replicas) == [1, 2, 4]


# -- drain


def test_drain_moves_everything_off_a_broker(skylog: Skylog, cluster: BrokerCluster, orders: str) -> None:
    assert "1,4,3" in skylog("cluster", "drain", 2, "--throttle", "50MB", "--dry-run").stdout
    assert cluster.partition(orders).replicas == (1, 2, 3)
    assert "broker 2 has no replicas; you can stop it" in skylog("cluster", "drain", 2, "--throttle", "50MB").stderr
    assert cluster.partition(orders).replicas == (1, 4, 3)
    assert not is_throttled(cluster, orders)
    assert [row["replicas"] for row in skylog.json("cluster", "describe", "--json")["brokers"]][1] == 0
    assert "broker 2 has no replicas" in skylog("cluster", "drain", 2).stderr


def test_drain_says_what_cannot_be_copied_off_a_broker_that_is_gone(
    skylog: Skylog, cluster: BrokerCluster, orders: str
) -> None:
    move(cluster, orders, 3)
    cluster.kill(3)
    wait_until(lambda: cluster.leader_of(orders) == -1, "the leader to be gone")
    with skylog.start("cluster", "drain", "3", stderr=subprocess.PIPE, text=True) as waiting:
        assert waiting.stderr is not None
        lines = iter(waiting.stderr.readline, "")
        assert any(f"without a leader, and not copied before there is one: {orders}-0; start" in line for line in lines)
        skylog("cluster", "elect", "--unclean", "--topic", orders, "--yes")
        assert "broker 3 has no replicas; you can stop it" in waiting.communicate(timeout=30)[1]
    assert waiting.returncode == 0
    cluster.start(3)


def test_drain_needs_enough_other_brokers(skylog: Skylog, cluster: BrokerCluster, orders: str) -> None:
    skylog("cluster", "reassign", "--topic", orders, "--replication-factor", 4)
    refused = skylog("cluster", "drain", 2, code=1).stderr
    assert "broker 2 cannot be drained" in refused
    assert "--replication-factor" in refused
    assert "there is no broker 9; the brokers are 1, 2, 3, 4" in skylog("cluster", "drain", 9, code=1).stderr
    skylog("cluster", "reassign", "--topic", orders, "--replication-factor", 1)


# -- registry


def test_the_registry_has_brokers_consumers_owners_and_offsets(
    skylog: Skylog, cluster: BrokerCluster, orders: str
) -> None:
    group = f"readers-of-{orders}"
    with Consumer(orders, group, cluster.bootstrap, commit="manual") as consumer:
        wait_until(lambda: consumer.consume(10, 1), "messages")
        consumer.commit()
        document = skylog.json("cluster", "registry", "--json")
        printed = skylog("cluster", "registry").stdout
    [member] = [row for row in document["consumers"] if row["group"] == group]
    assert (member["topics"], member["host"]) == ([orders], "127.0.0.1")
    assert {"group": group, "topic": orders, "partition": 0, "member_id": member["member_id"]} in document["owners"]
    [offset] = [row for row in document["offsets"] if row["group"] == group]
    assert offset["offset"] > 0
    assert offset["offset"] + offset["lag"] == 100
    assert [(row["broker"], row["topics"].get(orders)) for row in document["brokers"]] == [
        (1, [0]),
        (2, [0]),
        (3, [0]),
        (4, None),
    ]
    assert [line.split()[0] for line in printed.splitlines() if "  in the " in line] == [
        "brokers",
        "consumers",
        "owners",
        "offsets",
    ]
    assert member["member_id"] in printed
    ConsumerGroups(cluster.bootstrap).delete_groups([group])
