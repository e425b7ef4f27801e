"""kafka-python 3."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, OffsetSpec
from kafka.errors import OffsetOutOfRangeError, TopicAlreadyExistsError

from . import contract
from .contract import TIME_MS, MakeTopic, numbered
from .peers.kafka_python import KafkaPythonPeer
from .peers.peer import read, until
from .peers.record import Record


@pytest.fixture(scope="module")
def peer(bootstrap: str) -> Iterator[KafkaPythonPeer]:
    peer = KafkaPythonPeer(bootstrap)
    yield peer
    peer.close()


class TestKafkaPython(
    contract.Produces,
    contract.ProducesIdempotently,
    contract.KeepsCompactedTopicsKeyed,
    contract.Reads,
    contract.LooksUpOffsets,
    contract.AdministersTopics,
    contract.ValidatesTopics,
    contract.DeletesRecords,
    contract.DescribesConfigs,
    contract.AltersConfigs,
):
    pass


def test_a_header_name_may_repeat(peer: KafkaPythonPeer, make_topic: MakeTopic) -> None:
    topic = make_topic()
    record = Record(b"v", headers=(("a", b"1"), ("a", b"2")), timestamp_ms=TIME_MS)
    peer.produce(topic, 0, [record])
    assert read(peer, topic, 0, 1) == [record]


def test_the_default_producer_reports_offset_and_timestamp(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        sent = [producer.send(topic, b"v", timestamp_ms=TIME_MS + n).get(10) for n in range(3)]
    assert [(metadata.partition, metadata.offset, metadata.timestamp) for metadata in sent] == [
        (0, n, TIME_MS + n) for n in range(3)
    ]


def test_the_version_of_the_broker_is_recognised(bootstrap: str) -> None:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap)
    try:
        consumer.topics()
        assert consumer.config["api_version"] >= (2, 5)
    finally:
        consumer.close()


def test_reading_out_of_range_without_a_reset_policy_is_an_error(peer: KafkaPythonPeer, make_topic: MakeTopic) -> None:
    topic = make_topic()
    peer.produce(topic, 0, numbered(1))
    with peer.open(topic, 0, 99) as reader, pytest.raises(OffsetOutOfRangeError):
        reader.take(1)


def test_beginning_and_end_offsets_of_several_partitions(peer: KafkaPythonPeer, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=3)
    peer.produce(topic, 0, numbered(5))
    peer.produce(topic, 2, numbered(3))
    peer.delete_records(topic, 2, before=2)
    places = [TopicPartition(topic, partition) for partition in range(3)]
    consumer = KafkaConsumer(bootstrap_servers=peer.bootstrap)
    try:
        assert consumer.beginning_offsets(places) == dict(zip(places, [0, 0, 2], strict=True))
        assert consumer.end_offsets(places) == dict(zip(places, [5, 0, 3], strict=True))
        assert consumer.partitions_for_topic(topic) == {0, 1, 2}
    finally:
        consumer.close()


def test_the_record_with_the_largest_timestamp_is_found(peer: KafkaPythonPeer, make_topic: MakeTopic) -> None:
    topic = make_topic()
    times = [TIME_MS, TIME_MS + 9, TIME_MS + 5]
    peer.produce(topic, 0, [Record(b"v", timestamp_ms=time_ms) for time_ms in times])
    place = TopicPartition(topic, 0)
    assert peer.admin.list_partition_offsets({place: OffsetSpec.MAX_TIMESTAMP})[place].offset == 1


def test_a_topic_is_described_by_its_id(peer: KafkaPythonPeer, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    (by_name,) = peer.admin.describe_topics([topic])
    (by_id,) = peer.admin.describe_topics([UUID(by_name["topic_id"])])
    assert by_id["name"] == topic
    assert len(by_id["partitions"]) == 2


def test_topics_with_an_explicit_assignment_are_created(peer: KafkaPythonPeer, new_name: str) -> None:
    broker_id = peer.cluster().controller_id
    peer.admin.create_topics({new_name: {"assignments": {0: [broker_id], 1: [broker_id]}}})
    until(lambda: new_name in peer.topics(), "the new topic in the metadata")
    assert peer.partition_count(new_name) == 2


def test_one_bad_topic_does_not_stop_the_others(peer: KafkaPythonPeer, make_topic: MakeTopic, new_name: str) -> None:
    existing = make_topic()
    with pytest.raises(TopicAlreadyExistsError):
        peer.admin.create_topics({existing: {}, new_name: {}})
    until(lambda: new_name in peer.topics(), "the good topic in the metadata")


def test_config_synonyms_tell_where_a_value_comes_from(peer: KafkaPythonPeer, make_topic: MakeTopic) -> None:
    topic = make_topic(config={"retention.ms": "3600000"})
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": None})
    described = peer.admin.describe_configs([resource], include_synonyms=True, config_filter="all")["topic"][topic]
    assert set(described) == {"retention.ms"}
    assert described["retention.ms"]["config_source"] == "DYNAMIC_TOPIC_CONFIG"
    synonyms = [(synonym["source"], synonym["value"]) for synonym in described["retention.ms"]["synonyms"]]
    assert synonyms[0] == ("DYNAMIC_TOPIC_CONFIG", "3600000")


def test_the_log_directories_are_described(peer: KafkaPythonPeer, make_topic: MakeTopic) -> None:
    topic = make_topic()
    peer.produce(topic, 0, numbered(10))
    sizes = [
        partition["partition_size"]
        for broker in peer.admin.describe_log_dirs()
        for directory in broker["log_dirs"]
        for described in directory["topics"]
        if described["name"] == topic
        for partition in described["partitions"]
    ]
    assert len(sizes) == 1
    assert sizes[0] > 0
