"""confluent-kafka, the Python binding of librdkafka."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import ConfigResource, OffsetSpec, ResourceType

from tests.present import present

from . import contract
from .contract import TIME_MS, MakeTopic, numbered
from .peers.confluent import ConfluentPeer
from .peers.peer import read, until
from .peers.record import Record


@pytest.fixture
def peer(confluent: ConfluentPeer) -> ConfluentPeer:
    return confluent


class TestConfluentKafka(
    contract.Produces,
    contract.ProducesIdempotently,
    contract.KeepsCompactedTopicsKeyed,
    contract.Reads,
    contract.LooksUpOffsets,
    contract.AdministersTopics,
    contract.ValidatesTopics,
    contract.DeletesRecords,
    contract.DescribesConfigs,
    contract.ReplacesConfigs,
    contract.AltersConfigs,
):
    pass


def test_a_header_may_be_null_and_its_name_may_repeat(peer: ConfluentPeer, make_topic: MakeTopic) -> None:
    topic = make_topic()
    record = Record(b"v", headers=(("a", b"1"), ("a", b"2"), ("b", None)), timestamp_ms=TIME_MS)
    peer.produce(topic, 0, [record])
    assert read(peer, topic, 0, 1) == [record]


@pytest.mark.parametrize("acks", ["1", "all"])
def test_the_delivery_report_names_the_offset(bootstrap: str, make_topic: MakeTopic, acks: str) -> None:
    topic = make_topic()
    reports = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": acks})
    for _ in range(3):
        producer.produce(topic, b"v", on_delivery=lambda error, message: reports.append((error, message.offset())))
    producer.flush(10)
    assert reports == [(None, 0), (None, 1), (None, 2)]


def test_watermarks_follow_the_log(peer: ConfluentPeer, make_topic: MakeTopic) -> None:
    topic = make_topic()
    peer.produce(topic, 0, numbered(4))
    peer.delete_records(topic, 0, before=1)
    consumer = peer.consumer()
    try:
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10) == (1, 4)
    finally:
        consumer.close()


@pytest.mark.parametrize(("reset", "first"), [("earliest", 2), ("latest", None)])
def test_an_offset_out_of_range_is_reset_as_configured(
    peer: ConfluentPeer, make_topic: MakeTopic, reset: str, first: int | None
) -> None:
    topic = make_topic()
    peer.produce(topic, 0, numbered(4))
    peer.delete_records(topic, 0, before=2)
    consumer = peer.consumer(**{"auto.offset.reset": reset, "enable.partition.eof": True})
    try:
        consumer.assign([TopicPartition(topic, 0, 99)])
        message = consumer.poll(10)
        if first is None:
            assert present(present(message).error()).code() == KafkaError._PARTITION_EOF
        else:
            assert present(message).offset() == first
    finally:
        consumer.close()


def test_reading_out_of_range_without_a_reset_policy_is_an_error(peer: ConfluentPeer, make_topic: MakeTopic) -> None:
    topic = make_topic()
    peer.produce(topic, 0, numbered(1))
    consumer = peer.consumer()
    try:
        consumer.assign([TopicPartition(topic, 0, 99)])
        error = present(consumer.poll(10)).error()
        assert present(error).code() == KafkaError._AUTO_OFFSET_RESET
        assert "out of range" in present(error).str()
    finally:
        consumer.close()


def test_the_record_with_the_largest_timestamp_is_found(peer: ConfluentPeer, make_topic: MakeTopic) -> None:
    topic = make_topic()
    times = [TIME_MS, TIME_MS + 9, TIME_MS + 5]
    peer.produce(topic, 0, [Record(b"v", timestamp_ms=time_ms) for time_ms in times])
    (future,) = peer.admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.max_timestamp()}).values()
    assert (future.result(10).offset, future.result(10).timestamp) == (1, TIME_MS + 9)


def test_topics_are_described_with_leaders_replicas_and_ids(peer: ConfluentPeer, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    description = peer.admin.describe_topics(TopicCollection([topic]))[topic].result(10)
    brokers = set(peer.cluster().brokers)
    assert [partition.id for partition in description.partitions] == [0, 1]
    assert {partition.leader.id for partition in description.partitions} <= brokers
    assert {node.id for partition in description.partitions for node in partition.isr} <= brokers
    assert not description.is_internal
    assert str(description.topic_id) not in ("", "AAAAAAAAAAAAAAAAAAAAAA")


def test_describing_an_unknown_topic_is_an_error(peer: ConfluentPeer, new_name: str) -> None:
    future = peer.admin.describe_topics(TopicCollection([new_name]))[new_name]
    with pytest.raises(KafkaException) as failure:
        future.result(10)
    assert failure.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_describing_the_configs_of_an_unknown_topic_is_an_error(peer: ConfluentPeer, new_name: str) -> None:
    resource = ConfigResource(ResourceType.TOPIC, new_name)
    with pytest.raises(KafkaException) as failure:
        peer.admin.describe_configs([resource])[resource].result(10)
    assert failure.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_the_configs_of_a_broker_are_described(peer: ConfluentPeer) -> None:
    broker_id = peer.cluster().controller_id
    resource = ConfigResource(ResourceType.BROKER, str(broker_id))
    configs = peer.admin.describe_configs([resource])[resource].result(10)
    assert configs["num.partitions"].value == "1"
    assert configs["message.max.bytes"].value == "1048588"


def test_asking_a_producer_for_metadata_of_an_unknown_topic_creates_it(
    bootstrap: str, peer: ConfluentPeer, new_name: str
) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.list_topics(new_name, timeout=10)
    until(lambda: new_name in peer.topics(), "the topic created on request")


def test_a_consumer_does_not_create_topics_unless_told_to(peer: ConfluentPeer, new_name: str) -> None:
    consumer = peer.consumer()
    try:
        metadata = consumer.list_topics(new_name, timeout=10).topics[new_name]
    finally:
        consumer.close()
    assert metadata.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert new_name not in peer.topics()


def test_a_consumer_that_is_allowed_to_creates_the_topic(peer: ConfluentPeer, new_name: str) -> None:
    consumer = peer.consumer(**{"allow.auto.create.topics": True})
    try:
        consumer.list_topics(new_name, timeout=10)
        until(lambda: new_name in peer.topics(), "the topic created on request")
    finally:
        consumer.close()


def test_producing_to_an_invalid_topic_name_fails_and_creates_nothing(bootstrap: str, peer: ConfluentPeer) -> None:
    errors: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 5000})
    producer.produce("not/valid", b"v", on_delivery=lambda error, _: errors.append(present(error)))
    producer.flush(15)
    assert [error.code() for error in errors] == [KafkaError.TOPIC_EXCEPTION]
    assert "not/valid" not in peer.topics()


def test_a_message_larger_than_the_fetch_limit_still_arrives(
    bootstrap: str, peer: ConfluentPeer, make_topic: MakeTopic
) -> None:
    topic = make_topic(config={"max.message.bytes": "4000000"})
    record = Record(b"x" * 3_000_000, timestamp_ms=TIME_MS)
    peer.produce(topic, 0, [record])
    limits = {"fetch.message.max.bytes": 1000, "fetch.max.bytes": 1_000_000, "message.max.bytes": 1_000_000}
    consumer: Consumer = peer.consumer(**limits)
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        assert present(consumer.poll(20)).value() == record.value
    finally:
        consumer.close()


def test_one_consumer_reads_many_partitions(peer: ConfluentPeer, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=4)
    for partition in range(4):
        peer.produce(topic, partition, numbered(5, first=10 * partition))
    consumer = peer.consumer()
    try:
        consumer.assign([TopicPartition(topic, partition, 1) for partition in range(4)])
        messages: list[Message] = []

        def has_all() -> bool:
            messages.extend(consumer.consume(16, 0.1))
            return len(messages) == 16

        until(has_all, "all messages")
        found = {(message.partition(), message.offset(), message.value()) for message in messages}
    finally:
        consumer.close()
    assert found == {(p, n, b"value %d" % (10 * p + n)) for p in range(4) for n in range(1, 5)}


def test_a_paused_partition_is_read_after_resuming(peer: ConfluentPeer, make_topic: MakeTopic) -> None:
    topic = make_topic()
    peer.produce(topic, 0, numbered(1))
    consumer = peer.consumer()
    try:
        partition = TopicPartition(topic, 0, 0)
        consumer.assign([partition])
        consumer.pause([partition])
        assert consumer.poll(0.3) is None
        consumer.resume([partition])
        assert present(consumer.poll(10)).value() == b"value 0"
    finally:
        consumer.close()
