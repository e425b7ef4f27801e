"""Administration of a cluster of broker processes, with the admin clients of confluent-kafka and kafka-python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import ElectionType, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from kafka import KafkaAdminClient
from kafka import TopicPartition as Place

from skylog.testing import BrokerCluster, consume, produce, wait_until

RACKS = {1: "east", 2: "west", 3: "east"}
PATIENCE_S = 20


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    """Every test leaves it complete."""
    settings = {"auto.leader.rebalance.enable": "false"}
    racks = {node_id: {"broker.rack": rack} for node_id, rack in RACKS.items()}
    with BrokerCluster(3, settings, broker_settings=racks, session_timeout_ms=1000) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def admin(cluster: BrokerCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


def create(admin: AdminClient, name: str, assignment: list[list[int]]) -> None:
    topic = NewTopic(name, num_partitions=len(assignment), replica_assignment=assignment)
    admin.create_topics([topic])[name].result(PATIENCE_S)


def described(admin: AdminClient, name: str) -> list[Any]:
    found = admin.describe_topics(TopicCollection([name]))[name].result(PATIENCE_S)
    partitions: list[Any] = found.partitions
    return partitions


def test_the_cluster_is_described_with_its_racks_and_its_controller(admin: AdminClient, cluster: BrokerCluster) -> None:
    found = admin.describe_cluster().result(PATIENCE_S)
    assert {node.id: node.rack for node in found.nodes} == RACKS
    assert {f"{node.host}:{node.port}" for node in found.nodes} == set(cluster.bootstrap.split(","))
    assert found.controller.id in RACKS


def test_topics_are_created_with_the_given_replicas(admin: AdminClient, cluster: BrokerCluster) -> None:
    assignment = [[3, 1], [2, 3], [1, 2]]
    create(admin, "assigned", assignment)
    cluster.wait_until_in_sync("assigned")
    found = described(admin, "assigned")
    assert [[node.id for node in each.replicas] for each in found] == assignment
    assert [each.leader.id for each in found] == [3, 2, 1]
    with pytest.raises(KafkaException) as refused:
        create(admin, "refused", [[1, 9]])
    assert refused.value.args[0].code() == KafkaError.INVALID_REPLICA_ASSIGNMENT


def test_replicas_are_placed_on_different_racks(admin: AdminClient) -> None:
    admin.create_topics([NewTopic("racks", 4, 2)])["racks"].result(PATIENCE_S)
    admin.create_partitions([NewPartitions("racks", 6)])["racks"].result(PATIENCE_S)
    wait_until(lambda: len(described(admin, "racks")) == 6, "the new partitions")
    for each in described(admin, "racks"):
        assert {node.rack for node in each.replicas} == {"east", "west"}


def test_the_preferred_leader_is_elected_after_it_was_away(admin: AdminClient, cluster: BrokerCluster) -> None:
    create(admin, "preferred", [[2, 1, 3], [1, 2, 3]])
    cluster.wait_until_in_sync("preferred")
    cluster.stop(2)
    assert cluster.wait_for_leader("preferred", other_than=2) == 1
    cluster.start(2)
    cluster.wait_until_in_sync("preferred")
    asked = [TopicPartition("preferred", 0), TopicPartition("preferred", 1), TopicPartition("preferred", 7)]
    found = admin.elect_leaders(ElectionType.PREFERRED, asked).result(PATIENCE_S)
    codes = {place.partition: error.code() if error else 0 for place, error in found.items()}
    assert codes == {0: 0, 1: KafkaError.ELECTION_NOT_NEEDED, 7: KafkaError.UNKNOWN_TOPIC_OR_PART}
    assert cluster.leader_of("preferred") == 2
    assert [each.leader.id for each in described(admin, "preferred")] == [2, 1]


def test_an_unclean_election_brings_a_partition_back(admin: AdminClient, cluster: BrokerCluster) -> None:
    create(admin, "unclean", [[1, 2]])
    resource = ConfigResource(ResourceType.TOPIC, "unclean")
    resource.add_incremental_config(
        ConfigEntry("min.insync.replicas", "1", incremental_operation=AlterConfigOpType.SET)
    )
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)
    cluster.wait_until_in_sync("unclean")
    produce(cluster.bootstrap, "unclean", ["both"])
    cluster.stop(2)
    cluster.wait_until_in_sync("unclean", replicas={1})
    produce(cluster.bootstrap, "unclean", ["only the leader"])
    cluster.stop(1)
    cluster.start(2)
    try:
        wait_until(lambda: cluster.leader_of("unclean") == -1, "the partition to be offline")
        (offline,) = described(admin, "unclean")
        assert offline.leader is None or offline.leader.id == -1
        found = admin.elect_leaders(ElectionType.UNCLEAN, [TopicPartition("unclean", 0)]).result(PATIENCE_S)
        assert list(found.values()) == [None]
        assert cluster.leader_of("unclean") == 2
    finally:
        cluster.start(1)
    assert [message.value for message in consume(cluster.bootstrap, "unclean", 1, timeout_s=20)] == [b"both"]


def test_a_partition_is_reassigned_with_its_messages(admin: AdminClient, cluster: BrokerCluster) -> None:
    create(admin, "moved", [[1]])
    produce(cluster.bootstrap, "moved", [f"message {number}" for number in range(100)])
    client = KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))
    try:
        assert client.alter_partition_reassignments({Place("moved", 0): [3, 2]}) == {Place("moved", 0): None}
        wait_until(lambda: client.list_partition_reassignments() == {}, "the reassignment to end")
    finally:
        client.close()
    assert cluster.partition("moved").replicas == (3, 2)
    assert cluster.wait_for_leader("moved") == 3
    values = [message.value for message in consume(cluster.bootstrap, "moved", 100, timeout_s=20)]
    assert values == [b"message %d" % number for number in range(100)]


def test_topics_are_administered_though_the_controller_does_not_answer(
    admin: AdminClient, cluster: BrokerCluster
) -> None:
    controller = admin.describe_cluster().result(PATIENCE_S).controller.id
    other = next(node_id for node_id in RACKS if node_id != controller)
    create(admin, "short-lived", [[other]])
    cluster.pause(controller)
    try:
        client = AdminClient({"bootstrap.servers": cluster.address(other)})
        client.delete_topics(["short-lived"])["short-lived"].result(PATIENCE_S)
    finally:
        cluster.resume(controller)
        cluster.start()  # waits until it has joined again


def test_a_setting_of_one_broker_is_changed(admin: AdminClient) -> None:
    key = "log.roll.ms"
    # librdkafka has forgotten the brokers that were away, until it asks for metadata again.
    wait_until(lambda: admin.list_topics(timeout=PATIENCE_S).brokers.keys() == RACKS.keys(), "all brokers")
    changed = ConfigResource(ResourceType.BROKER, "2")
    changed.add_incremental_config(ConfigEntry(key, "8000000", incremental_operation=AlterConfigOpType.SET))
    admin.incremental_alter_configs([changed])[changed].result(PATIENCE_S)

    def value(broker: int) -> str:
        resource = ConfigResource(ResourceType.BROKER, str(broker))
        text: str = admin.describe_configs([resource])[resource].result(PATIENCE_S)[key].value
        return text

    assert {broker: value(broker) for broker in RACKS} == {1: "604800000", 2: "8000000", 3: "604800000"}
