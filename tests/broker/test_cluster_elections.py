"""ElectLeaders in a cluster: the preferred replica, and any replica of a partition without a leader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from skylog.cluster import EntryChange
from skylog.cluster.metadata import INCARNATIONS
from skylog.errors import ErrorCode
from skylog.protocol.elect_leaders import ElectLeadersRequest, ElectLeadersTopic

from .local_cluster import LocalCluster
from .process import until
from .raw import batch_of, values_in

PREFERRED, UNCLEAN = 0, 1


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path, 3, {"auto.leader.rebalance.enable": "false"}) as cluster:
        yield cluster


def elect(
    cluster: LocalCluster, through: int, election_type: int, wanted: dict[str, list[int]] | None, version: int = 2
) -> dict[str, dict[int, ErrorCode]]:
    """Return the error of each partition by topic."""
    rows = None
    if wanted is not None:
        rows = [ElectLeadersTopic(topic=topic, partitions=partitions) for topic, partitions in wanted.items()]
    request = ElectLeadersRequest(election_type=election_type, topic_partitions=rows)
    response = cluster.client(through).ask(request, version)
    assert response.error_code == ErrorCode.NONE
    return {
        row.topic: {each.partition_id: ErrorCode(each.error_code) for each in row.partition_result}
        for row in response.replica_election_results
    }


def move_leaders_from(cluster: LocalCluster, node_id: int, topic: str, replicas: list[int]) -> None:
    """Restart a broker: others lead, and it is in sync again."""
    cluster.stop(node_id)
    cluster.start(node_id)
    cluster.until_in_sync(topic, replicas)


@pytest.mark.parametrize("through", [1, 2, 3])
def test_the_preferred_replica_is_elected_through_any_broker(cluster: LocalCluster, through: int) -> None:
    cluster.create("t", [3, 1, 2])
    move_leaders_from(cluster, 3, "t", [1, 2, 3])
    assert cluster.partition("t").leader == 1
    epoch = cluster.partition("t").leader_epoch
    assert elect(cluster, through, PREFERRED, {"t": [0]}) == {"t": {0: ErrorCode.NONE}}
    found = cluster.partition("t", seen_by=through)
    assert (found.leader, found.leader_epoch) == (3, epoch + 1)
    until(lambda: cluster.client(3).produce("t", batch_of(b"x")).error_code == 0, "the new leader")


def test_each_partition_has_its_own_result(cluster: LocalCluster) -> None:
    cluster.create("t", [1, 2], [2, 1], [3, 1])
    move_leaders_from(cluster, 2, "t", [1, 2])
    assert elect(cluster, 1, PREFERRED, {"t": [2, 1, 0, 9], "none": [0]}) == {
        "t": {
            2: ErrorCode.ELECTION_NOT_NEEDED,
            1: ErrorCode.NONE,
            0: ErrorCode.ELECTION_NOT_NEEDED,
            9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        },
        "none": {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
    }


def test_a_preferred_replica_that_is_away_is_not_available(cluster: LocalCluster) -> None:
    cluster.create("t", [3, 1])
    cluster.stop(3)
    assert elect(cluster, 1, PREFERRED, {"t": [0]}) == {"t": {0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}}
    assert elect(cluster, 1, UNCLEAN, {"t": [0]}) == {"t": {0: ErrorCode.ELECTION_NOT_NEEDED}}


@pytest.mark.parametrize("version", range(3))
def test_of_all_partitions_those_are_named_that_needed_an_election(cluster: LocalCluster, version: int) -> None:
    cluster.create("moved", [1, 2], [2, 1])
    cluster.create("away", [3, 1], [1, 2])
    cluster.create("led", [1, 2])
    move_leaders_from(cluster, 2, "moved", [1, 2])
    cluster.until_in_sync("moved", [1, 2], 1)
    cluster.stop(3)
    assert elect(cluster, 1, PREFERRED, None, version) == {
        "moved": {1: ErrorCode.NONE},
        "away": {0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE},
        "led": {},
    }
    assert cluster.partition("moved", 1).leader == 2


def test_an_unclean_election_makes_a_partition_available_with_what_its_replica_has(cluster: LocalCluster) -> None:
    cluster.create("t", [1, 2])
    cluster.client(1).produce("t", batch_of(b"both"))
    cluster.stop(2)
    cluster.until_in_sync("t", [1])
    cluster.client(1).produce("t", batch_of(b"one"))
    cluster.stop(1)
    assert elect(cluster, 3, UNCLEAN, {"t": [0]}) == {"t": {0: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}}
    cluster.start(2)
    assert cluster.partition("t").leader == -1
    assert elect(cluster, 3, PREFERRED, {"t": [0]}) == {"t": {0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}}
    assert elect(cluster, 3, UNCLEAN, None) == {"t": {0: ErrorCode.NONE}}
    assert (cluster.partition("t").leader, cluster.partition("t").in_sync_replicas) == (2, (2,))
    until(lambda: cluster.client(2).fetch("t", 0).error_code == 0, "the leader")
    assert values_in(cluster.client(2).fetch("t", 0).records) == [(0, b"both")]


def test_a_type_of_election_that_is_unknown_is_refused_for_all_partitions_too(cluster: LocalCluster) -> None:
    response = cluster.client(1).ask(ElectLeadersRequest(election_type=7, topic_partitions=None), 2)
    assert response.error_code == ErrorCode.INVALID_REQUEST


def test_a_broker_that_has_started_again_meanwhile_is_not_elected(cluster: LocalCluster) -> None:
    """The others do not know yet that it has. Its new process may lack what the old one had."""
    cluster.create("t", [3, 1])
    move_leaders_from(cluster, 3, "t", [1, 3])
    incarnation = cluster.look(1, lambda broker: broker.metadata.image.brokers[3].incarnation)
    cluster.run(cluster.sessions[1].commit([EntryChange(f"{INCARNATIONS}3", {}, incarnation)]))
    rows = [ElectLeadersTopic(topic="t", partitions=[0, 1])]
    response = cluster.client(1).ask(ElectLeadersRequest(topic_partitions=rows, timeout_ms=100), 2)
    (row,) = response.replica_election_results
    codes = {each.partition_id: each.error_code for each in row.partition_result}
    assert codes == {0: ErrorCode.REQUEST_TIMED_OUT, 1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert cluster.partition("t").leader == 1
    cluster.stop(3)  # the controller could not elect it either, which would delay the others
