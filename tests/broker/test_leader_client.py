"""Partitions that any broker of a cluster leads, used by what runs beside a broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skylog.broker.leader_client import PartitionRead
from skylog.errors import ErrorCode, KafkaError
from skylog.model import TopicPartition
from skylog.records import read_records
from tests.broker.local_cluster import LocalCluster
from tests.storage.logs import a_batch

NAME = TopicPartition("notes", 0)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three brokers. Broker 1 leads `notes`, broker 2 follows, broker 3 has nothing of it."""
    with LocalCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.create("notes", [1, 2])
        yield cluster


@pytest.fixture(params=[1, 2, 3])
def node_id(request: pytest.FixtureRequest) -> int:
    """The broker that is used: the leader, a follower or any other."""
    found: int = request.param
    return found


def client(cluster: LocalCluster, node_id: int) -> Any:
    return cluster.brokers[node_id].leader_client


def append(cluster: LocalCluster, node_id: int, value: bytes) -> int:
    """Append a message, and return its offset."""
    end_offset = cluster.look(1, lambda broker: broker.replicas.leader(*NAME).log.log_end_offset)
    cluster.run(client(cluster, node_id).append(NAME, bytearray(a_batch(1, len(value)))))
    return end_offset


def read(cluster: LocalCluster, node_id: int, offset: int) -> PartitionRead:
    found: PartitionRead = cluster.run(client(cluster, node_id).read(NAME, offset, 1 << 20))
    return found


def test_every_broker_appends_to_the_leader_and_reads_from_it(cluster: LocalCluster, node_id: int) -> None:
    offset = append(cluster, node_id, b"hello")
    for other in cluster.brokers:
        found = read(cluster, other, offset)
        assert [record.offset for record in read_records(found.records)] == [offset]
        assert (found.high_watermark, found.log_start_offset, found.is_out_of_range) == (offset + 1, 0, False)
        assert read(cluster, other, offset + 1).records == b""


def test_an_append_is_stored_by_all_replicas_when_it_returns(cluster: LocalCluster, node_id: int) -> None:
    offset = append(cluster, node_id, b"safe")
    replica = cluster.look(2, lambda broker: broker.replicas.find(NAME))
    assert replica is not None
    assert replica.log.log_end_offset == offset + 1


def test_an_offset_that_the_log_does_not_hold_is_out_of_range(cluster: LocalCluster, node_id: int) -> None:
    offset = append(cluster, node_id, b"last")
    assert read(cluster, node_id, offset + 100).is_out_of_range


def test_a_log_holds_what_was_read_from_it_and_nothing_else(cluster: LocalCluster, node_id: int) -> None:
    offset = append(cluster, node_id, b"read")
    holds = client(cluster, node_id).holds
    epoch = cluster.look(1, lambda broker: broker.replicas.leader(*NAME).leader_epoch)
    assert cluster.run(holds(NAME, offset + 1, epoch))
    assert not cluster.run(holds(NAME, offset + 2, epoch))
    assert not cluster.run(holds(NAME, offset + 1, epoch + 1))


def test_a_topic_that_does_not_exist_is_an_error(cluster: LocalCluster, node_id: int) -> None:
    with pytest.raises(KafkaError) as caught:
        cluster.run(client(cluster, node_id).read(TopicPartition("nothing", 0), 0, 100))
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("node_id", [2, 3])
def test_an_error_of_the_leader_has_its_code(cluster: LocalCluster, node_id: int) -> None:
    batch = bytearray(a_batch(1))
    batch[-1] ^= 1
    with pytest.raises(KafkaError) as caught:
        cluster.run(client(cluster, node_id).append(NAME, batch))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_leader_that_is_away_is_an_error_until_there_is_another(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, 2) as cluster:
        cluster.create("alone", [1])
        cluster.create("notes", [1, 2])
        cluster.run(client(cluster, 2).append(NAME, bytearray(a_batch(1))))
        cluster.stop(1)
        cluster.leader_of("notes")
        cluster.run(client(cluster, 2).append(NAME, bytearray(a_batch(1))))
        with pytest.raises(KafkaError) as caught:
            cluster.run(client(cluster, 2).read(TopicPartition("alone", 0), 0, 100))
        assert caught.value.code in (ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION)
        cluster.start(1)
        assert cluster.leader_of("alone") == 1
        assert cluster.run(client(cluster, 2).read(TopicPartition("alone", 0), 0, 100)).records == b""
