"""Transactions, by the clients that have them: commit, abort, fencing, timeout, offsets in a transaction."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from aiokafka.errors import ProducerFenced
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as Place

from tests.proof import IS_FULL, in_proof

from .contract import MakeTopic
from .peers.driven import DrivenPeer
from .peers.installation import JAVA_VERSIONS
from .peers.peer import until


def new_id() -> str:
    return f"id-{uuid.uuid4().hex[:8]}"


def confluent_producer(bootstrap: str, transactional_id: str, **settings: Any) -> Producer:
    return Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id, **settings})


def read_values(bootstrap: str, topic: str, count: int, isolation: str = "read_committed") -> list[bytes | None]:
    """The first `count` messages of partition 0, and whatever follows them within a moment."""
    settings = {"bootstrap.servers": bootstrap, "group.id": new_id(), "isolation.level": isolation}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest", "enable.partition.eof": True})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        values: list[bytes | None] = []
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is None:
                continue
            error = message.error()
            if error is None:
                values.append(message.value())
            elif error.code() == KafkaError._PARTITION_EOF and len(values) >= count:
                break
        return values
    finally:
        consumer.close()


class TestConfluentKafka:
    def test_committed_messages_are_read_and_aborted_ones_are_not(self, bootstrap: str, make_topic: MakeTopic) -> None:
        topic = make_topic()
        producer = confluent_producer(bootstrap, new_id())
        producer.init_transactions(30)
        for number, commits in enumerate((True, False, True, False)):
            producer.begin_transaction()
            for part in range(3):
                producer.produce(topic, f"{number}-{part}".encode(), partition=0)
            if commits:
                producer.commit_transaction(30)
            else:
                producer.flush(30)
                producer.abort_transaction(30)
        committed = [f"{number}-{part}".encode() for number in (0, 2) for part in range(3)]
        assert read_values(bootstrap, topic, 6) == committed
        assert len(read_values(bootstrap, topic, 12, "read_uncommitted")) == 12

    def test_a_transaction_covers_several_topics_and_partitions(self, bootstrap: str, make_topic: MakeTopic) -> None:
        topics = [make_topic(partitions=4), make_topic()]
        producer = confluent_producer(bootstrap, new_id())
        producer.init_transactions(30)
        producer.begin_transaction()
        for number in range(40):
            producer.produce(topics[0], b"x", partition=number % 4)
            producer.produce(topics[1], b"y", partition=0)
        producer.commit_transaction(30)
        assert read_values(bootstrap, topics[0], 10) == [b"x"] * 10
        assert read_values(bootstrap, topics[1], 40) == [b"y"] * 40

    def test_a_second_producer_fences_the_first(self, bootstrap: str, make_topic: MakeTopic) -> None:
        topic, name = make_topic(), new_id()
        old = confluent_producer(bootstrap, name)
        old.init_transactions(30)
        old.begin_transaction()
        old.produce(topic, b"old", partition=0)
        old.flush(30)
        new = confluent_producer(bootstrap, name)
        new.init_transactions(30)
        new.begin_transaction()
        new.produce(topic, b"new", partition=0)
        new.commit_transaction(30)
        with pytest.raises(KafkaException) as fenced:
            old.commit_transaction(30)
        assert fenced.value.args[0].code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED)
        assert fenced.value.args[0].fatal()
        assert read_values(bootstrap, topic, 1) == [b"new"]

    @pytest.mark.skipif(not IS_FULL, reason="ten seconds; tests/broker/test_transactions.py has it with raw requests")
    def test_a_transaction_that_takes_too_long_is_aborted(self, bootstrap: str, make_topic: MakeTopic) -> None:
        topic = make_topic()
        producer = confluent_producer(bootstrap, new_id(), **{"transaction.timeout.ms": 1000})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(topic, b"late", partition=0)
        producer.flush(30)
        other = Producer({"bootstrap.servers": bootstrap})
        other.produce(topic, b"after", partition=0)
        other.flush(30)
        assert read_values(bootstrap, topic, 1) == [b"after"]  # once the transaction is aborted, and not before
        with pytest.raises(KafkaException):
            producer.commit_transaction(30)

    def test_messages_are_copied_exactly_once_with_their_offsets(self, bootstrap: str, make_topic: MakeTopic) -> None:
        source, target, group = make_topic(), make_topic(), new_id()
        filler = Producer({"bootstrap.servers": bootstrap})
        for number in range(100):
            filler.produce(source, str(number).encode(), partition=0)
        filler.flush(30)
        name = new_id()
        for attempt in range(5):  # each begins a transaction that it does not finish, except the last one
            copied = copy(bootstrap, source, target, group, name, batches=2 if attempt < 4 else 100)
        assert copied > 0
        assert read_values(bootstrap, target, 100) == [str(number).encode() for number in range(100)]

    def test_the_offsets_of_an_aborted_transaction_do_not_count(self, bootstrap: str, make_topic: MakeTopic) -> None:
        topic, group = make_topic(), new_id()
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
        producer = confluent_producer(bootstrap, new_id())
        producer.init_transactions(30)
        try:
            consumer.subscribe([topic])
            until(lambda: consumer.poll(0.1) is None and bool(consumer.assignment()), "an assignment")
            for commits in (True, False):
                producer.begin_transaction()
                offsets = [TopicPartition(topic, 0, 5 if commits else 9)]
                producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 30)
                (producer.commit_transaction if commits else producer.abort_transaction)(30)
            (found,) = consumer.committed([TopicPartition(topic, 0)], 30)
            assert found.offset == 5
        finally:
            consumer.close()


def copy(bootstrap: str, source: str, target: str, group: str, name: str, batches: int) -> int:
    """Copy messages in transactions of ten, and leave the last transaction open, like a process that is killed."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    producer = confluent_producer(bootstrap, name)
    producer.init_transactions(30)
    copied = 0
    try:
        consumer.subscribe([source])
        for number in range(batches):
            messages = [each for each in consumer.consume(10, 5) if each.error() is None]
            if not messages:
                break
            producer.begin_transaction()
            for message in messages:
                producer.produce(target, message.value(), partition=0)
            last = messages[-1].offset()
            assert last is not None
            offset = TopicPartition(source, 0, last + 1)
            producer.send_offsets_to_transaction([offset], consumer.consumer_group_metadata(), 30)
            if number == batches - 1:
                producer.flush(30)
                break
            producer.commit_transaction(30)
            copied += len(messages)
        return copied
    finally:
        consumer.close()


