"""From a thread to the event loop, and the way back: that nobody listens any more."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import aclosing

import pytest

from skylog.console.messages.feed import MAX_FEEDS, QUEUE_LENGTH, Feeds, TooManyFeedsError, event
from skylog.errors import SkylogError
from skylog.testing import wait_until


def test_items_come_in_order_and_end() -> None:
    async def collect() -> list[int]:
        return [item async for item in Feeds().begin(lambda: iter(range(100)))]

    assert asyncio.run(collect()) == list(range(100))


def test_what_the_work_raises_is_raised_to_the_listener() -> None:
    def work() -> Iterator[int]:
        yield 1
        raise SkylogError("the topic is gone")

    async def collect() -> list[int]:
        return [item async for item in Feeds().begin(work)]

    with pytest.raises(SkylogError, match="the topic is gone"):
        asyncio.run(collect())


def test_a_listener_that_goes_away_ends_the_work() -> None:
    ended = threading.Event()

    def work() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            ended.set()

    async def listen_once() -> None:
        feed = Feeds().begin(work)
        async with aclosing(aiter(feed)) as items:  # type: ignore[type-var]
            await anext(items)
        assert await asyncio.to_thread(ended.wait, 10)

    asyncio.run(listen_once())


def test_a_slow_listener_slows_the_work_down() -> None:
    made: list[int] = []

    def work() -> Iterator[int]:
        for number in range(10_000):
            made.append(number)
            yield number

    async def listen_a_little() -> None:
        feed = Feeds().begin(work)
        items = aiter(feed)
        for _ in range(3):
            await anext(items)
        await asyncio.to_thread(wait_until, lambda: len(made) >= QUEUE_LENGTH, "the queue to fill")
        assert len(made) <= QUEUE_LENGTH + 4
        feed.stop()

    asyncio.run(listen_a_little())


def test_there_are_only_so_many_feeds_and_each_that_ends_makes_room() -> None:
    def endless() -> Iterator[int]:
        while True:
            yield 1

    async def fill() -> None:
        feeds = Feeds()
        running = [feeds.begin(endless) for _ in range(MAX_FEEDS)]
        with pytest.raises(TooManyFeedsError):
            feeds.begin(endless)
        running.pop().stop()
        running.append(await asyncio.to_thread(wait_until, lambda: begun(feeds, loop), "room for another"))
        for feed in running:
            feed.stop()

    def begun(feeds: Feeds, loop: asyncio.AbstractEventLoop) -> object:
        async def begin() -> object:
            try:
                return feeds.begin(endless)
            except TooManyFeedsError:
                return None

        return asyncio.run_coroutine_threadsafe(begin(), loop).result(5)

    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(fill())
    finally:
        loop.close()


def test_an_event_keeps_its_lines_and_cannot_be_broken_out_of() -> None:
    assert (
        event("rows", "a\r\nb\rc\n\nevent: x") == b"event: rows\ndata: a\ndata: b\ndata: c\ndata: \ndata: event: x\n\n"
    )
