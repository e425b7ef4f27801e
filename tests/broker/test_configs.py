"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, DescribeCluster and DescribeLogDirs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from skylog.broker.config import broker_keys
from skylog.config import settings
from skylog.errors import ErrorCode
from skylog.protocol import alter_configs as whole
from skylog.protocol import incremental_alter_configs as incremental
from skylog.protocol.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from skylog.protocol.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from skylog.protocol.delete_topics import DeleteTopicsRequest, DeleteTopicState
from skylog.protocol.describe_cluster import DescribeClusterRequest
from skylog.protocol.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from skylog.protocol.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from skylog.storage import LogConfig
from tests.patience import patience

from .conftest import MakeTopic, create_topic
from .process import BrokerProcess
from .raw import RawClient, batch_of

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
FROM_TOPIC, FROM_BROKER, FROM_DEFAULT = 1, 4, 5


def describe(
    client: RawClient, kind: int, name: str, *, keys: list[str] | None = None, version: int = 4, **options: bool
) -> Any:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    (result,) = client.ask(DescribeConfigsRequest(resources=[resource], **options), version).results
    return result


def value(client: RawClient, topic: str, key: str) -> str:
    (config,) = describe(client, TOPIC, topic, keys=[key]).configs
    found: str = config.value
    return found


@pytest.mark.parametrize("version", range(1, 5))
def test_every_key_of_a_topic_is_described_with_its_source_and_type(
    client: RawClient, make_topic: MakeTopic, version: int
) -> None:
    topic = make_topic(retention_ms="4321", cleanup_policy="compact,delete")
    result = describe(client, TOPIC, topic, version=version, include_synonyms=True, include_documentation=True)
    assert (result.error_code, result.resource_type, result.resource_name) == (0, TOPIC, topic)
    found = {config.name: config for config in result.configs}
    assert set(found) == set(settings(LogConfig))
    assert (found["retention.ms"].value, found["retention.ms"].config_source) == ("4321", FROM_TOPIC)
    assert [each.source for each in found["retention.ms"].synonyms] == [FROM_TOPIC, FROM_DEFAULT]
    assert (found["segment.bytes"].value, found["segment.bytes"].config_source) == ("1073741824", FROM_DEFAULT)
    assert found["cleanup.policy"].value == "compact,delete"
    if version >= 3:
        assert found["retention.ms"].config_type == 5
        assert found["cleanup.policy"].config_type == 7
        assert all(config.documentation for config in found.values())


def test_version_0_marks_defaults_instead_of_naming_the_source(client: RawClient, make_topic: MakeTopic) -> None:
    result = describe(client, TOPIC, make_topic(retention_ms="4321"), version=0)
    found = {config.name: config for config in result.configs}
    assert set(found) == set(settings(LogConfig))
    assert (found["retention.ms"].value, found["retention.ms"].is_default) == ("4321", False)
    assert (found["segment.bytes"].value, found["segment.bytes"].is_default) == ("1073741824", True)


@pytest.mark.parametrize("version", range(5))
def test_every_key_of_the_broker_is_described(client: RawClient, version: int) -> None:
    result = describe(client, BROKER, "1", version=version)
    assert result.error_code == 0
    assert {config.name for config in result.configs} <= set(broker_keys())
    assert {"num.partitions", "log.retention.ms", "socket.request.max.bytes"} <= {each.name for each in result.configs}


def test_unknown_resources_have_no_configuration(client: RawClient) -> None:
    assert describe(client, TOPIC, "not-there").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert describe(client, BROKER, "7").error_code == ErrorCode.INVALID_REQUEST
    assert describe(client, 99, "x").error_code == ErrorCode.INVALID_REQUEST
    assert describe(client, TOPIC, "../x").error_code != 0


def test_an_empty_list_of_keys_means_all_keys(client: RawClient, make_topic: MakeTopic) -> None:
    topic = make_topic()
    assert describe(client, TOPIC, topic, keys=[]) == describe(client, TOPIC, topic)


def test_many_topics_are_described_as_each_alone(client: RawClient) -> None:
    """An answer of this length is not encoded on the event loop."""
    names = [f"many-{number}" for number in range(200)]
    wanted = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    created = client.ask(CreateTopicsRequest(topics=wanted), 7).topics
    assert [(each.name, each.error_code) for each in created] == [(name, 0) for name in names]
    assert all(each.configs == created[0].configs for each in created)
    alter_one(client, names[7], [("retention.ms", SET, "7")])
    resources = [DescribeConfigsResource(resource_type=TOPIC, resource_name=name) for name in names]
    results = client.ask(DescribeConfigsRequest(resources=resources), 4).results
    assert [each.resource_name for each in results] == names
    assert results[7] == describe(client, TOPIC, names[7])
    assert results[8] == describe(client, TOPIC, names[8])
    client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names], timeout_ms=1000), 6)