class TestAiokafka:
    def test_committed_messages_are_read_and_aborted_ones_are_not(self, bootstrap: str, make_topic: MakeTopic) -> None:
        topic = make_topic()

        async def run() -> list[bytes]:
            async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=new_id()) as producer:
                for value in (b"a", b"b"):
                    async with producer.transaction():
                        await producer.send(topic, value, partition=0)
                await producer.begin_transaction()
                await producer.send_and_wait(topic, b"aborted", partition=0)
                await producer.abort_transaction()
                async with producer.transaction():
                    await producer.send(topic, b"c", partition=0)
            consumer = AIOKafkaConsumer(
                bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
            )
            consumer.assign([AioPartition(topic, 0)])
            async with consumer:
                return [(await consumer.getone()).value for _ in range(3)]

        assert asyncio.run(asyncio.wait_for(run(), 60)) == [b"a", b"b", b"c"]

    def test_a_second_producer_fences_the_first(self, bootstrap: str, make_topic: MakeTopic) -> None:
        topic, name = make_topic(), new_id()

        async def run() -> None:
            old = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
            await old.start()
            try:
                await old.begin_transaction()
                await old.send_and_wait(topic, b"old", partition=0)
                async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name) as new:
                    async with new.transaction():
                        await new.send(topic, b"new", partition=0)
                    with pytest.raises(ProducerFenced):
                        await old.commit_transaction()
            finally:
                await old.stop()

        asyncio.run(asyncio.wait_for(run(), 60))
        assert read_values(bootstrap, topic, 1) == [b"new"]

    def test_offsets_are_part_of_the_transaction(self, bootstrap: str, make_topic: MakeTopic) -> None:
        topic, group = make_topic(), new_id()
        place = AioPartition(topic, 0)

        async def run() -> int | None:
            async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=new_id()) as producer:
                async with producer.transaction():
                    await producer.send_offsets_to_transaction({place: 7}, group)
                await producer.begin_transaction()
                await producer.send_offsets_to_transaction({place: 8}, group)
                await producer.abort_transaction()
            consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=group)
            async with consumer:
                found: int | None = await consumer.committed(place)
                return found

        assert asyncio.run(asyncio.wait_for(run(), 60)) == 7


