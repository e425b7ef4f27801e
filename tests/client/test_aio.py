"""AsyncProducer and AsyncConsumer against a real broker."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from typing import cast

import pytest

from skylog import AsyncConsumer, AsyncProducer
from skylog.client import BufferFullError, DeliveryError, Position
from skylog.client.delivery import Delivery
from skylog.model import TopicPartition
from skylog.testing import consume
from tests.client.test_consumer import committed
from tests.patience import patience


def test_messages_sent_together_are_stored_in_order(skylog_bootstrap: str, skylog_topic: str) -> None:
    async def run() -> list[Position]:
        async with AsyncProducer(skylog_bootstrap) as producer:
            return await asyncio.gather(*[producer.send(skylog_topic, {"number": number}) for number in range(1000)])

    assert asyncio.run(run()) == [Position(skylog_topic, 0, number) for number in range(1000)]


def test_a_full_queue_makes_senders_wait_and_not_the_loop(skylog_bootstrap: str, skylog_topic: str) -> None:
    async def run() -> float:
        longest_s, asleep = 0.0, time.monotonic()

        async def tick() -> None:
            nonlocal longest_s, asleep
            while True:
                asleep = time.monotonic()
                await asyncio.sleep(0.001)
                longest_s = max(longest_s, time.monotonic() - asleep)

        ticking = asyncio.create_task(tick())
        async with AsyncProducer(skylog_bootstrap, config={"queue.buffering.max.messages": 10}) as producer:
            sent = await asyncio.gather(*[producer.send(skylog_topic, str(number)) for number in range(200)])
        ticking.cancel()
        assert [position.offset for position in sent] == list(range(200))
        return longest_s

    assert asyncio.run(run()) < 1.0


def test_a_partitioner_function_does_not_block_the_loop(skylog_bootstrap: str, four_partitions: str) -> None:
    async def run() -> Position:
        async with AsyncProducer(skylog_bootstrap, partitioner=lambda key, count: key % count) as producer:
            return await producer.send(four_partitions, b"", key=7)

    assert asyncio.run(run()).partition == 3


def test_a_message_that_cannot_be_stored_raises_where_it_is_awaited(skylog_bootstrap: str, skylog_topic: str) -> None:
    async def run() -> None:
        async with AsyncProducer(skylog_bootstrap) as producer:
            await producer.send(skylog_topic, b"", partition=9)

    with pytest.raises(DeliveryError, match="no such partition"):
        asyncio.run(run())


def test_a_consumer_iterates_commits_and_rewinds(skylog_bootstrap: str, letters: str) -> None:
    async def run() -> list[str]:
        seen = []
        async with AsyncConsumer(letters, letters, skylog_bootstrap, commit="manual") as consumer:
            async for message in consumer:
                seen.append(message.text())
                if message.text() == "b":
                    await consumer.commit()
                if message.text() == "e":
                    break
            await consumer.rewind()
            seen += [message.text() for message in await consumer.consume(max_messages=2, timeout_s=10)]
            await consumer.seek(letters, 0, 4)
            seen += [message.text() for message in await consumer.consume(timeout_s=10)]
        return seen

    seen = "".join(asyncio.run(run()))
    assert seen.startswith("abcdea")
    assert seen.endswith("e")
    assert committed(skylog_bootstrap, letters) == {0: 2}


def test_a_cancelled_reader_leaves_the_group_in_order(skylog_bootstrap: str, letters: str) -> None:
    async def run() -> list[str]:
        seen: list[str] = []
        all_seen = asyncio.Event()

        async def read() -> None:
            async with AsyncConsumer(letters, letters, skylog_bootstrap) as consumer:
                async for message in consumer:
                    seen.append(message.text())
                    if len(seen) == 5:
                        all_seen.set()

        reading = asyncio.create_task(read())
        await asyncio.wait_for(all_seen.wait(), 30)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        return seen

    assert asyncio.run(run()) == list("abcde")
    assert committed(skylog_bootstrap, letters)[0] in (4, 5)  # the last one was being processed, or was finished


def test_stop_ends_the_iteration_after_the_message_it_is_at(skylog_bootstrap: str, letters: str) -> None:
    async def run() -> list[str]:
        seen = []
        async with AsyncConsumer(letters, letters, skylog_bootstrap) as consumer:
            async for message in consumer:
                seen.append(message.text())
                if message.text() == "b":
                    consumer.stop()
        return seen

    assert asyncio.run(run()) == ["a", "b"]


def test_a_producer_serves_one_event_loop_after_another(skylog_bootstrap: str, skylog_topic: str) -> None:
    producer = AsyncProducer(skylog_bootstrap)

    async def leave_early() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(producer.send(skylog_topic, b"1"), 0)

    async def send() -> int:
        return (await asyncio.wait_for(producer.send(skylog_topic, b"2"), 20)).offset

    asyncio.run(leave_early())
    assert asyncio.run(send()) >= 0
    assert asyncio.run(send()) >= 1
    asyncio.run(producer.close())


def test_a_full_queue_raises_at_once_without_waiting_and_otherwise_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("skylog.client.aio.MAX_BLOCK_S", 0.3)

    async def run() -> None:
        producer = AsyncProducer("127.0.0.1:1", config={"queue.buffering.max.messages": 1})
        assert producer.offer("letters", b"a")
        assert not producer.offer("letters", b"b")
        with pytest.raises(BufferFullError, match="is full"):
            await producer.send("letters", b"b", wait=False)
        waiting = asyncio.create_task(producer.send("letters", b"c"))
        await asyncio.sleep(0)
        with pytest.raises(BufferFullError):  # others wait, so there is no room either
            await producer.send("letters", b"d", wait=False)
        with pytest.raises(BufferFullError, match="the message queue has been full"):
            await asyncio.wait_for(waiting, patience(20))
        await asyncio.to_thread(producer._producer.close, 0)

    asyncio.run(run())


def test_a_batch_is_stored_when_its_block_ends(skylog_bootstrap: str, skylog_topic: str) -> None:
    async def run() -> list[Position]:
        config = {"linger.ms": 60_000, "queue.buffering.max.messages": 50}
        async with AsyncProducer(skylog_bootstrap, config=config) as producer:
            async with producer.batch() as batch:
                sent = [await batch.send(skylog_topic, str(number)) for number in range(20)]
            return [each.result(0) for each in sent]

    assert asyncio.run(run()) == [Position(skylog_topic, 0, number) for number in range(20)]


def test_a_batch_raises_for_what_was_not_stored(skylog_bootstrap: str, skylog_topic: str) -> None:
    async def run() -> None:
        async with AsyncProducer(skylog_bootstrap) as producer, producer.batch() as batch:
            await batch.send(skylog_topic, b"", partition=9)

    with pytest.raises(DeliveryError, match="no such partition"):
        asyncio.run(run())


def test_a_message_is_sent_at_once_when_no_other_is_in_flight(skylog_bootstrap: str, skylog_topic: str) -> None:
    """librdkafka would let each message wait for others, for 5 ms."""

    async def run() -> float:
        async with AsyncProducer(skylog_bootstrap) as producer:
            taken = []
            for _ in range(200):
                began = time.monotonic()
                await producer.send(skylog_topic, b"v")
                taken.append(time.monotonic() - began)
            return min(taken)

    assert asyncio.run(run()) < 0.004


@pytest.mark.parametrize("is_coroutine", [False, True])
def test_a_start_function_is_called_on_the_event_loop_which_owns_the_database(
    skylog_bootstrap: str, letters: str, is_coroutine: bool
) -> None:
    """SQLite's connections belong to one thread."""

    async def run() -> list[str]:
        database = sqlite3.connect(":memory:")
        database.execute("CREATE TABLE offsets (partition TEXT, next INTEGER)")
        database.execute("INSERT INTO offsets VALUES (?, 3)", [f"{letters}-0"])

        def stored_offset(partition: TopicPartition) -> int | None:
            found = database.execute("SELECT next FROM offsets WHERE partition = ?", [str(partition)]).fetchone()
            return int(found[0])

        async def stored_offset_soon(partition: TopicPartition) -> int | None:
            await asyncio.sleep(0)
            return stored_offset(partition)

        start = stored_offset_soon if is_coroutine else stored_offset
        async with AsyncConsumer(letters, letters, skylog_bootstrap, start=start) as consumer:
            return [message.text() for message in await consumer.consume(timeout_s=20)]

    assert asyncio.run(run())[:1] == ["d"]


