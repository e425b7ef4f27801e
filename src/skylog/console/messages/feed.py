"""Carries the pieces that a blocking generator yields from a thread to the event loop, and on to a reader.

Few bytes are under way between them: a reader that is slow slows the thread down, and one that takes nothing for a
while is given up. Whoever goes away ends the thread at its next piece, so generators yield something, be it empty,
every moment.
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
UNDER_WAY_BYTES: Final = 1024 * 1024  # and one piece
SENT_BYTES: Final = 64 * 1024  # at a time: who takes that much within PATIENCE_S is slow, and not gone
PATIENCE_S: Final = 60.0


class TooManyFeedsError(SkylogError):
    """So many streams are open that no more are begun."""


class Feeds:
    """All feeds of one console; there are at most MAX_FEEDS at a time."""

    def __init__(self) -> None:
        self._free = threading.Semaphore(MAX_FEEDS)

    def begin(self, work: Callable[[], Iterator[bytes]]) -> Feed:
        """Run `work` in a thread. Raises TooManyFeedsError."""
        if not self._free.acquire(blocking=False):
            raise TooManyFeedsError(f"{MAX_FEEDS} streams are open already; close one, such as a page that follows")
        return Feed(work, self._free.release)


class Feed:
    """An asynchronous iterator over the pieces of one generator but the empty ones. Raises what the generator raises.

    A piece is under way until the next one is asked for.
    """

    def __init__(self, work: Callable[[], Iterator[bytes]], on_end: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._pieces: asyncio.Queue[bytes | BaseException | None] = asyncio.Queue()
        self._under_way_bytes = 0
        self._is_stopping = False
        self._changed = threading.Condition()
        self._on_end = on_end
        threading.Thread(target=self._run, args=(work,), name="skylog-console-feed").start()

    def stop(self) -> None:
        """Let the thread end soon, and drop what is under way. For the event loop; may be called more than once."""
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
                    self._under_way_bytes -= len(piece)
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
                        self._hand_over(piece)
            finally:
                getattr(pieces, "close", lambda: None)()
        except Exception as error:
            end = error
        finally:
            self._on_end()
            self._hand_over(end)

    def _has_room(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopping or self._under_way_bytes < UNDER_WAY_BYTES)
            return not self._is_stopping

    def _hand_over(self, piece: bytes | BaseException | None) -> None:
        if isinstance(piece, bytes):
            with self._changed:
                self._under_way_bytes += len(piece)
        try:
            self._loop.call_soon_threadsafe(self._pieces.put_nowait, piece)
        except RuntimeError:  # the loop has ended, and with it whoever waited
            self._is_stopping = True


class FeedResponse(StreamingResponse):
    """A response that ends its feed however it ends itself, and breaks off when nobody takes it."""

    def __init__(self, feed: Feed, media_type: str, **settings: Any) -> None:
        super().__init__(_in_parts(feed), media_type=media_type, **settings)
        self.headers["x-accel-buffering"] = "no"  # a proxy before the console is not to hold events back
        self._feed = feed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_in_time(message: Message) -> None:
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await send(message)
            except TimeoutError:
                raise _NobodyReadsError from None

        try:
            await super().__call__(scope, receive, send_in_time)
        except* _NobodyReadsError:
            # The response stays without its end: the server closes the connection, and whoever comes back sees that.
            logger.warning("%s: nothing of it was taken for %.0f s; broken off", scope["path"], PATIENCE_S)
        finally:
            self._feed.stop()


class _NobodyReadsError(Exception):
    pass


async def _in_parts(feed: Feed) -> AsyncIterator[bytes]:
    async for piece in feed:
        for start in range(0, len(piece), SENT_BYTES):
            yield piece[start : start + SENT_BYTES]


def event(name: str, data: str) -> bytes:
    """One event of a text/event-stream."""
    lines = data.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return f"event: {name}\n{''.join(f'data: {line}' + chr(10) for line in lines)}\n".encode(errors="backslashreplace")
