"""AsyncProducer and AsyncConsumer against a real broker."""

from __future__ import annotations

import asyncio
import time

import pytest

from skylog import AsyncConsumer, AsyncProducer
from skylog.client import DeliveryError, Position
from tests.client.test_consumer import committed


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


def test_a_partitioner_of_ones_own_works_without_blocking(skylog_bootstrap: str, four_partitions: str) -> None:
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
    assert committed(skylog_bootstrap, letters)[0] in (4, 5)  # the last one was in hand, or had been finished


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
