"""Transactions of the Python clients: all messages or none, and offsets with them."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from typing import Any, cast

import pytest
from confluent_kafka import Consumer as LibraryConsumer
from confluent_kafka import KafkaError as LibraryError
from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as LibraryPartition

from skylog import Admin, AsyncConsumer, AsyncProducer, Consumer, Message, Producer, SimpleConsumer
from skylog.audit import ProducerAudit
from skylog.client import (
    Connection,
    DeliveryError,
    ProducerFencedError,
    TransactionAbortedError,
    TransactionUnknownError,
    read_last,
    transaction,
)
from skylog.client.offset_tracker import Bookmark
from skylog.client.partition_reader import PartitionReader
from skylog.errors import ConfigError
from skylog.model import TopicPartition
from skylog.testing import wait_until


@pytest.fixture
def name() -> str:
    return f"id-{uuid.uuid4().hex[:8]}"


def values(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[str | None]:
    """All messages of partition 0 that a reader with this isolation level sees."""
    reader = LibraryConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"group-{uuid.uuid4().hex}",
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    reader.assign([LibraryPartition(topic, 0, 0)])
    found: list[str | None] = []
    try:
        while True:
            message = reader.poll(60)
            assert message is not None, "the end of the partition was not reached"
            if (error := message.error()) is not None:
                assert error.code() == LibraryError._PARTITION_EOF, error
                return found
            value = message.value()
            found.append(None if value is None else value.decode())
    finally:
        reader.close()


def test_readers_see_all_messages_of_a_transaction_or_none(skylog_bootstrap: str, skylog_topic: str, name: str) -> None:
    with Producer(skylog_bootstrap, transactional_id=name) as producer:
        with producer.transaction():
            for value in ("a", "b"):
                producer.send(skylog_topic, value)
        with pytest.raises(RuntimeError):
            fail_in_transaction(producer, skylog_topic)
        with producer.transaction():
            producer.send(skylog_topic, "c")
    assert values(skylog_bootstrap, skylog_topic) == ["a", "b", "c"]
    assert values(skylog_bootstrap, skylog_topic, "read_uncommitted") == ["a", "b", "x", "c"]
    seen: list[str | None] = []
    with Consumer(skylog_topic, f"group-{name}", skylog_bootstrap) as consumer:
        while len(seen) < 3:
            seen += [each.text() for each in consumer.consume(timeout_s=10)]
    assert seen == ["a", "b", "c"]
    with Consumer(skylog_topic, f"all-{name}", skylog_bootstrap, read_committed=False) as consumer:
        while len(seen) < 7:
            seen += [each.text() for each in consumer.consume(timeout_s=10)]
    assert seen[3:] == ["a", "b", "x", "c"]
    with SimpleConsumer(skylog_topic, bootstrap=skylog_bootstrap, read_committed=False) as simple:
        assert len(simple.consume(timeout_s=10)) == 4


def fail_in_transaction(producer: Producer, topic: str) -> None:
    with producer.transaction():
        producer.send(topic, "x").result(10)
        raise RuntimeError("the application fails")


def test_a_transaction_without_messages_does_nothing(skylog_bootstrap: str, name: str) -> None:
    with Producer(skylog_bootstrap, transactional_id=name) as producer:
        for _ in range(2):
            with producer.transaction():
                pass


def test_messages_are_processed_exactly_once(skylog_bootstrap: str, letters: str, target: str, name: str) -> None:
    attempts = 0
    with (
        Producer(skylog_bootstrap, transactional_id=name) as producer,
        Consumer(letters, f"group-{name}", skylog_bootstrap, commit="manual") as consumer,
    ):
        copied = 0
        while copied < 5:
            messages = consumer.consume(2)
            if not messages:
                continue
            attempts += 1
            try:
                with producer.transaction(consumer):
                    for message in messages:
                        producer.send(target, message.text())
                    if attempts in (1, 3):
                        raise RuntimeError("the application fails")
            except RuntimeError:
                continue  # the same messages are delivered again
            copied += len(messages)
    assert values(skylog_bootstrap, target) == ["a", "b", "c", "d", "e"]
    with Consumer(letters, f"group-{name}", skylog_bootstrap) as consumer:
        again: list[Message] = []

        def has_its_partition() -> bool:
            again.extend(consumer.consume(timeout_s=0.1))
            return bool(consumer.positions)

        wait_until(has_its_partition, "a partition")
        assert (again, list(consumer.positions.values())) == ([], [5])


def test_one_message_at_a_time(skylog_bootstrap: str, letters: str, target: str, name: str) -> None:
    with (
        Producer(skylog_bootstrap, transactional_id=name) as producer,
        Consumer(letters, f"group-{name}", skylog_bootstrap, commit="manual") as consumer,
    ):
        for message in consumer:
            with producer.transaction(consumer):
                producer.send(target, message.text())
            if message.text() == "e":
                break
    assert values(skylog_bootstrap, target) == ["a", "b", "c", "d", "e"]


def test_a_second_producer_fences_the_first(skylog_bootstrap: str, skylog_topic: str, name: str) -> None:
    old = Producer(skylog_bootstrap, transactional_id=name)

    def overlap() -> None:
        with old.transaction():
            old.send(skylog_topic, "old").result(10)
            with Producer(skylog_bootstrap, transactional_id=name) as new, new.transaction():
                new.send(skylog_topic, "new")

    with pytest.raises(ProducerFencedError, match=name):
        overlap()
    old.close(1)
    assert values(skylog_bootstrap, skylog_topic) == ["new"]


def test_a_message_of_a_fenced_producer_fails_with_the_reason_and_without_a_traceback(
    skylog_bootstrap: str, skylog_topic: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    deliveries = []

    def send_too_late(old: Producer) -> None:
        with old.transaction():
            deliveries.append(old.send(skylog_topic, "late"))

    with Producer(skylog_bootstrap, transactional_id=name) as old:
        with old.transaction():
            old.send(skylog_topic, "old")
        with Producer(skylog_bootstrap, transactional_id=name) as new, new.transaction():
            new.send(skylog_topic, "new")
        with pytest.raises(ProducerFencedError):
            send_too_late(old)
    assert "its transaction was aborted" in str(deliveries[0].exception())
    assert "Traceback" not in caplog.text
    assert values(skylog_bootstrap, skylog_topic) == ["old", "new"]


def copy_all(consumer: Consumer, producer: Producer, target: str) -> None:
    """Copy what the consumer has left, up to the last letter."""
    last = None
    while last != "e":
        messages = consumer.consume(timeout_s=10)
        with producer.transaction(consumer):
            for message in messages:
                producer.send(target, message.text())
                last = message.text()


def consume_some(consumer: Consumer, count: int = 2) -> list[str | None]:
    """Consume until there are messages."""
    return [each.text() for each in wait_until(lambda: consumer.consume(count), "messages")]


@pytest.fixture
def target(skylog_bootstrap: str, letters: str) -> str:
    """The name of an empty topic."""
    Admin(skylog_bootstrap).create_topic(f"{letters}-copy", 1)
    return f"{letters}-copy"


def test_the_messages_of_a_fenced_transaction_are_delivered_again_to_another_producer(
    skylog_bootstrap: str, letters: str, target: str, name: str
) -> None:
    old, new = (Producer(skylog_bootstrap, transactional_id=name) for _ in range(2))

    def be_fenced(consumer: Consumer) -> None:
        with old.transaction(consumer):
            old.send(target, "old")
            with new.transaction():
                pass

    with Consumer(letters, f"group-{name}", skylog_bootstrap, commit="manual") as consumer:
        assert consume_some(consumer) == ["a", "b"]
        with pytest.raises(ProducerFencedError):
            be_fenced(consumer)
        assert consume_some(consumer) == ["a", "b"]
        with pytest.raises(ProducerFencedError):  # it cannot even begin
            old.transaction(consumer).__enter__()
        copy_all(consumer, new, target)
    old.close(1)
    new.close()
    assert values(skylog_bootstrap, target) == ["a", "b", "c", "d", "e"]


class LostAnswer:
    """A producer of librdkafka whose commits succeed, and look as if another producer had fenced this one before."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def commit_transaction(self, timeout_s: float) -> None:
        self._client.commit_transaction(timeout_s)
        raise KafkaException(LibraryError(LibraryError._FENCED, fatal=True))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def __len__(self) -> int:
        return len(self._client)


