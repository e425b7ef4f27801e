"""Runs a blocking generator in a thread and streams its pieces through the event loop to an HTTP client.

The buffer between them is bounded: a slow client slows the thread down, and a client that reads nothing for a while is
disconnected. When the client disconnects, the thread ends at its next piece. So generators must yield often, an empty
piece if need be.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final

from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from skylog.errors import SkylogError

logger = logging.getLogger(__name__)

MAX_FEEDS: Final = 24
MAX_BUFFERED_BYTES: Final = 1024 * 1024  # plus one piece
PART_BYTES: Final = 64 * 1024  # a client that reads this much within SEND_TIMEOUT_S is slow, but connected
SEND_TIMEOUT_S: Final = 60.0


class TooManyFeedsError(SkylogError):
    """The maximum number of streams is open."""


class Feeds:
    """All feeds of one console, at most MAX_FEEDS at a time."""

    def __init__(self) -> None:
        self._free = threading.Semaphore(MAX_FEEDS)

    def begin(self, work: Callable[[], Iterator[bytes]]) -> Feed:
        """Run `work` in a thread. Raises TooManyFeedsError."""
        if not self._free.acquire(blocking=False):
            raise TooManyFeedsError(f"{MAX_FEEDS} streams are open already; close one, such as a Follow page")
        return Feed(work, self._free.release)


class Feed:
    """An asynchronous iterator over the non-empty pieces of a generator. Raises what the generator raises.

    A piece counts as buffered until the next one is requested.
    """

    def __init__(self, work: Callable[[], Iterator[bytes]], on_end: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._pieces: asyncio.Queue[bytes | BaseException | None] = asyncio.Queue()
        self._buffered_bytes = 0
        self._is_stopping = False
        self._changed = threading.Condition()
        self._on_end = on_end
        threading.Thread(target=self._run, args=(work,), name="skylog-console-feed").start()

    def stop(self) -> None:
        """End the thread soon and drop buffered pieces. Call it on the event loop; repeated calls are harmless."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify()
        while not self._pieces.empty():
            self._pieces.get_nowait()
        self._pieces.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            while (piece := await self._pieces.get()) is not None:
                if isinstance(piece, BaseException):
                    raise piece
                yield piece
                with self._changed:
                    self._buffered_bytes -= len(piece)
                    self._changed.notify()
        finally:
            self.stop()

    def _run(self, work: Callable[[], Iterator[bytes]]) -> None:
        end: BaseException | None = None
        try:
            pieces = work()
            try:
                while self._has_room() and (piece := next(pieces, None)) is not None:
                    if piece:
                        self._put(piece)
            finally:
                getattr(pieces, "close", lambda: None)()
        except Exception as error:
            end = error
        finally:
            self._on_end()
            self._put(end)

    def _has_room(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopping or self._buffered_bytes < MAX_BUFFERED_BYTES)
            return not self._is_stopping

    def _put(self, piece: bytes | BaseException | None) -> None:
        if isinstance(piece, bytes):
            with self._changed:
                self._buffered_bytes += len(piece)
        try:
            self._loop.call_soon_threadsafe(self._pieces.put_nowait, piece)
        except RuntimeError:  # the loop is closed
            self._is_stopping = True


class FeedResponse(StreamingResponse):
    """A streaming response that stops its feed when it ends, and ends when the client reads nothing for too long."""

    def __init__(self, feed: Feed, media_type: str, **settings: Any) -> None:
        super().__init__(_in_parts(feed), media_type=media_type, **settings)
        self.headers["x-accel-buffering"] = "no"  # proxies must not buffer events
        self._feed = feed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_in_time(message: Message) -> None:
            try:
                async with asyncio.timeout(SEND_TIMEOUT_S):
                    await send(message)
            except TimeoutError:
                raise _SendTimeoutError from None

        try:
            await super().__call__(scope, receive, send_in_time)
        except* _SendTimeoutError:
            # The response is incomplete, so the server closes the connection and the client sees the error.
            logger.warning("%s: the client read nothing for %.0f s; stream closed", scope["path"], SEND_TIMEOUT_S)
        finally:
            self._feed.stop()


class _SendTimeoutError(Exception):
    pass


async def _in_parts(feed: Feed) -> AsyncIterator[bytes]:
    async for piece in feed:
        for start in range(0, len(piece), PART_BYTES):
            yield piece[start : start + PART_BYTES]


def event(name: str, data: str) -> bytes:
    """Format one event of a text/event-stream."""
    lines = data.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return f"event: {name}\n{''.join(f'data: {line}' + chr(10) for line in lines)}\n".encode(errors="backslashreplace")
