"""Metadata: which topics there are, by name, by id and all of them; which are created on the way."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from skylog.errors import ErrorCode
from skylog.protocol.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from skylog.protocol.schema import ZERO_UUID

from .conftest import MakeTopic
from .process import BrokerProcess
from .raw import RawClient

VERSIONS = range(13)


def names(response: MetadataResponse) -> set[str | None]:
    return {topic.name for topic in response.topics}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_returns_broker_topic_and_leader(
    broker: BrokerProcess, client: RawClient, make_topic: MakeTopic, version: int
) -> None:
    topic = make_topic(partitions=2)
    response = client.metadata(topic, version=version)
    assert [(each.node_id, each.host, each.port) for each in response.brokers] == [(1, "127.0.0.1", broker.port)]
    if version >= 1:
        assert response.controller_id == 1
    if version >= 2:
        assert response.cluster_id
    (found,) = response.topics
    assert (found.error_code, found.name, found.is_internal) == (0, topic, False)
    assert [(row.partition_index, row.leader_id, row.error_code) for row in found.partitions] == [(0, 1, 0), (1, 1, 0)]
    assert all(row.replica_nodes == row.isr_nodes == [1] for row in found.partitions)
    if version >= 7:
        assert [row.leader_epoch for row in found.partitions] == [0, 0]
    assert (found.topic_id != ZERO_UUID) == (version >= 10)


def test_version_0_takes_an_empty_list_for_all(client: RawClient, make_topic: MakeTopic) -> None:
    wanted = {make_topic(), make_topic()}
    assert wanted <= names(client.ask(MetadataRequest(topics=[]), 0))


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_later_versions_take_null_for_all_and_an_empty_list_for_none(
    client: RawClient, make_topic: MakeTopic, version: int
) -> None:
    topic = make_topic()
    assert topic in names(client.ask(MetadataRequest(topics=None), version))
    response = client.ask(MetadataRequest(topics=[]), version)
    assert response.topics == []
    assert len(response.brokers) == 1


def test_version_12_finds_a_topic_by_its_id(client: RawClient, make_topic: MakeTopic) -> None:
    topic = client.topic(make_topic())
    (found,) = client.ask(MetadataRequest(topics=[MetadataRequestTopic(topic_id=topic.topic_id, name=None)]), 12).topics
    assert found == topic


def test_an_unknown_id_is_answered_as_such(client: RawClient) -> None:
    wanted = uuid.uuid4()
    (found,) = client.ask(MetadataRequest(topics=[MetadataRequestTopic(topic_id=wanted, name=None)]), 12).topics
    assert (found.error_code, found.name, found.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, None, wanted)


@pytest.mark.parametrize("version", [10, 11])
def test_ids_without_names_are_refused_before_version_12(
    client: RawClient, make_topic: MakeTopic, version: int
) -> None:
    for topic_id in (uuid.uuid4(), client.topic(make_topic()).topic_id):
        request = MetadataRequest(topics=[MetadataRequestTopic(topic_id=topic_id, name=None)])
        (found,) = client.ask(request, version).topics
        assert found.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_is_created_where_the_request_allows_it(client: RawClient, new_name: str, version: int) -> None:
    if version >= 4:
        refused = client.ask(
            MetadataRequest(topics=[MetadataRequestTopic(name=new_name)], allow_auto_topic_creation=False), version
        )
        assert refused.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert new_name not in names(client.metadata())
    (made,) = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=new_name)]), version).topics
    assert made.error_code in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE)
    assert len(client.topic(new_name).partitions) == 1


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/b", "a\0b", "a b", "naïve", "x" * 250, "a\nb", "/etc/passwd", "C:\\x"]
)
@pytest.mark.parametrize("create", [True, False])
def test_an_invalid_name_is_refused_and_not_created(
    broker: BrokerProcess, client: RawClient, name: str, create: bool
) -> None:
    before = sorted(Path(broker.data_dir).iterdir())
    (found,) = client.metadata(name, create=create).topics
    assert found.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert name not in names(client.metadata())
    assert sorted(Path(broker.data_dir).iterdir()) == before


def test_a_name_that_differs_in_dots_and_underscores_only_is_refused(client: RawClient, new_name: str) -> None:
    client.metadata(new_name + ".a_b", create=True)
    (found,) = client.metadata(new_name + "_a.b", create=True).topics
    assert found.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_without_auto_create_metadata_requests_create_no_topic(tmp_path: Path) -> None:
    settings = {"auto.create.topics.enable": "false", "num.partitions": "3"}
    with BrokerProcess(tmp_path / "data", settings) as broker, RawClient(broker.port) as client:
        for version in (0, 3, 12):
            (found,) = client.metadata("wanted", version=version, create=True).topics
            assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert client.metadata().topics == []


def test_the_number_of_partitions_of_a_created_topic_is_a_setting(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", {"num.partitions": "3"}) as broker, RawClient(broker.port) as client:
        client.metadata("wanted", create=True)
        assert len(client.topic("wanted").partitions) == 3
