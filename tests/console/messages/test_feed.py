"""Feeds: pieces from a thread to the event loop, and the end of the thread when the client disconnects."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import aclosing

import pytest
from starlette.types import Message

from skylog.console.messages import feed as feed_module
from skylog.console.messages.feed import (
    MAX_BUFFERED_BYTES,
    MAX_FEEDS,
    PART_BYTES,
    Feed,
    FeedResponse,
    Feeds,
    TooManyFeedsError,
    event,
)
from skylog.errors import SkylogError
from skylog.testing import wait_until


def test_pieces_come_in_order_and_end() -> None:
    async def collect() -> list[bytes]:
        return [piece async for piece in Feeds().begin(lambda: iter(pieces))]

    pieces = [b"%d" % number for number in range(100)]
    assert asyncio.run(collect()) == pieces


def test_empty_pieces_are_dropped() -> None:
    async def collect() -> list[bytes]:
        return [piece async for piece in Feeds().begin(lambda: iter([b"", b"a", b"", b"b", b""]))]

    assert asyncio.run(collect()) == [b"a", b"b"]


def test_an_error_of_the_generator_is_raised_to_the_client() -> None:
    def work() -> Iterator[bytes]:
        yield b"x"
        raise SkylogError("the topic is gone")

    async def collect() -> list[bytes]:
        return [piece async for piece in Feeds().begin(work)]

    with pytest.raises(SkylogError, match="the topic is gone"):
        asyncio.run(collect())


def test_a_client_that_disconnects_ends_the_thread() -> None:
    ended = threading.Event()

    def work() -> Iterator[bytes]:
        try:
            while True:
                yield b"x"
        finally:
            ended.set()

    async def listen_once() -> None:
        feed = Feeds().begin(work)
        async with aclosing(aiter(feed)) as pieces:  # type: ignore[type-var]
            await anext(pieces)
        assert await asyncio.to_thread(ended.wait, 10)

    asyncio.run(listen_once())


@pytest.mark.parametrize("size", [1000, 300_000, 3_000_000])
def test_the_buffer_for_a_slow_client_is_bounded(size: int) -> None:
    made: list[int] = []

    def work() -> Iterator[bytes]:
        for number in range(10_000):
            made.append(number)
            yield b"x" * size

    async def listen_a_little() -> None:
        feed = Feeds().begin(work)
        pieces = aiter(feed)
        for _ in range(3):
            await anext(pieces)
        full = -(-MAX_BUFFERED_BYTES // size)
        await asyncio.to_thread(wait_until, lambda: len(made) == 2 + full, "the way to fill")
        await anext(pieces)
        await asyncio.to_thread(wait_until, lambda: len(made) == 3 + full, "room for one more")
        feed.stop()

    asyncio.run(listen_a_little())


def test_buffered_pieces_are_dropped_with_their_feed() -> None:
    made = threading.Event()

    def work() -> Iterator[bytes]:
        yield b"a"
        yield b"b"
        made.set()

    async def listen() -> list[bytes]:
        feed = Feeds().begin(work)
        assert await asyncio.to_thread(made.wait, 10)
        feed.stop()
        return [piece async for piece in feed]

    assert asyncio.run(asyncio.wait_for(listen(), 10)) == []


async def _never() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


def test_a_client_that_reads_nothing_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "SEND_TIMEOUT_S", 0.2)
    ended = threading.Event()
    sent: list[Message] = []

    def work() -> Iterator[bytes]:
        try:
            while True:
                yield b"x" * 100_000
        finally:
            ended.set()

    async def send(message: Message) -> None:
        if len(sent) == 4:
            await asyncio.Event().wait()
        sent.append(message)

    async def serve() -> None:
        response = FeedResponse(Feeds().begin(work), "text/plain")
        await response({"type": "http", "path": "/export", "asgi": {"spec_version": "2.3"}}, _never, send)
        assert await asyncio.to_thread(ended.wait, 10)

    asyncio.run(asyncio.wait_for(serve(), 10))
    assert [len(message.get("body", b"")) for message in sent] == [0, PART_BYTES, 100_000 - PART_BYTES, PART_BYTES]
    assert all(message.get("more_body", True) for message in sent)  # the response is incomplete


def test_the_number_of_feeds_is_limited_and_each_that_ends_makes_room() -> None:
    def endless() -> Iterator[bytes]:
        while True:
            yield b"x" * MAX_BUFFERED_BYTES  # one piece fills the buffer, so the threads wait

    async def room_for_another(feeds: Feeds) -> Feed:
        while True:
            try:
                return feeds.begin(endless)
            except TooManyFeedsError:
                await asyncio.sleep(0.01)

    async def fill() -> None:
        feeds = Feeds()
        running = [feeds.begin(endless) for _ in range(MAX_FEEDS)]
        with pytest.raises(TooManyFeedsError):
            feeds.begin(endless)
        running.pop().stop()
        running.append(await asyncio.wait_for(room_for_another(feeds), 60))
        with pytest.raises(TooManyFeedsError):
            feeds.begin(endless)
        for feed in running:
            feed.stop()

    asyncio.run(fill())


def test_an_event_keeps_its_lines_and_cannot_be_broken_out_of() -> None:
    assert (
        event("rows", "a\r\nb\rc\n\nevent: x") == b"event: rows\ndata: a\ndata: b\ndata: c\ndata: \ndata: event: x\n\n"
    )