def test_a_start_function_that_fails_raises_where_messages_are_awaited(skylog_bootstrap: str, letters: str) -> None:
    def stored_offset(_: TopicPartition) -> int | None:
        raise TimeoutError("the database is away")

    async def run() -> None:
        async with AsyncConsumer(letters, letters, skylog_bootstrap, start=stored_offset) as consumer:
            await consumer.consume(timeout_s=20)

    began = time.monotonic()
    with pytest.raises(TimeoutError, match="the database is away"):
        asyncio.run(run())
    assert time.monotonic() - began < 15  # when it has failed, not when the time is up


def test_messages_are_not_lost_if_the_call_that_waits_for_them_is_cancelled(
    skylog_bootstrap: str, skylog_topic: str
) -> None:
    async def run() -> list[str]:
        async with (
            AsyncProducer(skylog_bootstrap) as producer,
            AsyncConsumer(skylog_topic, f"{skylog_topic}-group", skylog_bootstrap) as consumer,
        ):
            while not consumer.assignment:
                await consumer.consume(timeout_s=0.1)
            waiting = asyncio.create_task(consumer.consume(timeout_s=10))
            await asyncio.sleep(0.05)
            waiting.cancel()
            for letter in "abc":
                await producer.send(skylog_topic, letter)
            found: list[str] = []
            while len(found) < 3:
                found += [message.text() for message in await consumer.consume(timeout_s=1)]
            await consumer.commit()
            return found

    assert asyncio.run(asyncio.wait_for(run(), patience(30))) == ["a", "b", "c"]


