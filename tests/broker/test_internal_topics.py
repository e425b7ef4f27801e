"""Internal topics belong to the broker: no admin API may take committed offsets away."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from kafka.admin import KafkaAdminClient
from kafka.errors import InvalidTopicError

from skylog.errors import ErrorCode
from skylog.model import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from skylog.protocol import alter_configs as whole
from skylog.protocol import incremental_alter_configs as incremental
from skylog.protocol.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from skylog.protocol.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from skylog.protocol.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from skylog.protocol.delete_topics import DeleteTopicsRequest, DeleteTopicState
from skylog.protocol.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from skylog.protocol.schema import Message
from tests.groups.client import GroupClient

from .conftest import create_topic
from .process import BrokerProcess
from .raw import RawClient, batch_of, produce_request

TOPIC = 2
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
GROUPS = [f"group-{number}" for number in range(20)]


def set_configs(name: str, *changes: tuple[str, int, str | None]) -> Message:
    rows = [incremental.AlterableConfig(name=key, config_operation=op, value=value) for key, op, value in changes]
    resource = incremental.AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=rows)
    return incremental.IncrementalAlterConfigsRequest(resources=[resource])


def replace_configs(name: str, **configs: str) -> Message:
    rows = [whole.AlterableConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    return whole.AlterConfigsRequest(
        resources=[whole.AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=rows)]
    )


def delete_records(name: str, partitions: range) -> Message:
    rows = [DeleteRecordsPartition(partition_index=index, offset=-1) for index in partitions]
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=name, partitions=rows)], timeout_ms=1000)


def grow(name: str, count: int) -> Message:
    return CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=name, count=count)], timeout_ms=1000)


def delete(name: str) -> Message:
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=1000)


def create(name: str, partitions: int = 1, **configs: str) -> CreateTopicsRequest:
    rows = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=rows)
    return CreateTopicsRequest(topics=[topic])


INVALID_TOPIC, INVALID_CONFIG = ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.INVALID_CONFIG
ATTEMPTS: list[tuple[str, Callable[[str], Message], int, ErrorCode]] = [
    ("DeleteRecords", lambda name: delete_records(name, range(50)), 2, INVALID_TOPIC),
    ("CreatePartitions", lambda name: grow(name, 60), 3, INVALID_TOPIC),
    ("DeleteTopics", delete, 6, INVALID_TOPIC),
    ("CreateTopics", create, 7, ErrorCode.TOPIC_ALREADY_EXISTS),
    ("AlterConfigs to nothing", replace_configs, 2, INVALID_CONFIG),
    ("AlterConfigs to delete", lambda name: replace_configs(name, cleanup_policy="delete"), 2, INVALID_CONFIG),
    ("set delete", lambda name: set_configs(name, ("cleanup.policy", SET, "delete")), 1, INVALID_CONFIG),
    ("append delete", lambda name: set_configs(name, ("cleanup.policy", APPEND, "delete")), 1, INVALID_CONFIG),
    ("subtract compact", lambda name: set_configs(name, ("cleanup.policy", SUBTRACT, "compact")), 1, INVALID_CONFIG),
    ("unset the policy", lambda name: set_configs(name, ("cleanup.policy", DELETE, None)), 1, INVALID_CONFIG),
    ("Produce", lambda name: produce_request(name, batch_of(b"x")), 9, INVALID_TOPIC),
]


def codes(response: Any) -> set[ErrorCode]:
    """Every error code in a response, however deep."""
    found: set[ErrorCode] = set()
    rows = [response]
    while rows:
        row = rows.pop()
        if isinstance(row, list):
            rows += row
        elif hasattr(row, "__dataclass_fields__"):
            if hasattr(row, "error_code"):
                found.add(ErrorCode(row.error_code))
            rows += [getattr(row, name) for name in row.__dataclass_fields__]
    return found


def test_no_admin_api_takes_a_committed_offset_away(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        with GroupClient(broker.port) as client:
            create_topic(client, "t")
            for number, group in enumerate(GROUPS):
                client.find(group)
                assert client.commit(number, group=group) == 0
            assert codes(client.ask(create(TRANSACTION_STATE_TOPIC, 50), 7)) == {ErrorCode.NONE}
            for name in (CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC):
                for attempt, request, version, code in ATTEMPTS:
                    assert codes(client.ask(request(name), version)) - {ErrorCode.NONE} == {code}, (attempt, name)
                assert len(client.topic(name).partitions) == 50
        broker.restart()
        with GroupClient(broker.port) as client:
            for number, group in enumerate(GROUPS):
                assert client.committed(group) == {("t", 0): (number, "")}
    assert not broker.tracebacks()


def config_of(client: RawClient, topic: str, key: str) -> str:
    resource = DescribeConfigsResource(resource_type=TOPIC, resource_name=topic, configuration_keys=[key])
    value: str = client.ask(DescribeConfigsRequest(resources=[resource]), 4).results[0].configs[0].value
    return value


def test_other_configs_of_an_internal_topic_may_be_changed(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker, GroupClient(broker.port) as client:
        client.find()
        change = set_configs(CONSUMER_OFFSETS_TOPIC, ("segment.bytes", SET, "5000000"))
        assert codes(client.ask(change, 1)) == {ErrorCode.NONE}
        change = replace_configs(CONSUMER_OFFSETS_TOPIC, cleanup_policy="compact", segment_bytes="6000000")
        assert codes(client.ask(change, 2)) == {ErrorCode.NONE}
        assert config_of(client, CONSUMER_OFFSETS_TOPIC, "segment.bytes") == "6000000"


@pytest.mark.parametrize("how", ["CreateTopics", "Metadata"])
def test_an_offsets_topic_that_a_client_creates_is_compacted(tmp_path: Path, how: str) -> None:
    with BrokerProcess(tmp_path / "data") as broker, GroupClient(broker.port) as client:
        if how == "Metadata":
            client.metadata(CONSUMER_OFFSETS_TOPIC, create=True)
            partitions = 50
        else:
            refused = create(CONSUMER_OFFSETS_TOPIC, 7, cleanup_policy="delete")
            assert codes(client.ask(refused, 7)) == {INVALID_CONFIG}
            result = client.ask(create(CONSUMER_OFFSETS_TOPIC, 7), 7).topics[0]
            assert result.error_code == 0
            assert ("cleanup.policy", "compact") in [(each.name, each.value) for each in result.configs]
            partitions = 7
        assert len(client.topic(CONSUMER_OFFSETS_TOPIC).partitions) == partitions
        assert config_of(client, CONSUMER_OFFSETS_TOPIC, "cleanup.policy") == "compact"
        assert config_of(client, CONSUMER_OFFSETS_TOPIC, "segment.bytes") == "104857600"
        create_topic(client, "t")
        client.find()
        assert client.commit(3) == 0
        assert client.committed() == {("t", 0): (3, "")}


@pytest.mark.parametrize("how", ["CreateTopics", "Metadata"])
def test_the_name_of_the_metadata_log_is_reserved(client: RawClient, how: str) -> None:
    if how == "CreateTopics":
        response = client.ask(create("__cluster_metadata"), 7)
    else:
        response = client.metadata("__cluster_metadata", create=True)
    assert codes(response.topics) == {INVALID_TOPIC}
    assert "__cluster_metadata" not in {topic.name for topic in client.metadata().topics}


@pytest.mark.parametrize(("policy", "code"), [("compact", ErrorCode.POLICY_VIOLATION), ("compact,delete", 0)])
def test_records_of_a_topic_that_is_only_compacted_cannot_be_deleted(
    client: RawClient, new_name: str, policy: str, code: int
) -> None:
    create_topic(client, new_name, configs={"cleanup_policy": policy})
    client.produce(new_name, batch_of(b"x"))
    response = client.ask(delete_records(new_name, range(1)), 2)
    assert codes(response) == {ErrorCode(code)}
    assert client.list_offset(new_name, -2).offset == (0 if code else 1)


def test_confluent_kafka_cannot_change_an_internal_topic(broker: BrokerProcess) -> None:
    with GroupClient(broker.port) as client:
        client.find()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    name = CONSUMER_OFFSETS_TOPIC
    attempts: list[Mapping[Any, Future[Any]]] = [
        admin.create_partitions([NewPartitions(name, 60)]),
        admin.delete_topics([name]),
        admin.delete_records([TopicPartition(name, 0, -1)]),
    ]
    for futures in attempts:
        for future in futures.values():
            with pytest.raises(KafkaException) as caught:
                future.result(10)
            assert caught.value.args[0].code() == INVALID_TOPIC


def test_kafka_python_cannot_change_an_internal_topic(broker: BrokerProcess) -> None:
    with GroupClient(broker.port) as client:
        client.find()
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        with pytest.raises(InvalidTopicError):
            admin.delete_topics([CONSUMER_OFFSETS_TOPIC])
    finally:
        admin.close()