@pytest.mark.parametrize("kind", [TOPIC, BROKER])
def test_a_repeated_resource_has_one_result_and_does_not_block_others(
    broker: BrokerProcess, client: RawClient, make_topic: MakeTopic, kind: int
) -> None:
    name = make_topic() if kind == TOPIC else "1"
    resources = [DescribeConfigsResource(resource_type=kind, resource_name=name)] * 10_000
    client.send(DescribeConfigsRequest(resources=resources, include_synonyms=True), 4)
    with RawClient(broker.port) as other:
        began = time.perf_counter()
        other.metadata()
        assert time.perf_counter() - began < patience(0.25)
    (result,) = client.receive().results
    assert (result.error_code, result.resource_name) == (0, name)


def alter_one(client: RawClient, topic: str, changes: list[tuple[str, int, str | None]], **options: Any) -> Any:
    version = options.pop("version", 1)
    configs = [incremental.AlterableConfig(name=key, config_operation=op, value=text) for key, op, text in changes]
    resource = incremental.AlterConfigsResource(
        resource_type=options.pop("kind", TOPIC), resource_name=topic, configs=configs
    )
    request = incremental.IncrementalAlterConfigsRequest(resources=[resource], **options)
    (result,) = client.ask(request, version).responses
    return result


@pytest.mark.parametrize("version", range(2))
def test_single_keys_are_set_deleted_and_changed_as_lists(
    client: RawClient, make_topic: MakeTopic, version: int
) -> None:
    topic = make_topic(segment_bytes="2000")

    def alter(*changes: tuple[str, int, str | None]) -> None:
        assert alter_one(client, topic, list(changes), version=version).error_code == 0

    alter(("retention.ms", SET, "5"), ("flush.ms", SET, "7"))
    assert (value(client, topic, "retention.ms"), value(client, topic, "flush.ms")) == ("5", "7")
    assert value(client, topic, "segment.bytes") == "2000"
    alter(("retention.ms", DELETE, None))
    assert value(client, topic, "retention.ms") == "604800000"
    alter(("cleanup.policy", APPEND, "compact"))
    assert value(client, topic, "cleanup.policy") == "delete,compact"
    alter(("cleanup.policy", SUBTRACT, "delete"))
    assert value(client, topic, "cleanup.policy") == "compact"