def test_later_messages_do_not_overtake_those_that_wait_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two that wait, the lock is free."""
    monkeypatch.setattr("skylog.client.aio._FULL_S", 0)

    async def run() -> list[str]:
        producer = AsyncProducer("127.0.0.1:1")
        room = 0
        sent: list[str] = []

        def send(topic: str, value: str, *_: object, **__: object) -> Delivery:
            if len(sent) >= room:
                raise BufferFullError("full")
            sent.append(value)
            return cast(Delivery, object())

        monkeypatch.setattr(producer._producer, "send", send)
        async with producer.batch() as batch:
            waiting = [asyncio.create_task(batch.send("t", letter)) for letter in "abc"]
            await asyncio.sleep(0.01)
            room = 10
            while not sent:  # noqa: ASYNC110 - exactly one turn later
                await asyncio.sleep(0)
            await batch.send("t", "d")
            await asyncio.gather(*waiting)
            batch.sent.clear()
        return sent

    assert asyncio.run(run()) == ["a", "b", "c", "d"]


def test_a_transaction_whose_beginning_was_cancelled_is_aborted_before_the_next(
    skylog_bootstrap: str, skylog_topic: str
) -> None:
    async def run() -> None:
        async with AsyncProducer(skylog_bootstrap, transactional_id=f"{skylog_topic}-id") as producer:

            async def transact(value: str) -> None:
                async with producer.transaction():
                    await producer.send(skylog_topic, value)

            for _ in range(3):
                beginning = asyncio.create_task(transact("cancelled"))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                beginning.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await beginning
            await transact("kept")

    asyncio.run(asyncio.wait_for(run(), patience(60)))
    assert [message.value for message in consume(skylog_bootstrap, skylog_topic)] == [b"kept"]
