"""Administration through a broker that has lost the metadata store: every request gets an error to retry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from skylog.broker.metrics import Health
from skylog.cluster import UnknownOutcomeError
from skylog.cluster.image import NO_CONTROLLER
from skylog.errors import ErrorCode
from skylog.protocol.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from skylog.protocol.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from skylog.protocol.create_topics import CreatableTopic, CreateTopicsRequest
from skylog.protocol.delete_topics import DeleteTopicsRequest, DeleteTopicState
from skylog.protocol.describe_cluster import DescribeClusterRequest
from skylog.protocol.elect_leaders import ElectLeadersRequest, ElectLeadersTopic
from skylog.protocol.init_producer_id import InitProducerIdRequest

from .local_cluster import LocalCluster
from .process import until
from .test_configs import BROKER, SET, alter_one


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path, 2) as cluster:
        cluster.create("t", [1, 2], [2, 1])
        cluster.stop(2)
        cluster.start(2)
        cluster.until_in_sync("t", [1, 2], 1)
        yield cluster


def errors(cluster: LocalCluster) -> dict[str, int]:
    """Send each kind of request to broker 1. Return the errors."""
    client = cluster.client(1)
    wanted = CreatableTopic(name="new", num_partitions=1, replication_factor=1)
    growth = CreatePartitionsTopic(name="t", count=3)
    move = ReassignableTopic(name="t", partitions=[ReassignablePartition(partition_index=0, replicas=[2])])
    election = ElectLeadersTopic(topic="t", partitions=[1])
    reassigned = client.ask(AlterPartitionReassignmentsRequest(topics=[move]), 0).responses[0]
    elected = client.ask(ElectLeadersRequest(topic_partitions=[election]), 2).replica_election_results[0]
    deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000)
    return {
        "create": client.ask(CreateTopicsRequest(topics=[wanted]), 7).topics[0].error_code,
        "auto-create": client.metadata("automatic", create=True).topics[0].error_code,
        "grow": client.ask(CreatePartitionsRequest(topics=[growth], timeout_ms=1000), 3).results[0].error_code,
        "configure": alter_one(client, "t", [("retention.ms", SET, "7")]).error_code,
        "configure all": alter_one(client, "", [("log.retention.ms", SET, "7")], kind=BROKER).error_code,
        "reassign": reassigned.partitions[0].error_code,
        "elect": elected.partition_result[0].error_code,
        "delete": client.ask(deletion, 6).responses[0].error_code,
    }


def test_without_a_session_nothing_is_done(cluster: LocalCluster) -> None:
    cluster.without_store.add(1)
    cluster.run(cluster.sessions[1].expire())
    found = errors(cluster)
    assert found == dict.fromkeys(found, ErrorCode.NOT_CONTROLLER)
    cluster.without_store.clear()
    until(lambda: 1 in cluster.look(2, lambda broker: broker.metadata.image.brokers), "broker 1 to join again")
    assert set(cluster.look(2, lambda broker: broker.metadata.image.topics)) == {"t"}
    assert cluster.create("new", [1, 2]) == "new"


def test_without_a_session_a_producer_that_asks_for_an_id_tries_again(cluster: LocalCluster) -> None:
    cluster.without_store.add(1)
    cluster.run(cluster.sessions[1].expire())
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    assert cluster.client(1).ask(request, 4).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    cluster.without_store.clear()
    until(lambda: cluster.client(1).ask(request, 4).error_code == 0, "an id")


def test_a_change_that_may_have_been_made_has_timed_out(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    async def commit(_: object) -> None:
        raise UnknownOutcomeError("the session ended during the commit")

    monkeypatch.setattr(cluster.sessions[1], "commit", commit)
    found = errors(cluster)
    assert found == dict.fromkeys(found, ErrorCode.REQUEST_TIMED_OUT)


def test_a_broker_without_a_session_does_not_take_what_it_knew_for_the_present(cluster: LocalCluster) -> None:
    led = ElectLeadersRequest(topic_partitions=[ElectLeadersTopic(topic="t", partitions=[0])])

    def outcome() -> tuple[int, int, bool]:
        client = cluster.client(1)
        found = client.ask(led, 2).replica_election_results[0].partition_result[0].error_code
        health = cluster.run(Health(cluster.brokers[1]).report())
        return found, client.ask(DescribeClusterRequest(), 1).controller_id, health.healthy

    assert outcome() == (ErrorCode.ELECTION_NOT_NEEDED, 1, True)
    cluster.without_store.add(1)
    cluster.run(cluster.sessions[1].expire())
    assert outcome() == (ErrorCode.NOT_CONTROLLER, NO_CONTROLLER, False)
    cluster.without_store.clear()
    until(lambda: outcome()[1:] == (2, True), "broker 1 to know the controller again")
