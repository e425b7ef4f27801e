"""FindCoordinator: the leader of a group's partition, and the creation of the offsets topic."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from skylog.broker.state_topic import partition_of
from skylog.cluster import EmbeddedSession, Entry
from skylog.cluster.image import NO_LEADER
from skylog.errors import ErrorCode
from skylog.model import CONSUMER_OFFSETS_TOPIC
from skylog.protocol.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from skylog.protocol.find_coordinator import FindCoordinatorRequest
from skylog.storage.partition_metadata import read_topic_id
from tests.groups.client import GroupClient

from .conftest import create_topic
from .leaders import elect, offsets_topic
from .neighbours import Neighbours
from .process import BrokerThread
from .raw import RawClient

FACTOR = "offsets.topic.replication.factor"
SETTINGS = {"offsets.topic.num.partitions": "4", FACTOR: "1"}
GROUPS = [f"group-{number}" for number in range(8)]  # in all of the four partitions


def find(port: int, *groups: str) -> list[Any]:
    with RawClient(port) as client:
        found: list[Any] = client.ask(FindCoordinatorRequest(coordinator_keys=list(groups)), 4).coordinators
        return found


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Neighbours]:
    with Neighbours(tmp_path, 2, SETTINGS) as brokers:
        yield brokers


def test_every_broker_names_the_leader_of_the_group_and_its_address(pair: Neighbours) -> None:
    answers = [find(pair.ports[asked], *GROUPS) for asked in (1, 2)]
    leaders = [each.leader for each in pair.look(1, offsets_topic).partitions]
    assert set(leaders) == {1, 2}
    for found in answers:
        assert [each.key for each in found] == GROUPS
        assert [each.node_id for each in found] == [leaders[partition_of(group, 4)] for group in GROUPS]
        assert all((each.error_code, each.port) == (0, pair.ports[each.node_id]) for each in found)


def test_only_the_leader_serves_a_group(pair: Neighbours) -> None:
    (found,) = find(pair.ports[1], "g")
    other = 3 - found.node_id
    with GroupClient(pair.ports[other]) as stranger, GroupClient(found.port) as client:
        create_topic(client, "t")
        assert client.commit(7) == ErrorCode.NONE
        assert stranger.commit(8) == ErrorCode.NOT_COORDINATOR
        assert client.committed() == {("t", 0): (7, "")}
        assert (client.groups(), stranger.groups()) == ({"g"}, set())


def test_without_a_leader_the_coordinator_is_not_available(pair: Neighbours) -> None:
    find(pair.ports[1], "g")
    pair.run(elect(pair.brokers[1], NO_LEADER, partition_of("g", 4)))
    (found,) = find(pair.ports[2], "g")
    assert (found.error_code, found.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
    pair.run(elect(pair.brokers[1], 2, partition_of("g", 4)))
    (found,) = find(pair.ports[1], "g")
    assert (found.error_code, found.node_id) == (ErrorCode.NONE, 2)


def test_a_leader_that_is_gone_is_no_coordinator(pair: Neighbours) -> None:
    found = find(pair.ports[1], *GROUPS)
    pair.stop(2)
    codes = {each.key: each.error_code for each in find(pair.ports[1], *GROUPS)}
    gone = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert codes == {each.key: gone if each.node_id == 2 else ErrorCode.NONE for each in found}


def test_two_brokers_that_create_the_offsets_topic_at_once_agree_on_it(tmp_path: Path) -> None:
    """The loser has made folders for its own topic. It must not take those of the winner's for them."""
    with Neighbours(tmp_path, 2, {**SETTINGS, FACTOR: "2"}) as pair:

        async def create() -> None:
            await asyncio.gather(*(broker.coordinator.ensure_topic() for broker in pair.brokers.values()))

        pair.run(create())
        topic = pair.look(1, offsets_topic)
        for node_id in (1, 2):
            assert pair.look(node_id, lambda broker: broker.replicas.offline) == {}
            replicas = pair.look(node_id, lambda broker: broker.replicas.of_topic(CONSUMER_OFFSETS_TOPIC))
            assert [read_topic_id(replica.log.directory) for replica in replicas] == [topic.topic_id] * 4
            assert not pair.look(node_id, lambda broker: broker.coordinator.is_loading)
        (found,) = find(pair.ports[1], "g")
        assert found.error_code == ErrorCode.NONE


def test_a_broker_waits_for_the_offsets_topic_that_another_one_has_just_created(pair: Neighbours) -> None:
    """Its own creation is refused before it has seen the other's."""

    async def create() -> bool:
        late = pair.brokers[2]._store
        assert isinstance(late, EmbeddedSession)
        publish = late.publish

        def publish_later(changed: Mapping[str, Entry | None]) -> None:
            asyncio.get_running_loop().call_later(0.1, publish, changed)

        late.publish = publish_later  # type: ignore[method-assign]
        await pair.brokers[1].coordinator.ensure_topic()
        was_unknown = CONSUMER_OFFSETS_TOPIC not in pair.brokers[2].metadata.image.topics
        await pair.brokers[2].coordinator.ensure_topic()
        late.publish = publish  # type: ignore[method-assign]
        return was_unknown

    assert pair.run(create())
    assert pair.look(2, offsets_topic) == pair.look(1, offsets_topic)


def test_the_offsets_topic_has_its_own_replication_factor(tmp_path: Path) -> None:
    with Neighbours(tmp_path, 3, {**SETTINGS, FACTOR: "3"}) as brokers:
        find(brokers.ports[2], "g")
        topic = brokers.look(1, offsets_topic)
        assert [sorted(each.replicas) for each in topic.partitions] == [[1, 2, 3]] * 4
        with RawClient(brokers.ports[1]) as client:
            create_topic(client, "t")
            assert len(client.topic("t").partitions[0].replica_nodes) == 1


def test_too_few_brokers_for_the_offsets_topic_are_logged_once_with_the_setting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Neighbours(tmp_path, 1, {**SETTINGS, FACTOR: "2"}) as brokers, caplog.at_level(logging.ERROR):
        for _ in range(3):
            (found,) = find(brokers.ports[1], "g")
            assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert FACTOR in found.error_message
        (line,) = [record for record in caplog.records if FACTOR in record.getMessage()]
        assert CONSUMER_OFFSETS_TOPIC in line.getMessage()
        brokers.start(2)
        (found,) = find(brokers.ports[1], "g")
        assert found.error_code == ErrorCode.NONE


@pytest.mark.parametrize("given", [{}, {FACTOR: "3"}], ids=["by default", "with a setting for a cluster"])
def test_a_standalone_broker_has_one_replica_of_its_offsets_topic(tmp_path: Path, given: dict[str, str]) -> None:
    with BrokerThread(tmp_path / "data", given) as thread, GroupClient(thread.port) as client:
        client.find()
        assert [row.replica_nodes for row in client.topic(CONSUMER_OFFSETS_TOPIC).partitions] == [[1]] * 50
        resource = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=[FACTOR])
        (row,) = client.ask(DescribeConfigsRequest(resources=[resource]), 4).results[0].configs
        assert row.value == "1"
