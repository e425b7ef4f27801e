"""CreateTopics, DeleteTopics, CreatePartitions and DeleteRecords, with everything that may be wrong with them."""

from __future__ import annotations

import resource
import uuid
from pathlib import Path
from typing import Any

import pytest

from skylog.errors import ErrorCode
from skylog.protocol.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from skylog.protocol.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from skylog.protocol.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from skylog.protocol.delete_topics import DeleteTopicsRequest, DeleteTopicState
from skylog.protocol.schema import ZERO_UUID

from .conftest import MakeTopic, create_topic
from .process import BrokerProcess, until
from .raw import RawClient, batch_of, values_in


def wanted(name: str, partitions: int = 1, replicas: int = 1, **others: Any) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, **others)


def create(client: RawClient, topic: CreatableTopic, version: int = 7, dry: bool = False) -> CreatableTopicResult:
    (result,) = client.ask(CreateTopicsRequest(topics=[topic], validate_only=dry), version).topics
    found: CreatableTopicResult = result
    return found


def delete(client: RawClient, name: str | None, topic_id: uuid.UUID = ZERO_UUID, version: int = 6) -> Any:
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name, topic_id=topic_id)] if version >= 6 else [],
        topic_names=[name or ""] if version < 6 else [],
        timeout_ms=1000,
    )
    (result,) = client.ask(request, version).responses
    return result


def known(client: RawClient, name: str) -> bool:
    return any(topic.name == name for topic in client.metadata().topics)


@pytest.mark.parametrize("version", range(2, 8))
def test_every_version_creates_a_topic(client: RawClient, new_name: str, version: int) -> None:
    configs = [CreatableTopicConfig(name="retention.ms", value="1234")]
    result = create(client, wanted(new_name, 3, configs=configs), version)
    assert (result.error_code, result.error_message) == (0, None)
    topic = client.topic(new_name)
    assert len(topic.partitions) == 3
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        assert result.configs is not None
        assert ("retention.ms", "1234") in [(config.name, config.value) for config in result.configs]
    if version >= 7:
        assert result.topic_id == topic.topic_id


@pytest.mark.parametrize("version", range(2, 8))
def test_validate_only_checks_and_creates_nothing(client: RawClient, new_name: str, version: int) -> None:
    assert create(client, wanted(new_name, 2), version, dry=True).error_code == 0
    assert not known(client, new_name)
    assert create(client, wanted("a/b"), version, dry=True).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def assigned(*rows: list[int]) -> list[CreatableReplicaAssignment]:
    return [CreatableReplicaAssignment(partition_index=index, broker_ids=ids) for index, ids in enumerate(rows)]


