"""aiokafka."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import OffsetOutOfRangeError

from . import contract
from .contract import TIME_MS, MakeTopic, numbered
from .peers.aiokafka_peer import AiokafkaPeer
from .peers.peer import Code, Refused, read, until
from .peers.record import Record


@pytest.fixture(scope="module")
def peer(bootstrap: str) -> Iterator[AiokafkaPeer]:
    peer = AiokafkaPeer(bootstrap)
    yield peer
    peer.close()


class TestAiokafka(
    contract.Produces,
    contract.ProducesIdempotently,
    contract.Reads,
    contract.LooksUpOffsets,
    contract.AdministersTopics,
    contract.ValidatesTopics,
    contract.DeletesRecords,
    contract.DescribesConfigs,
    contract.ReplacesConfigs,
):
    pass


def test_a_header_name_may_repeat(peer: AiokafkaPeer, make_topic: MakeTopic) -> None:
    topic = make_topic()
    record = Record(b"v", headers=(("a", b"1"), ("a", b"2")), timestamp_ms=TIME_MS)
    peer.produce(topic, 0, [record])
    assert read(peer, topic, 0, 1) == [record]


def test_the_record_metadata_names_the_offset_and_the_kind_of_timestamp(
    peer: AiokafkaPeer, make_topic: MakeTopic
) -> None:
    by_producer = make_topic()
    by_broker = make_topic(config={"message.timestamp.type": "LogAppendTime"})

    async def send() -> tuple[list[tuple[int, int]], list[tuple[int, bool]]]:
        async with AIOKafkaProducer(bootstrap_servers=peer.bootstrap) as producer:
            theirs = [await producer.send_and_wait(by_producer, b"v", timestamp_ms=TIME_MS + n) for n in range(2)]
            ours = [await producer.send_and_wait(by_broker, b"v", timestamp_ms=TIME_MS) for _ in range(2)]
            return (
                [(sent.offset, sent.timestamp) for sent in theirs],
                [(sent.timestamp_type, sent.timestamp > TIME_MS) for sent in ours],
            )

    theirs, ours = peer.run(send())
    assert theirs == [(0, TIME_MS), (1, TIME_MS + 1)]
    assert ours == [(1, True), (1, True)]


def test_concurrent_tasks_share_one_producer(peer: AiokafkaPeer, make_topic: MakeTopic) -> None:
    topic = make_topic()

    async def send() -> list[int]:
        async with AIOKafkaProducer(bootstrap_servers=peer.bootstrap) as producer:
            sent = await asyncio.gather(*(producer.send_and_wait(topic, b"%d" % n) for n in range(100)))
            return sorted(metadata.offset for metadata in sent)

    assert peer.run(send()) == list(range(100))
    assert {record.value for record in read(peer, topic, 0, 100)} == {b"%d" % n for n in range(100)}


def test_reading_out_of_range_without_a_reset_policy_is_an_error(peer: AiokafkaPeer, make_topic: MakeTopic) -> None:
    topic = make_topic()
    peer.produce(topic, 0, numbered(1))
    with peer.open(topic, 0, 99) as reader, pytest.raises(OffsetOutOfRangeError):
        reader.take(1)


def test_an_offset_out_of_range_is_reset_to_the_earliest(peer: AiokafkaPeer, make_topic: MakeTopic) -> None:
    topic = make_topic()
    peer.produce(topic, 0, numbered(5))
    peer.delete_records(topic, 0, before=3)

    async def first_after_reset() -> int:
        consumer = AIOKafkaConsumer(bootstrap_servers=peer.bootstrap, auto_offset_reset="earliest")
        async with consumer, asyncio.timeout(10):
            place = TopicPartition(topic, 0)
            consumer.assign([place])
            consumer.seek(place, 1)
            return int((await consumer.getone()).offset)

    assert peer.run(first_after_reset()) == 3


def test_describing_the_configs_of_an_unknown_topic_is_an_error(peer: AiokafkaPeer, new_name: str) -> None:
    with pytest.raises(Refused) as refused:
        peer.configs(new_name)
    assert refused.value.code == Code.UNKNOWN_TOPIC_OR_PARTITION


def test_a_consumer_that_names_an_unknown_topic_creates_it(peer: AiokafkaPeer, new_name: str) -> None:
    async def start() -> None:
        async with AIOKafkaConsumer(new_name, bootstrap_servers=peer.bootstrap):
            pass

    peer.run(start())
    until(lambda: new_name in peer.topics(), "the topic created on request")