BAD_CHANGES: list[Any] = [
    ([("no.such.key", SET, "1")], ErrorCode.INVALID_CONFIG),
    ([("retention.ms", SET, "soon")], ErrorCode.INVALID_CONFIG),
    ([("retention.ms", SET, "-2")], ErrorCode.INVALID_CONFIG),
    ([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
    ([("retention.ms", SET, str(2**70))], ErrorCode.INVALID_CONFIG),
    ([("segment.bytes", SET, str(2**31))], ErrorCode.INVALID_CONFIG),
    ([("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG),
    ([("cleanup.policy", APPEND, "burn")], ErrorCode.INVALID_CONFIG),
    ([("retention.ms", 9, "1")], ErrorCode.INVALID_REQUEST),
    ([("retention.ms", SET, "1"), ("retention.ms", SET, "2")], ErrorCode.INVALID_REQUEST),
]


@pytest.mark.parametrize(("changes", "code"), BAD_CHANGES)
def test_a_change_that_does_not_fit_changes_nothing(
    client: RawClient, make_topic: MakeTopic, changes: list[Any], code: ErrorCode
) -> None:
    topic = make_topic()
    before = describe(client, TOPIC, topic)
    result = alter_one(client, topic, [("flush.ms", SET, "1"), *changes])
    assert ErrorCode(result.error_code) == code
    assert result.error_message
    assert describe(client, TOPIC, topic) == before


def test_validate_only_changes_nothing(client: RawClient, make_topic: MakeTopic) -> None:
    topic = make_topic()
    assert alter_one(client, topic, [("retention.ms", SET, "5")], validate_only=True).error_code == 0
    assert value(client, topic, "retention.ms") == "604800000"


def test_only_topics_that_exist_can_be_altered(client: RawClient) -> None:
    assert alter_one(client, "not-there", []).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert alter_one(client, "1", [("num.partitions", SET, "2")], kind=BROKER).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", range(3))
def test_alter_configs_replaces_all_of_a_topics_keys(client: RawClient, make_topic: MakeTopic, version: int) -> None:
    topic = make_topic(segment_bytes="2000")

    def alter(dry: bool, **configs: str | None) -> int:
        rows = [whole.AlterableConfig(name=key.replace("_", "."), value=text) for key, text in configs.items()]
        resource = whole.AlterConfigsResource(resource_type=TOPIC, resource_name=topic, configs=rows)
        request = whole.AlterConfigsRequest(resources=[resource], validate_only=dry)
        code: int = client.ask(request, version).responses[0].error_code
        return code

    assert alter(True, retention_ms="9") == 0
    assert value(client, topic, "segment.bytes") == "2000"
    assert alter(False, retention_ms="9") == 0
    assert (value(client, topic, "retention.ms"), value(client, topic, "segment.bytes")) == ("9", "1073741824")
    assert alter(False, no_such_key="1") == ErrorCode.INVALID_CONFIG
    assert value(client, topic, "retention.ms") == "9"


def test_a_changed_config_is_in_force_at_once(client: RawClient, make_topic: MakeTopic) -> None:
    topic = make_topic()
    for _ in range(2):
        assert client.produce(topic, batch_of(bytes(500))).error_code == 0
    alter_one(client, topic, [("max.message.bytes", SET, "200")])
    assert client.produce(topic, batch_of(bytes(500))).error_code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("version", range(2))
def test_the_cluster_is_described(broker: BrokerProcess, client: RawClient, version: int) -> None:
    response = client.ask(DescribeClusterRequest(), version)
    assert (response.error_code, response.controller_id) == (0, 1)
    assert response.cluster_id == client.metadata().cluster_id
    assert [(each.broker_id, each.host, each.port) for each in response.brokers] == [(1, "127.0.0.1", broker.port)]


def test_controllers_do_not_listen_here(client: RawClient) -> None:
    response = client.ask(DescribeClusterRequest(endpoint_type=2), 1)
    assert (response.error_code, response.brokers) == (ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, [])


@pytest.mark.parametrize("version", range(1, 5))
def test_log_dirs_have_the_size_of_each_log(
    broker: BrokerProcess, client: RawClient, make_topic: MakeTopic, version: int
) -> None:
    topic = make_topic(partitions=2)
    batch = batch_of(b"x" * 100)
    for _ in range(3):
        client.produce(topic, batch, partition=1)
    some = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=topic, partitions=[1, 7])])
    (result,) = client.ask(some, version).results
    assert (result.error_code, Path(result.log_dir)) == (0, broker.data_dir)
    rows = [(each.name, row.partition_index, row.partition_size) for each in result.topics for row in each.partitions]
    assert rows == [(topic, 1, 3 * len(batch))]
    if version >= 4:
        assert result.total_bytes >= result.usable_bytes > 0
    (result,) = client.ask(DescribeLogDirsRequest(topics=None), version).results
    assert topic in {each.name for each in result.topics}
    (result,) = client.ask(DescribeLogDirsRequest(topics=[]), version).results
    assert result.topics == []


LONG = "x" * 32_760
LONG_WORDS: list[Any] = [
    (DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=TOPIC, resource_name=LONG)]), 1),
    (DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=BROKER, resource_name=LONG)]), 1),
    (CreateTopicsRequest(topics=[CreatableTopic(name=LONG, num_partitions=1, replication_factor=1)] * 2), 2),
    (
        CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name="t",
                    num_partitions=1,
                    replication_factor=1,
                    configs=[CreatableTopicConfig(name=LONG, value="1")],
                )
            ]
        ),
        2,
    ),
    (CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=LONG, count=2)], timeout_ms=1), 0),
    *(
        (
            incremental.IncrementalAlterConfigsRequest(
                resources=[
                    incremental.AlterConfigsResource(
                        resource_type=kind,
                        resource_name=name,
                        configs=[incremental.AlterableConfig(name=key, config_operation=operation, value=text)],
                    )
                ]
            ),
            0,
        )
        for kind, name, key, operation, text in [
            (TOPIC, LONG, "retention.ms", SET, "1"),
            (TOPIC, "long", LONG, SET, "1"),
            (TOPIC, "long", LONG, SET, None),
            (TOPIC, "long", LONG, APPEND, "1"),
            (TOPIC, "long", "retention.ms", SET, LONG),
            (BROKER, LONG, "log.retention.ms", SET, "1"),
            (BROKER, "1", LONG, SET, "1"),
            (8, "1", LONG, SET, "INFO"),
        ]
    ),
]


@pytest.mark.parametrize(("request_", "version"), LONG_WORDS)
def test_a_word_as_long_as_the_protocol_allows_is_refused_in_few_words(
    client: RawClient, request_: Any, version: int
) -> None:
    """The reason is a string of the protocol too: with the whole word in it, it could not be sent."""
    if "long" not in {topic.name for topic in client.metadata().topics}:
        create_topic(client, "long")
    response = client.ask(request_, version)
    (row,) = next(getattr(response, field) for field in ("topics", "results", "responses") if hasattr(response, field))
    assert row.error_code != 0
    assert len(row.error_message) < 2000