class TestKafkaPython:
    def test_committed_messages_are_read_and_aborted_ones_are_not(self, bootstrap: str, make_topic: MakeTopic) -> None:
        topic = make_topic()
        producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=new_id())
        try:
            producer.init_transactions()
            for value, commits in ((b"a", True), (b"aborted", False), (b"b", True)):
                producer.begin_transaction()
                sent = producer.send(topic, value, partition=0)
                if commits:
                    producer.commit_transaction()
                else:
                    sent.get(30)
                    producer.abort_transaction()
        finally:
            producer.close(5)
        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            consumer_timeout_ms=20_000,
        )
        try:
            consumer.assign([Place(topic, 0)])
            assert [next(consumer).value for _ in range(2)] == [b"a", b"b"]
        finally:
            consumer.close()


@pytest.fixture(params=JAVA_VERSIONS)
def java(request: pytest.FixtureRequest) -> Any:
    peer: DrivenPeer = request.getfixturevalue(f"java_{request.param.partition('.')[0]}")
    return peer.driver


class TestJava:
    def test_committed_messages_are_read_and_aborted_ones_are_not(self, java: Any, make_topic: MakeTopic) -> None:
        topic, name = make_topic(), new_id()
        for values, commits in ((["a", "b"], True), (["x"], False), (["c"], True)):
            java.ask("transact", id=name, topic=topic, values=values, commits=commits)
        assert java.ask("read_committed", topic=topic, partition=0, count=3) == ["a", "b", "c"]

    def test_a_second_producer_fences_the_first(self, java: Any, make_topic: MakeTopic) -> None:
        topic = make_topic()
        assert java.ask("fence", id=new_id(), topic=topic) == KafkaError.PRODUCER_FENCED
        assert java.ask("read_committed", topic=topic, partition=0, count=1) == ["new"]

    @in_proof
    def test_a_transaction_that_takes_too_long_is_aborted(self, java: Any, make_topic: MakeTopic) -> None:
        fenced = (KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
        assert java.ask("time_out", id=new_id(), topic=make_topic()) in fenced

    def test_offsets_are_part_of_the_transaction(self, java: Any, bootstrap: str, make_topic: MakeTopic) -> None:
        topic, name, group = make_topic(), new_id(), new_id()
        for offset, commits in ((7, True), (8, False)):
            java.ask("commit_offset", id=name, group=group, topic=topic, partition=0, offset=offset, commits=commits)
        assert committed_offset(bootstrap, group, topic) == 7


class TestKafkaJs:
    def test_messages_and_offsets_of_a_transaction_count_if_it_commits(
        self, kafkajs: DrivenPeer, bootstrap: str, make_topic: MakeTopic
    ) -> None:
        topic, name, group = make_topic(), new_id(), new_id()
        for values, commits, offset in ((["a", "b"], True, 7), (["x"], False, 8), (["c"], True, 9)):
            kafkajs.driver.ask(
                "transact", id=name, topic=topic, values=values, commits=commits, group=group, offset=offset
            )
        assert read_values(bootstrap, topic, 3) == [b"a", b"b", b"c"]
        assert committed_offset(bootstrap, group, topic) == 9


def committed_offset(bootstrap: str, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        (found,) = consumer.committed([TopicPartition(topic, 0)], 30)
        return int(found.offset)
    finally:
        consumer.close()