def test_messages_that_were_committed_before_the_producer_was_fenced_do_not_come_again(
    skylog_bootstrap: str, letters: str, target: str, name: str
) -> None:
    with (
        Producer(skylog_bootstrap, transactional_id=name) as producer,
        Consumer(letters, f"group-{name}", skylog_bootstrap, commit="manual") as consumer,
    ):
        assert consume_some(consumer) == ["a", "b"]
        engine = producer._start()
        engine.client = cast(Any, LostAnswer(engine.client))
        with pytest.raises(ProducerFencedError), producer.transaction(consumer):
            producer.send(target, "ab")
        assert consume_some(consumer) == ["c", "d"]
    assert values(skylog_bootstrap, target) == ["ab"]


def test_an_abort_does_not_go_back_behind_the_transaction_before(
    skylog_bootstrap: str, letters: str, target: str, name: str
) -> None:
    with (
        Producer(skylog_bootstrap, transactional_id=name) as producer,
        Consumer(letters, f"group-{name}", skylog_bootstrap, commit="manual") as consumer,
    ):
        assert consume_some(consumer) == ["a", "b"]
        with producer.transaction(consumer):
            producer.send(target, "ab")
        with pytest.raises(RuntimeError), producer.transaction(consumer):
            raise RuntimeError("the application fails")
        assert consume_some(consumer) == ["c", "d"]


