"""Carries what a blocking generator yields from a thread to the event loop, and tells it when nobody listens any more.

The queue between them is short: a browser that is slow slows the thread down. Whoever goes away ends the thread at its
next item, so generators yield something, be it empty, every moment.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final, Generic, TypeVar

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from skylog.errors import SkylogError

T = TypeVar("T")

QUEUE_LENGTH: Final = 8
MAX_FEEDS: Final = 24
_LOOK_S: Final = 0.25


class TooManyFeedsError(SkylogError):
    """So many streams are open that no more are begun."""


class Feeds:
    """All feeds of one console; there are at most MAX_FEEDS at a time."""

    def __init__(self) -> None:
        self._free = threading.Semaphore(MAX_FEEDS)

    def begin(self, work: Callable[[], Iterator[T]]) -> Feed[T]:
        """Run `work` in a thread. Raises TooManyFeedsError."""
        if not self._free.acquire(blocking=False):
            raise TooManyFeedsError(f"{MAX_FEEDS} streams are open already; close one, such as a page that follows")
        return Feed(work, self._free.release)


class Feed(Generic[T]):
    """An asynchronous iterator over the items of one generator. Raises what the generator raises."""

    def __init__(self, work: Callable[[], Iterator[T]], on_end: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._items: asyncio.Queue[T | BaseException | None] = asyncio.Queue()
        self._room = threading.Semaphore(QUEUE_LENGTH)
        self._stopping = threading.Event()
        self._on_end = on_end
        threading.Thread(target=self._run, args=(work,), name="skylog-console-feed").start()

    def stop(self) -> None:
        """Let the thread end soon. May be called more than once."""
        self._stopping.set()

    async def __aiter__(self) -> AsyncIterator[T]:
        try:
            while (item := await self._items.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                self._room.release()
                yield item
        finally:
            self.stop()

    def _run(self, work: Callable[[], Iterator[T]]) -> None:
        end: BaseException | None = None
        try:
            items = work()
            try:
                while self._has_room() and (item := next(items, None)) is not None:
                    self._hand_over(item)
            finally:
                getattr(items, "close", lambda: None)()
        except Exception as error:
            end = error
        finally:
            self._on_end()
            self._hand_over(end)

    def _has_room(self) -> bool:
        while not self._stopping.is_set():
            if self._room.acquire(timeout=_LOOK_S):
                return not self._stopping.is_set()
        return False

    def _hand_over(self, item: T | BaseException | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._items.put_nowait, item)
        except RuntimeError:  # the loop has ended, and with it whoever waited
            self.stop()


class FeedResponse(StreamingResponse):
    """A response that ends its feed however it ends itself."""

    def __init__(self, feed: Feed[Any], content: AsyncIterator[bytes], media_type: str, **settings: Any) -> None:
        super().__init__(content, media_type=media_type, **settings)
        self.headers["x-accel-buffering"] = "no"  # a proxy before the console is not to hold events back
        self._feed = feed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._feed.stop()


def event(name: str, data: str) -> bytes:
    """One event of a text/event-stream."""
    lines = data.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return f"event: {name}\n{''.join(f'data: {line}' + chr(10) for line in lines)}\n".encode(errors="backslashreplace")