NEW_TOPICS: list[Any] = [
    (wanted("new", -1, -1), ErrorCode.NONE),
    (wanted("new", -1, -1, assignments=assigned([1], [1])), ErrorCode.NONE),
    (wanted("new", 0), ErrorCode.INVALID_PARTITIONS),
    (wanted("new", -2), ErrorCode.INVALID_PARTITIONS),
    (wanted("new", 2**31 - 1), ErrorCode.INVALID_PARTITIONS),
    (wanted("new", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
    (wanted("new", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
    (wanted("new", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
    (wanted("new", 1, 1, assignments=assigned([1])), ErrorCode.INVALID_REQUEST),
    (wanted("new", -1, -1, assignments=assigned([2])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    (wanted("new", -1, -1, assignments=assigned([1, 1])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    (wanted("new", -1, -1, assignments=assigned([])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    (wanted("new", configs=[CreatableTopicConfig(name="no.such.key", value="1")]), ErrorCode.INVALID_CONFIG),
    (wanted("new", configs=[CreatableTopicConfig(name="retention.ms", value="soon")]), ErrorCode.INVALID_CONFIG),
    (wanted("new", configs=[CreatableTopicConfig(name="retention.ms", value=None)]), ErrorCode.INVALID_CONFIG),
    (wanted("new", configs=[CreatableTopicConfig(name="cleanup.policy", value="burn")]), ErrorCode.INVALID_CONFIG),
    (wanted(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (wanted(".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (wanted("../up"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (wanted("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
]


@pytest.mark.parametrize(("topic", "code"), NEW_TOPICS)
def test_a_topic_is_checked_before_it_is_created(client: RawClient, topic: CreatableTopic, code: ErrorCode) -> None:
    result = create(client, topic)
    assert ErrorCode(result.error_code) == code
    if code:
        assert result.error_message
        assert not known(client, topic.name)
    else:
        assert delete(client, topic.name).error_code == 0


def test_a_name_that_is_taken_or_repeated_is_refused(client: RawClient, make_topic: MakeTopic, new_name: str) -> None:
    assert create(client, wanted(make_topic())).error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    (result,) = client.ask(CreateTopicsRequest(topics=[wanted(new_name), wanted(new_name)]), 7).topics
    assert (result.name, result.error_code) == (new_name, ErrorCode.INVALID_REQUEST)
    assert not known(client, new_name)


@pytest.mark.parametrize("version", range(1, 7))
def test_every_version_deletes_by_name(
    broker: BrokerProcess, client: RawClient, make_topic: MakeTopic, version: int
) -> None:
    topic = make_topic(partitions=2)
    client.produce(topic, batch_of(b"x"))
    result = delete(client, topic, version=version)
    assert (result.error_code, result.name) == (0, topic)
    assert not known(client, topic)
    assert client.produce(topic, batch_of(b"x")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert delete(client, topic, version=version).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    until(
        lambda: not [path for path in broker.data_dir.iterdir() if path.name.startswith(topic + "-")], "the files to go"
    )


def test_version_6_deletes_by_id(client: RawClient, make_topic: MakeTopic) -> None:
    topic = client.topic(make_topic())
    result = delete(client, None, topic.topic_id)
    assert (result.error_code, result.name, result.topic_id) == (0, topic.name, topic.topic_id)
    assert delete(client, None, topic.topic_id).error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_topic_that_is_named_twice_is_not_deleted_and_answered_once(client: RawClient, make_topic: MakeTopic) -> None:
    topic = make_topic()
    by_name, by_id = DeleteTopicState(name=topic), DeleteTopicState(name=None, topic_id=client.topic(topic).topic_id)
    both = DeleteTopicState(name=topic, topic_id=client.topic(topic).topic_id)
    neither = DeleteTopicState(name=None)
    for rows in ([by_name] * 2, [by_id] * 3, [by_name, by_id], [by_id, by_name], [both], [neither]):
        (result,) = client.ask(DeleteTopicsRequest(topics=rows, timeout_ms=1000), 6).responses
        assert result.error_code == ErrorCode.INVALID_REQUEST, rows
    (result,) = client.ask(DeleteTopicsRequest(topic_names=[topic, topic], timeout_ms=1000), 5).responses
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert known(client, topic)


def test_deletion_can_be_forbidden(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", {"delete.topic.enable": "false"}) as broker, RawClient(broker.port) as client:
        create_topic(client, "t")
        assert delete(client, "t", version=2).error_code == ErrorCode.INVALID_REQUEST
        assert delete(client, "t").error_code == ErrorCode.TOPIC_DELETION_DISABLED
        assert known(client, "t")


def test_a_topic_that_is_created_again_is_another_and_empty(client: RawClient, make_topic: MakeTopic) -> None:
    """The same connection continues to produce: state of the old topic must not be used."""
    topic = make_topic()
    old = client.topic(topic)
    for _ in range(3):
        client.produce(topic, batch_of(b"old"))
    delete(client, topic)
    create_topic(client, topic)
    assert client.topic(topic).topic_id != old.topic_id
    assert client.produce(topic, batch_of(b"new")).base_offset == 0
    assert values_in(client.fetch(topic, 0).records) == [(0, b"new")]
    assert client.fetch(old.topic_id, 0, version=13).error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_topic_with_the_longest_name_can_be_deleted_and_created_again(client: RawClient) -> None:
    topic = create_topic(client, "n" * 249)
    client.produce(topic, batch_of(b"old"))
    assert delete(client, topic).error_code == 0
    create_topic(client, topic)
    assert client.end_offset(topic) == 0


def grow(client: RawClient, topic: CreatePartitionsTopic, version: int = 3, dry: bool = False) -> Any:
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=1000, validate_only=dry)
    (result,) = client.ask(request, version).results
    return result


@pytest.mark.parametrize("version", range(4))
def test_every_version_lets_a_topic_grow(client: RawClient, make_topic: MakeTopic, version: int) -> None:
    topic = make_topic()
    client.produce(topic, batch_of(b"x"))
    assert grow(client, CreatePartitionsTopic(name=topic, count=4), version, dry=True).error_code == 0
    assert len(client.topic(topic).partitions) == 1
    assert grow(client, CreatePartitionsTopic(name=topic, count=4), version).error_code == 0
    assert len(client.topic(topic).partitions) == 4
    assert client.produce(topic, batch_of(b"y"), partition=3).base_offset == 0
    assert client.end_offset(topic) == 1


def test_growth_is_checked(client: RawClient, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)

    def code(count: int, rows: list[list[int]] | None = None, name: str = topic) -> int:
        given = None if rows is None else [CreatePartitionsAssignment(broker_ids=ids) for ids in rows]
        found: int = grow(client, CreatePartitionsTopic(name=name, count=count, assignments=given)).error_code
        return found

    assert code(2) == code(1) == code(0) == code(-1) == code(2**31 - 1) == ErrorCode.INVALID_PARTITIONS
    assert code(4, [[1]]) == code(3, [[9]]) == code(3, [[]]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert code(3, name="not-there") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code(3, [[1]]) == 0


def test_a_repeated_topic_has_one_result(client: RawClient, make_topic: MakeTopic) -> None:
    topic = make_topic()
    rows = [CreatePartitionsTopic(name=topic, count=2), CreatePartitionsTopic(name=topic, count=3)]
    (result,) = client.ask(CreatePartitionsRequest(topics=rows, timeout_ms=1000), 3).results
    assert (result.name, result.error_code) == (topic, ErrorCode.INVALID_REQUEST)
    assert len(client.topic(topic).partitions) == 1


def cut(client: RawClient, topic: str, offset: int, partition: int = 0, version: int = 2) -> tuple[int, int]:
    row = DeleteRecordsPartition(partition_index=partition, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[row])], timeout_ms=1000)
    result = client.ask(request, version).topics[0].partitions[0]
    return result.error_code, result.low_watermark


@pytest.mark.parametrize("version", range(3))
def test_every_version_moves_the_start_of_a_log(client: RawClient, make_topic: MakeTopic, version: int) -> None:
    topic = make_topic()
    for n in range(5):
        client.produce(topic, batch_of(b"%d" % n))
    assert cut(client, topic, 2, version=version) == (0, 2)
    assert cut(client, topic, 1, version=version) == (0, 2), "never back"
    assert client.list_offset(topic, -2).offset == 2
    assert cut(client, topic, 6, version=version) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert cut(client, topic, -2, version=version) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert cut(client, topic, -1, version=version) == (0, 5)
    assert cut(client, "not-there", 0, version=version) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert client.produce(topic, batch_of(b"5")).base_offset == 5


def test_a_repeated_partition_is_cut_at_the_last_offset_and_has_one_result(
    client: RawClient, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    for n in range(5):
        client.produce(topic, batch_of(b"%d" % n))
    rows = [DeleteRecordsPartition(partition_index=0, offset=offset) for offset in (4, 2)]
    twice = [DeleteRecordsTopic(name=topic, partitions=rows), DeleteRecordsTopic(name=topic, partitions=rows)]
    (result,) = client.ask(DeleteRecordsRequest(topics=twice, timeout_ms=1000), 2).topics
    assert [(row.partition_index, row.low_watermark) for row in result.partitions] == [(0, 2)]


def test_deleted_records_stay_deleted_after_a_crash(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data")
    with broker:
        with RawClient(broker.port) as client:
            create_topic(client, "t")
            for n in range(5):
                client.produce("t", batch_of(b"%d" % n))
            assert cut(client, "t", 3) == (0, 3)
        broker.kill()
        broker.start()
        with RawClient(broker.port) as client:
            assert client.list_offset("t", -2).offset == 3
            assert client.fetch("t", 2).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_more_partitions_than_the_broker_can_open_are_refused_before_it_is_too_late(tmp_path: Path) -> None:
    """Once they were in the metadata, the broker could never start again."""
    with BrokerProcess(tmp_path / "data") as broker:
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (200, 200))
        with RawClient(broker.port) as client:
            assert create(client, wanted("many", 1000)).error_code == ErrorCode.INVALID_PARTITIONS
            rows = assigned(*[[1]] * 1000)
            assert create(client, wanted("many", -1, -1, assignments=rows)).error_code == ErrorCode.INVALID_PARTITIONS
            create_topic(client, "some", 100)
            growth = CreatePartitionsTopic(name="some", count=1000)
            assert grow(client, growth).error_code == ErrorCode.INVALID_PARTITIONS
            for number in range(100):
                client.metadata(f"more-{number}", create=True)
            assert len(client.metadata().topics) < 60
            assert client.produce("some", batch_of(b"x"), partition=99).error_code == 0
        broker.stop()
        broker.start()
        with RawClient(broker.port) as client:
            assert client.end_offset("some", 99) == 1
    assert not broker.tracebacks()