def test_the_messages_of_a_partition_that_came_during_an_aborted_transaction_are_delivered_again(
    skylog_bootstrap: str, letters: str, name: str
) -> None:
    with (
        Producer(skylog_bootstrap, transactional_id=name) as producer,
        Consumer(letters, f"group-{name}", skylog_bootstrap, commit="manual") as consumer,
    ):
        for _ in range(2):
            with pytest.raises(RuntimeError, match=r"\['a', 'b'\]"), producer.transaction(consumer):
                raise RuntimeError(str(consume_some(consumer)))
        assert consume_some(consumer) == ["a", "b"]


def assignment_of(consumer: Consumer) -> list[TopicPartition]:
    consumer.keep_alive()
    return consumer.assignment


def lose_partitions(consumer: Consumer) -> None:
    consumer._client.unsubscribe()
    wait_until(lambda: not assignment_of(consumer), "a member without partitions")


def test_an_abort_does_not_go_back_in_a_partition_that_left_and_returned(
    skylog_bootstrap: str, letters: str, name: str
) -> None:
    group = f"group-{name}"

    def fail_after_another_member_has_read(consumer: Consumer) -> None:
        lose_partitions(consumer)
        with Consumer(letters, group, skylog_bootstrap) as other:
            assert consume_some(other, 3) == ["a", "b", "c"]
        consumer._membership.join([letters])
        wait_until(lambda: assignment_of(consumer), "an assignment")
        raise RuntimeError("the application fails")

    with (
        Producer(skylog_bootstrap, transactional_id=name) as producer,
        Consumer(letters, group, skylog_bootstrap, commit="manual") as consumer,
    ):
        assert consume_some(consumer) == ["a", "b"]
        with pytest.raises(RuntimeError), producer.transaction(consumer):
            fail_after_another_member_has_read(consumer)
        assert consume_some(consumer) == ["d", "e"]


def test_a_transaction_whose_consumer_has_lost_all_partitions_is_aborted(
    skylog_bootstrap: str, letters: str, target: str, name: str
) -> None:
    with (
        Producer(skylog_bootstrap, transactional_id=name) as producer,
        Consumer(letters, f"group-{name}", skylog_bootstrap, commit="manual") as consumer,
    ):
        assert consume_some(consumer) == ["a", "b"]

        def send_and_lose_partitions() -> None:
            with producer.transaction(consumer):
                producer.send(target, "ab").result(20)
                lose_partitions(consumer)

        with pytest.raises(TransactionAbortedError, match="partitions were taken"):
            send_and_lose_partitions()
    assert values(skylog_bootstrap, target) == []


