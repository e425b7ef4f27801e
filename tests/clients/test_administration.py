"""What operators ask a broker for beyond topics and groups, by the admin clients that can: Kafka's answers without
an authorizer, on a cluster of one broker."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import ElectionType, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from kafka import KafkaAdminClient, KafkaProducer
from kafka import TopicPartition as Place
from kafka.admin import ACLFilter, ACLOperation, ACLPermissionType, ACLResourcePatternType, ResourcePatternFilter
from kafka.admin import ResourceType as AclResourceType
from kafka.errors import (
    ElectionNotNeededError,
    InvalidReplicationAssignmentError,
    LogDirNotFoundError,
    NoError,
    NoReassignmentInProgressError,
    SecurityDisabledError,
    TransactionalIdNotFoundError,
    UnknownTopicOrPartitionError,
)

from tests.patience import patience

from .contract import MakeTopic, numbered
from .peers.confluent import ConfluentPeer
from .peers.driven import DrivenPeer
from .peers.installation import JAVA_VERSIONS

NODE = 1
AT_ONCE_SECONDS = 5.0
OF_A_TOPIC = {"READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"}
OF_A_GROUP = {"READ", "DELETE", "DESCRIBE"}
OF_THE_CLUSTER = {
    "CREATE",
    "ALTER",
    "DESCRIBE",
    "CLUSTER_ACTION",
    "DESCRIBE_CONFIGS",
    "ALTER_CONFIGS",
    "IDEMPOTENT_WRITE",
}


@pytest.fixture(scope="module")
def kafka_python(bootstrap: str) -> Iterator[KafkaAdminClient]:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield admin
    admin.close()


@pytest.fixture(params=JAVA_VERSIONS)
def java(request: pytest.FixtureRequest) -> Any:
    peer: DrivenPeer = request.getfixturevalue(f"java_{request.param.partition('.')[0]}")
    return peer.driver


@pytest.fixture
def at_once() -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < patience(AT_ONCE_SECONDS)


def unknown_id() -> str:
    return f"id-{uuid.uuid4().hex[:8]}"


class TestConfluentKafka:
    def test_the_only_replica_needs_no_election(self, confluent: ConfluentPeer, make_topic: MakeTopic) -> None:
        asked = [TopicPartition(make_topic(), 0), TopicPartition("none", 0)]
        found = confluent.admin.elect_leaders(ElectionType.PREFERRED, asked).result(10)
        assert {place.topic: error.code() for place, error in found.items()} == {
            asked[0].topic: KafkaError.ELECTION_NOT_NEEDED,
            "none": KafkaError.UNKNOWN_TOPIC_OR_PART,
        }

    def test_an_election_for_all_partitions_has_nothing_to_do(
        self, confluent: ConfluentPeer, make_topic: MakeTopic
    ) -> None:
        make_topic()
        assert confluent.admin.elect_leaders(ElectionType.UNCLEAN, None).result(10) == {}

    def test_everything_is_allowed(self, confluent: ConfluentPeer, make_topic: MakeTopic) -> None:
        topic = make_topic()
        admin = confluent.admin

        def names(operations: list[AclOperation]) -> set[str]:
            return {operation.name for operation in operations}

        topics = admin.describe_topics(TopicCollection([topic]), include_authorized_operations=True)
        assert names(topics[topic].result(10).authorized_operations) == OF_A_TOPIC
        cluster = admin.describe_cluster(include_authorized_operations=True).result(10)
        assert names(cluster.authorized_operations) == OF_THE_CLUSTER
        groups = admin.describe_consumer_groups(["unknown"], include_authorized_operations=True)
        assert names(groups["unknown"].result(10).authorized_operations) == OF_A_GROUP

    def test_nothing_is_told_that_was_not_asked_for(self, confluent: ConfluentPeer, make_topic: MakeTopic) -> None:
        topic = make_topic()
        assert confluent.admin.describe_topics(TopicCollection([topic]))[topic].result(10).authorized_operations is None
        assert confluent.admin.describe_cluster().result(10).authorized_operations is None

    def test_acls_are_disabled(self, confluent: ConfluentPeer) -> None:
        anything: Any = None  # what the library's documentation allows and its types do not
        every = AclBindingFilter(
            ResourceType.ANY,
            anything,
            ResourcePatternType.ANY,
            anything,
            anything,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        one = AclBinding(
            ResourceType.TOPIC,
            "t",
            ResourcePatternType.LITERAL,
            "User:u",
            "*",
            AclOperation.READ,
            AclPermissionType.ALLOW,
        )
        assert confluent.admin.describe_acls(every).result(10) == []  # librdkafka drops the error of the answer
        for futures in (confluent.admin.create_acls([one]), confluent.admin.delete_acls([every])):
            (future,) = futures.values()
            with pytest.raises(KafkaException) as refused:
                future.result(10)
            assert refused.value.args[0].code() == KafkaError.SECURITY_DISABLED


class TestKafkaPython:
    def test_the_only_replica_needs_no_election(self, kafka_python: KafkaAdminClient, make_topic: MakeTopic) -> None:
        response = kafka_python.elect_leaders(0, {make_topic(partitions=2): [0, 1]}, raise_errors=False)
        (row,) = response.replica_election_results
        assert {each.error_code for each in row.partition_result} == {ElectionNotNeededError.errno}

    def test_nothing_can_be_reassigned(self, kafka_python: KafkaAdminClient, make_topic: MakeTopic) -> None:
        topic = make_topic(partitions=3)
        wanted = {Place(topic, 0): [NODE], Place(topic, 1): None, Place(topic, 2): [NODE + 8], Place("none", 0): [NODE]}
        assert kafka_python.alter_partition_reassignments(wanted) == {
            Place(topic, 0): None,
            Place(topic, 1): NoReassignmentInProgressError,
            Place(topic, 2): InvalidReplicationAssignmentError,
            Place("none", 0): UnknownTopicOrPartitionError,
        }
        assert kafka_python.list_partition_reassignments() == {}
        assert kafka_python.list_partition_reassignments({topic: [0]}) == {}

    def test_a_log_can_only_lie_where_it_is(self, kafka_python: KafkaAdminClient, make_topic: MakeTopic) -> None:
        topic = make_topic()
        ((broker, directories),) = [(each["broker"], each["log_dirs"]) for each in kafka_python.describe_log_dirs()]
        (directory,) = directories
        replica = (topic, 0, broker)
        assert list(kafka_python.alter_replica_log_dirs({replica: directory["log_dir"]}).values()) == [NoError]
        assert list(kafka_python.alter_replica_log_dirs({replica: "/elsewhere"}).values()) == [LogDirNotFoundError]

    def test_partitions_are_described_page_by_page(self, kafka_python: KafkaAdminClient, make_topic: MakeTopic) -> None:
        topic = make_topic(partitions=3)
        first = kafka_python.describe_topic_partitions([topic], response_partition_limit=2)
        assert [row["partition_index"] for row in first["topics"][0]["partitions"]] == [0, 1]
        cursor = first["next_cursor"]
        assert (cursor["topic_name"], cursor["partition_index"]) == (topic, 2)

    def test_an_idempotent_producer_is_described(
        self, bootstrap: str, kafka_python: KafkaAdminClient, make_topic: MakeTopic
    ) -> None:
        topic = make_topic()
        with KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True) as producer:
            for _ in range(3):
                producer.send(topic, b"v", partition=0).get(10)
        (state,) = kafka_python.describe_producers([Place(topic, 0)])[Place(topic, 0)].active_producers
        assert state.producer_id >= 0
        assert (state.producer_epoch, state.last_sequence) == (0, 2)
        assert kafka_python.find_hanging_transactions() == []

    def test_an_unknown_transactional_id_is_not_found(self, kafka_python: KafkaAdminClient) -> None:
        assert list(kafka_python.list_transactions(state_filters=["Dead"]).values()) == [[]]
        with pytest.raises(TransactionalIdNotFoundError):
            kafka_python.describe_transactions([unknown_id()])

    def test_acls_are_disabled(self, kafka_python: KafkaAdminClient) -> None:
        every = ACLFilter(
            principal=None,
            host=None,
            operation=ACLOperation.ANY,
            permission_type=ACLPermissionType.ANY,
            resource_pattern=ResourcePatternFilter(AclResourceType.ANY, None, ACLResourcePatternType.ANY),
        )
        with pytest.raises(SecurityDisabledError):
            kafka_python.describe_acls(every)

    def test_the_features_are_those_of_kafka_3_9_and_the_consumer_protocol(
        self, kafka_python: KafkaAdminClient
    ) -> None:
        assert kafka_python.describe_features() == {
            "metadata.version": {"supported": (1, 21), "finalized": (21, 21), "finalized_epoch": 0},
            "group.version": {"supported": (0, 1), "finalized": (1, 1), "finalized_epoch": 0},
        }

    def test_there_are_no_client_metrics_to_list(self, kafka_python: KafkaAdminClient) -> None:
        assert kafka_python.list_config_resources() == {}


class TestJava:
    def test_the_only_replica_needs_no_election(self, java: Any, make_topic: MakeTopic) -> None:
        topic = make_topic(partitions=2)
        found = java.ask("elect_leaders", topic=topic, partitions=[0, 1])
        assert found == {f"{topic}-0": 84, f"{topic}-1": 84}
        assert java.ask("elect_leaders", topic=None, partitions=None) == {}

    def test_nothing_can_be_reassigned(self, java: Any, make_topic: MakeTopic) -> None:
        topic = make_topic()
        codes = [java.ask("reassign", topic=topic, partition=0, replicas=ids) for ids in ([NODE], None, [NODE + 8])]
        assert codes == [0, NoReassignmentInProgressError.errno, InvalidReplicationAssignmentError.errno]
        assert java.ask("reassignments") == 0

    def test_no_other_directory_is_known(self, java: Any, make_topic: MakeTopic) -> None:
        code = java.ask("move_log", topic=make_topic(), partition=0, broker=NODE, path="/elsewhere")
        assert code == LogDirNotFoundError.errno

    def test_an_idempotent_producer_is_described(self, java: Any, make_topic: MakeTopic) -> None:
        topic = make_topic()
        records = [record.to_json() for record in numbered(2)]
        java.ask("produce", topic=topic, partition=0, records=records, codec="none", acks="all", idempotent=True)
        assert list(java.ask("producers", topic=topic, partition=0).values()) == [[0, 1]]

    def test_there_are_no_acls_and_an_unknown_transactional_id_is_not_found(self, java: Any) -> None:
        assert java.ask("transactions") >= 0
        assert java.ask("describe_transaction", id=unknown_id()) == TransactionalIdNotFoundError.errno
        assert java.ask("describe_acls") == SecurityDisabledError.errno

    def test_a_quota_is_set_listed_and_removed(self, java: Any) -> None:
        user = unknown_id()
        assert java.ask("alter_quota", user=user, rate=1024.0) == 0
        assert java.ask("quotas") >= 1
        assert java.ask("alter_quota", user=user, rate=None) == 0

    def test_everything_is_allowed(self, java: Any, make_topic: MakeTopic) -> None:
        topic, cluster = java.ask("operations", topic=make_topic())
        assert set(topic) == OF_A_TOPIC
        assert set(cluster) == OF_THE_CLUSTER

    def test_the_features_are_those_of_kafka_3_9_and_the_consumer_protocol(self, java: Any) -> None:
        assert java.ask("features") == {"metadata.version": [21, 1, 21], "group.version": [1, 0, 1]}
