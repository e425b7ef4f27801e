"""Cached topic rows of Metadata responses: they match the current state of the topic."""

from __future__ import annotations

from pathlib import Path

from skylog.errors import ErrorCode
from skylog.protocol.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from skylog.protocol.delete_topics import DeleteTopicsRequest, DeleteTopicState
from skylog.protocol.metadata import MetadataRequest

from .conftest import create_topic
from .process import BrokerThread
from .raw import RawClient

VERSIONS = range(13)


def counts(client: RawClient) -> set[int]:
    """The number of partitions of the topic in each version."""
    return {len(topic.partitions) for version in VERSIONS for topic in client.metadata("t", version=version).topics}


def test_a_row_follows_its_topic(tmp_path: Path) -> None:
    with BrokerThread(tmp_path / "data") as broker, RawClient(broker.port) as client:
        create_topic(client, "t", 2)
        assert counts(client) == {2}
        growth = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=3)], timeout_ms=1000)
        assert client.ask(growth, 3).results[0].error_code == ErrorCode.NONE
        assert counts(client) == {3}
        first_id = client.topic("t").topic_id
        deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000)
        assert client.ask(deletion, 6).responses[0].error_code == ErrorCode.NONE
        assert client.topic("t").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        create_topic(client, "t", 1)
        assert counts(client) == {1}
        assert client.topic("t").topic_id != first_id


def test_the_rows_of_a_deleted_topic_are_dropped(tmp_path: Path) -> None:
    with BrokerThread(tmp_path / "data") as broker, RawClient(broker.port) as client:
        for number in range(3):
            create_topic(client, f"t{number}")
            client.ask(MetadataRequest(topics=None), 12)
            client.ask(MetadataRequest(topics=None, include_topic_authorized_operations=True), 9)
            deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name=f"t{number}")], timeout_ms=1000)
            client.ask(deletion, 6)
        assert [rows for rows in broker.broker.topic_rows._rows.values() if rows] == []