class ScriptedClient:
    """librdkafka's transactions: a call that has timed out must be repeated, until then all others are refused.

    `script` has the errors of the next calls of each name, None for success.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.script: dict[str, list[LibraryError | None]] = {}
        self._unfinished = ""

    def begin_transaction(self) -> None:
        self._call("begin")

    def send_offsets_to_transaction(self, *_: object) -> None:
        self._call("send_offsets")

    def commit_transaction(self, _: float) -> None:
        self._call("commit", is_resumable=True)

    def abort_transaction(self, _: float) -> None:
        self._call("abort", is_resumable=True)

    def _call(self, name: str, *, is_resumable: bool = False) -> None:
        self.calls.append(name)
        if self._unfinished not in ("", name):
            raise KafkaException(LibraryError(LibraryError._CONFLICT, "another call is in progress", retriable=True))
        error = results.pop(0) if (results := self.script.get(name)) else None
        self._unfinished = name if is_resumable and error is not None and error.retriable() else ""
        if error is not None:
            raise KafkaException(error)


class ScriptedEngine:
    def __init__(self) -> None:
        self.client = ScriptedClient()
        self.unfinished = None

    def flush(self, _: object) -> int:
        return 0


class ScriptedConsumer:
    """Consumes two messages between two transactions."""

    def __init__(self) -> None:
        self.offset = 2
        self.ends: list[int] = []

    def group_metadata(self) -> object:
        return None

    def bookmark(self) -> Bookmark:
        return Bookmark({TopicPartition("t", 0): self.offset - 2}, 0)

    def has_lost_partitions_since(self, _: Bookmark) -> bool:
        return False

    def finish_returned(self) -> list[int]:
        return [self.offset]

    def committed(self, ends: list[int]) -> None:
        self.ends += ends

    def go_back(self, bookmark: Bookmark, *, check_committed: bool = False) -> None:
        (self.offset,) = bookmark.offsets.values()


LATE = LibraryError(LibraryError._TIMED_OUT, "no answer", retriable=True)
FAILED = LibraryError(LibraryError._INCONSISTENT, "a message was not stored", txn_requires_abort=True)


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> tuple[Producer, ScriptedClient, Callable[[], None], ScriptedConsumer]:
    """A producer, its client, a function that runs a transaction, and the consumer in it."""
    monkeypatch.setattr(transaction, "TIMEOUT_S", 0)
    monkeypatch.setattr(transaction, "_PAUSE_S", 0)
    producer, consumer, engine = Producer("nowhere:1", transactional_id="x"), ScriptedConsumer(), ScriptedEngine()
    producer._engine = cast(Any, engine)

    def run() -> None:
        with producer.transaction(cast(Any, consumer)):
            pass

    return producer, engine.client, run, consumer


def test_a_commit_without_an_answer_is_finished_before_the_next_transaction(scripted: Any) -> None:
    _, client, run, consumer = scripted
    client.script["commit"] = [LATE, LATE]
    with pytest.raises(TransactionUnknownError, match="not known whether"):
        run()
    assert client.calls == ["begin", "send_offsets", "commit"]
    assert (consumer.offset, consumer.ends) == (2, [])
    consumer.offset = 4
    with pytest.raises(TransactionUnknownError):  # it is still not known; only what came after it comes again
        run()
    assert client.calls[3:] == ["commit"]
    assert (consumer.offset, consumer.ends) == (2, [])
    consumer.offset = 4
    run()
    assert client.calls[4:] == ["commit", "begin", "send_offsets", "commit"]
    assert (consumer.offset, consumer.ends) == (4, [2, 4])


def test_after_a_commit_without_an_answer_that_has_failed_its_messages_are_delivered_again(scripted: Any) -> None:
    _, client, run, consumer = scripted
    client.script["commit"] = [LATE, FAILED]
    with pytest.raises(TransactionUnknownError):
        run()
    consumer.offset = 4
    with pytest.raises(TransactionAbortedError, match="a message was not stored"):
        run()
    assert client.calls[3:] == ["commit", "abort"]
    assert (consumer.offset, consumer.ends) == (0, [])
    consumer.offset = 2
    run()
    assert client.calls[5:] == ["begin", "send_offsets", "commit"]
    assert consumer.ends == [2]


def test_an_interrupted_commit_is_finished_before_the_next_transaction(scripted: Any) -> None:
    _, client, run, _ = scripted
    client.script["commit"] = [LATE]
    real, client.commit_transaction = client.commit_transaction, lambda _: interrupt()

    def interrupt() -> None:
        client.commit_transaction = real
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    with pytest.raises(TransactionUnknownError):
        run()
    assert client.calls[2:] == ["commit"]
    run()
    assert client.calls[3:] == ["commit", "begin", "send_offsets", "commit"]


@pytest.mark.parametrize("failure", [LATE, FAILED])
def test_an_abort_that_was_not_finished_is_finished_before_the_next_transaction(
    scripted: Any, failure: LibraryError
) -> None:
    producer, client, run, consumer = scripted
    client.script["abort"] = [failure, failure]

    def fail() -> None:
        with producer.transaction(consumer):
            raise RuntimeError("the application fails")

    with pytest.raises(RuntimeError):
        fail()
    assert client.calls == ["begin", "abort"]
    consumer.offset = 2
    with pytest.raises(TransactionAbortedError):
        run()
    assert client.calls[2:] == ["abort"]
    assert consumer.offset == 0
    run()
    assert client.calls[3:] == ["abort", "begin", "send_offsets", "commit"]


def test_a_message_that_cannot_be_stored_aborts_the_transaction(
    skylog_bootstrap: str, skylog_topic: str, name: str
) -> None:
    config = {"message.max.bytes": 10_000_000}
    with Producer(skylog_bootstrap, transactional_id=name, config=config) as producer:

        def send(*values: bytes) -> bool:
            try:
                with producer.transaction():
                    for value in values:
                        producer.send(skylog_topic, value)
            except TransactionAbortedError as error:
                assert "do its work again" in str(error)  # noqa: PT017
                return False
            return True

        assert not send(b"small", b"x" * 5_000_000)
        wait_until(lambda: send(b"next"), "a transaction")  # librdkafka may need another abort, for a new epoch
    assert values(skylog_bootstrap, skylog_topic) == ["next"]


def test_a_transactional_producer_sends_in_transactions_only(
    skylog_bootstrap: str, skylog_topic: str, name: str
) -> None:
    with (
        Producer(skylog_bootstrap, transactional_id=name) as producer,
        pytest.raises(DeliveryError, match=r"producer\.transaction"),
    ):
        producer.send(skylog_topic, "x")


def test_mistakes_are_named(skylog_bootstrap: str, skylog_topic: str, name: str) -> None:
    with Producer(skylog_bootstrap) as producer, pytest.raises(ConfigError, match="transactional_id"):
        producer.transaction().__enter__()
    for wrong in ({"transactional_id": ""}, {"transactional_id": name, "acks": 1}):
        with pytest.raises(ConfigError, match="acks"):
            Producer(skylog_bootstrap, **wrong)
    with pytest.raises(ConfigError, match="audit"):
        Producer(skylog_bootstrap, transactional_id=name, audit=ProducerAudit("test"))
    with (
        Producer(skylog_bootstrap, transactional_id=name) as producer,
        Consumer(skylog_topic, name, skylog_bootstrap) as consumer,
        pytest.raises(ConfigError, match="manual"),
    ):
        producer.transaction(consumer).__enter__()


def test_readers_reach_the_end_of_a_partition_that_ends_with_a_marker(
    skylog_bootstrap: str, skylog_topic: str, name: str
) -> None:
    with Producer(skylog_bootstrap, transactional_id=name) as producer:
        for value in ("a", "b"):
            with producer.transaction():
                producer.send(skylog_topic, value, partition=0)
    with SimpleConsumer(skylog_topic, 0, 0, skylog_bootstrap) as consumer:
        found: list[str | None] = []
        while messages := consumer.consume(timeout_s=3 if found else 30):
            found += [each.text() for each in messages]
    assert found == ["a", "b"]
    connection = Connection(skylog_bootstrap)
    key = TopicPartition(skylog_topic, 0)
    ranges = Admin(connection).offset_ranges([key])
    assert ranges[key].end_offset == 4
    assert [each.text() for each in read_last(connection, ranges, 2)] == ["a", "b"]


@pytest.mark.timeout(60)
def test_messages_and_the_end_of_their_partition_may_arrive_together(
    skylog_bootstrap: str, skylog_topic: str, name: str
) -> None:
    """librdkafka reports the end once. After it comes a marker, which no reader gets."""
    with Producer(skylog_bootstrap, transactional_id=name) as producer, producer.transaction():
        producer.send(skylog_topic, "a", partition=0)
        producer.send(skylog_topic, "b", partition=0)
    connection = Connection(skylog_bootstrap)
    key = TopicPartition(skylog_topic, 0)
    ranges = Admin(connection).offset_ranges([key])
    reader = PartitionReader(connection, {key: 0})
    time.sleep(2)  # until both wait in librdkafka's queue
    try:
        assert [each.text() for batch in reader.read_to_end(ranges) for each in batch] == ["a", "b"]
    finally:
        reader.close()


def test_the_same_with_asyncio(skylog_bootstrap: str, letters: str, target: str, name: str) -> None:

    async def copy() -> None:
        async with (
            AsyncProducer(skylog_bootstrap, transactional_id=name) as producer,
            AsyncConsumer(letters, f"group-{name}", skylog_bootstrap, commit="manual") as consumer,
        ):
            copied = attempts = 0
            while copied < 5:
                messages = await consumer.consume(2)
                if not messages:
                    continue
                attempts += 1
                try:
                    async with producer.transaction(consumer):
                        await asyncio.gather(*(producer.send(target, each.text()) for each in messages))
                        if attempts == 2:
                            raise RuntimeError("the application fails")
                except RuntimeError:
                    continue
                copied += len(messages)

    asyncio.run(asyncio.wait_for(copy(), 60))
    assert values(skylog_bootstrap, target) == ["a", "b", "c", "d", "e"]
