"""ClusterAdmin against a cluster of real brokers."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import ConfigResource, ResourceType

from skylog.client import (
    Admin,
    BrokerUnreachableError,
    ClusterAdmin,
    Connection,
    Reassignment,
    TopicNotFoundError,
)
from skylog.errors import ConfigError, ErrorCode, KafkaError, SkylogError
from skylog.model import TopicPartition
from skylog.testing import BrokerCluster, produce, wait_until
from tests.broker_views import wait_until_known
from tests.present import present

_numbers = itertools.count()


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    with BrokerCluster(4, broker_settings={1: {"broker.rack": "a"}, 2: {"broker.rack": "b"}}) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def admin(cluster: BrokerCluster) -> ClusterAdmin:
    return ClusterAdmin(cluster.bootstrap)


@pytest.fixture
def orders(cluster: BrokerCluster, admin: ClusterAdmin) -> TopicPartition:
    """The partition of a new topic, with replicas on the brokers 1, 2 and 3, of which 1 leads."""
    name = f"orders{next(_numbers)}"
    Admin(cluster.bootstrap).create_topic(name, 1, 3)
    key = TopicPartition(name, 0)
    place(cluster, admin, key, 1, 2, 3)
    admin.elect_leaders([key])
    wait_until_known(cluster, name)
    return key


def place(cluster: BrokerCluster, admin: ClusterAdmin, key: TopicPartition, *replicas: int) -> None:
    admin.reassign({key: replicas})
    wait_until(lambda: cluster.partition(*key).replicas == replicas, "the reassignment")
    wait_until_known(cluster, key.topic)


def test_the_brokers_have_addresses_and_racks(cluster: BrokerCluster, admin: ClusterAdmin) -> None:
    found = admin.describe()
    assert [broker.address for broker in found.brokers] == [cluster.address(each) for each in (1, 2, 3, 4)]
    assert [broker.rack for broker in found.brokers] == ["a", "b", None, None]
    assert found.controller_id in found.broker_ids
    assert found.cluster_id
    assert found.reassignments_problem is None


def test_partitions_have_leaders_and_replicas(admin: ClusterAdmin, orders: TopicPartition) -> None:
    state = present(admin.describe([orders.topic]).partition(orders))
    assert (state.leader, state.replicas, sorted(state.in_sync_replicas)) == (1, (1, 2, 3), [1, 2, 3])
    assert not state.is_under_replicated


def test_the_description_of_an_unknown_topic_is_an_error(admin: ClusterAdmin) -> None:
    with pytest.raises(TopicNotFoundError):
        admin.describe(["no-such-topic"])


def test_a_killed_broker_is_missing_and_its_partitions_are_under_replicated_until_it_is_back(
    cluster: BrokerCluster, admin: ClusterAdmin, orders: TopicPartition
) -> None:
    cluster.kill(3)
    wait_until(lambda: admin.describe().missing_broker_ids == [3], "the broker to be missing")
    wait_until(lambda: admin.describe([orders.topic]).under_replicated, "the in-sync set to shrink")
    state = present(admin.describe([orders.topic]).partition(orders))
    assert (state.offline_replicas, state.missing_replicas, state.is_offline) == ((3,), (3,), False)
    with pytest.raises(SkylogError, match="broker 3 is not in sync"):
        admin.make_leader(orders, 3)
    cluster.start(3)
    wait_until(lambda: not admin.describe().problems, "the broker to catch up")


def test_a_cluster_whose_controller_is_gone_is_described_at_once(
    cluster: BrokerCluster, admin: ClusterAdmin, orders: TopicPartition
) -> None:
    controller = admin.describe().controller_id
    cluster.kill(controller)
    began = time.monotonic()
    found = admin.describe()
    assert time.monotonic() - began < 15
    assert [broker.rack for broker in found.brokers if broker.node_id in (1, 2)][:1] in (["a"], ["b"])
    wait_until(lambda: admin.describe().controller_id in admin.describe().broker_ids, "another controller")
    cluster.start(controller)
    wait_until(lambda: not admin.describe().problems, "the broker to catch up")


# -- leaders


def test_the_preferred_replica_leads_again_after_an_election(
    cluster: BrokerCluster, admin: ClusterAdmin, orders: TopicPartition
) -> None:
    place(cluster, admin, orders, 2, 3, 1)
    assert cluster.leader_of(*orders) == 1
    [election] = admin.elect_leaders([orders])
    assert (election.former_leader, election.leader, election.error) == (1, 2, None)
    assert cluster.leader_of(*orders) == 2
    assert admin.elect_leaders([orders]) == []
    assert orders not in [each.partition for each in admin.elect_leaders()]


def test_a_replica_in_sync_is_made_the_leader(
    cluster: BrokerCluster, admin: ClusterAdmin, orders: TopicPartition
) -> None:
    election = admin.make_leader(orders, 3)
    assert (election.former_leader, election.leader) == (1, 3)
    assert cluster.partition(*orders).replicas == (3, 1, 2)
    assert cluster.leader_of(*orders) == 3
    assert admin.make_leader(orders, 3).former_leader == 3


def test_a_broker_without_a_replica_is_not_made_the_leader(admin: ClusterAdmin, orders: TopicPartition) -> None:
    with pytest.raises(SkylogError, match=r"broker 4 has no replica of .*; they are on 1, 2, 3"):
        admin.make_leader(orders, 4)


def test_an_election_of_an_unknown_partition_is_an_error(admin: ClusterAdmin, orders: TopicPartition) -> None:
    with pytest.raises(SkylogError, match="has no partition 7: it has 1, numbered from 0"):
        admin.elect_leaders([TopicPartition(orders.topic, 7)])
    with pytest.raises(TopicNotFoundError):
        admin.elect_leaders([TopicPartition("no-such-topic", 0)])


def test_an_election_that_fails_has_the_reason(
    cluster: BrokerCluster, admin: ClusterAdmin, orders: TopicPartition
) -> None:
    cluster.kill(1)
    cluster.wait_for_leader(*orders, other_than=1)
    [election] = admin.elect_leaders([orders])
    assert present(election.error).code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    cluster.start(1)
    wait_until(lambda: not admin.describe().problems, "the broker to catch up")


# -- reassignments


def test_a_reassignment_is_planned_made_and_followed_to_its_end(
    cluster: BrokerCluster, admin: ClusterAdmin, orders: TopicPartition
) -> None:
    produce(cluster.bootstrap, orders.topic, ["x" * 1000] * 500)
    plan = admin.plan_reassignment([orders.topic], [2, 4], 2)
    assert plan.copies == 1
    admin.reassign(plan.targets)
    *_, last = admin.follow(plan.targets, interval_s=0.05)
    assert (last.total, last.done, last.abandoned, last.bytes_left) == (1, 1, (), 0)
    assert sorted(cluster.partition(*orders).replicas) == [2, 4]
    assert admin.plan_reassignment([orders.topic], [2, 4], 2).moves == ()


def test_a_reassignment_under_way_is_described_and_can_be_cancelled(
    cluster: BrokerCluster, admin: ClusterAdmin, orders: TopicPartition
) -> None:
    produce(cluster.bootstrap, orders.topic, ["x" * 1000] * 500)
    cluster.cut_link(4, 1)
    try:
        admin.reassign({orders: (4, 1, 2)})
        [moving] = admin.list_reassignments()
        assert (moving.target, moving.adding, moving.removing) == ((4, 1, 2), (4,), (3,))
        found = admin.describe([orders.topic])
        assert found.reassignments == (moving,)
        assert found.under_replicated == []
        assert present(admin.bytes_left([moving])) > 500_000
        progress = next(iter(admin.follow({orders: (4, 1, 2)})))
        assert (progress.done, progress.is_over) == (0, False)
        assert admin.cancel_reassignments([orders]) == [moving]
    finally:
        cluster.heal_link(4, 1)
    assert sorted(cluster.partition(*orders).replicas) == [1, 2, 3]
    assert admin.list_reassignments() == []
    assert admin.cancel_reassignments() == []


def test_a_reassignment_that_completes_while_it_is_cancelled_is_skipped(
    admin: ClusterAdmin, orders: TopicPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "list_reassignments", lambda: [Reassignment(orders, (1, 2, 3), (3,), (1,))])
    assert admin.cancel_reassignments() == []


def test_a_throttle_limits_the_brokers_and_topics_of_a_plan_until_it_is_cleared(
    cluster: BrokerCluster, admin: ClusterAdmin, orders: TopicPartition
) -> None:
    topics = Admin(cluster.bootstrap)

    def throttled() -> dict[str, str | None]:
        configs = topics.describe_configs(orders.topic)
        return {each.name.partition(".")[0]: each.value for each in configs if "throttled" in each.name and each.value}

    plan = admin.plan_reassignment([orders.topic], [1, 2, 4])
    admin.set_throttle(plan, 1_000_000)
    wait_until(throttled, "the setting")
    assert throttled() == {"leader": "0:1,0:2,0:3", "follower": "0:4"}
    assert rates(cluster) == {"1000000"}
    cluster.cut_link(4, 1)
    try:
        admin.reassign(plan.targets)
        admin.clear_throttle()
        assert throttled(), "a throttle stays while the topic is being reassigned"
        assert rates(cluster) == {"1000000"}
        admin.cancel_reassignments()
    finally:
        cluster.heal_link(4, 1)
    admin.clear_throttle()
    wait_until(lambda: not throttled(), "the setting")
    assert "1000000" not in rates(cluster)


def rates(cluster: BrokerCluster) -> set[str | None]:
    """The different rates of replication of all brokers."""
    client = Connection(cluster.bootstrap).admin_client()
    found: set[str | None] = set()
    for node_id in cluster.brokers:
        resource = ConfigResource(ResourceType.BROKER, str(node_id))
        entries = client.describe_configs([resource])[resource].result(20)
        found |= {entry.value for name, entry in entries.items() if name.endswith("replication.throttled.rate")}
    return found


def test_the_rejection_of_a_reassignment_names_the_partition(admin: ClusterAdmin, orders: TopicPartition) -> None:
    with pytest.raises(KafkaError, match=f"the partition could not be moved; {orders}: .* 9") as caught:
        admin.reassign({orders: (1, 9)})
    assert caught.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_drained_broker_has_no_replicas(cluster: BrokerCluster, admin: ClusterAdmin, orders: TopicPartition) -> None:
    plan = admin.plan_drain(2)
    assert plan.targets[orders] == (1, 4, 3)
    admin.reassign(plan.targets)
    list(admin.follow(plan.targets, interval_s=0.05))
    assert admin.describe().loads()[2].replicas == 0


# -- connections


def test_it_works_in_a_running_event_loop(admin: ClusterAdmin) -> None:
    async def ask() -> object:
        return admin.list_reassignments()

    assert asyncio.run(ask()) == []


def test_reassignments_need_a_mechanism_with_a_password() -> None:
    config = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    admin = ClusterAdmin(Connection("127.0.0.1:1", config, timeout_s=2))
    with pytest.raises(ConfigError, match="SCRAM-SHA-512, not OAUTHBEARER"):
        admin.list_reassignments()


def test_a_cluster_that_cannot_be_reached_is_an_error_soon() -> None:
    began = time.monotonic()
    with pytest.raises(BrokerUnreachableError):
        ClusterAdmin(Connection("127.0.0.1:1")).describe()
    assert time.monotonic() - began < 15


def test_a_single_broker_is_a_cluster(skylog_bootstrap: str, skylog_topic: str) -> None:
    admin = ClusterAdmin(skylog_bootstrap)
    found = admin.describe([skylog_topic])
    assert [broker.address for broker in found.brokers] == [skylog_bootstrap]
    assert found.problems == []
    assert found.reassignments_problem is None
    assert admin.elect_leaders() == []
