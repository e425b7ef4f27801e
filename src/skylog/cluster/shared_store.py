"""A metadata store that several processes share through a server. It runs clusters in tests without ZooKeeper.

    session = await open_shared_store("127.0.0.1:4181", "broker-1", 6000)

A session outlives its connections: it reconnects and resumes, and `store_frames.py` shows how nothing is lost or done
twice. It expires when the session timeout has passed since it sent the last request that was answered. The server
counts from when it received that request, so the client never takes its session for alive when the server does not.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Final

from skylog.cluster.store import Entry, Operation, SessionExpiredError, Value, VersionConflictError, Watcher
from skylog.cluster.store_frames import encode, operation_rows, read_entries, read_frame
from skylog.errors import SkylogError

logger = logging.getLogger(__name__)

RETRY_PAUSE_S: Final = 0.05
_PINGS_PER_TIMEOUT: Final = 5


async def open_shared_store(address: str, name: str, session_timeout_ms: int) -> SharedSession:
    """Open a session with the store server at `host:port`. Raises SkylogError after the session timeout."""
    session = SharedSession(address, name, session_timeout_ms)
    try:
        await session.ping()
    except SessionExpiredError:
        raise SkylogError(f"the metadata store at {address} did not respond in {session_timeout_ms} ms") from None
    except BaseException:
        session.abandon()
        raise
    return session


class _Request:
    """A request without an answer yet. `finish` converts the answer to the result, or raises."""

    __slots__ = ("finish", "frame", "future", "sent_at")

    def __init__(self, frame: bytes, finish: Callable[[Value], Any]) -> None:
        self.frame = frame
        self.finish = finish
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.sent_at = 0.0

    def settle(self, answer: Value) -> None:
        if self.future.done():
            return  # the caller was cancelled
        try:
            self.future.set_result(self.finish(answer))
        except Exception as error:
            self.future.set_exception(error)


class SharedSession:
    """A `MetadataStore`: one session with a store server. It connects by itself, on the running event loop."""

    max_commit_bytes = None
    is_shared = True

    def __init__(self, address: str, name: str, session_timeout_ms: int) -> None:
        host, _, port = address.rpartition(":")
        self._host, self._port = host, int(port)
        self._name = name
        self._timeout_ms = session_timeout_ms
        self._timeout_s = session_timeout_ms / 1000
        self._id: str | None = None
        self._seen = 0
        self._request_ids = count(1)
        self._requests: dict[int, _Request] = {}
        self._watchers: dict[int, Watcher] = {}
        self._expiry_listeners: list[Callable[[], None]] = []
        self._has_ended = self._is_closing = False
        self._expires_at = time.monotonic() + self._timeout_s
        self._writer: asyncio.StreamWriter | None = None
        self._is_ready = False  # for requests on the present connection
        self._heard_at = 0.0  # on the present connection
        self._tasks = [asyncio.ensure_future(self._stay_connected()), asyncio.ensure_future(self._keep_alive())]

    # -- the store

    async def load(self, prefix: str) -> dict[str, Entry]:
        found: dict[str, Entry] = await self._ask({"do": "load", "prefix": prefix}, _entries)
        return found

    async def commit(self, operations: Sequence[Operation]) -> None:
        """As in `MetadataStore`. SessionExpiredError leaves it open whether the operations were applied."""
        await self._ask({"do": "commit", "operations": operation_rows(operations)}, _check_commit)

    async def watch(self, prefix: str, watcher: Watcher) -> None:
        request_id = next(self._request_ids)

        def begin(answer: Value) -> None:
            watcher(read_entries(answer["entries"]))
            self._watchers[request_id] = watcher

        await self._ask({"do": "watch", "prefix": prefix}, begin, request_id)

    def on_expiry(self, listener: Callable[[], None]) -> None:
        self._expiry_listeners.append(listener)

    async def close(self) -> None:
        self._is_closing = True
        try:
            await self._ask({"do": "close"}, _nothing)
        except SessionExpiredError:
            pass  # it has ended before, or during the wait for an answer
        finally:
            self._end()
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)

    async def ping(self) -> None:
        """Return when the server has answered."""
        await self._ask({"do": "ping"}, _nothing)

    def abandon(self) -> None:
        """End the session without telling the server, where it expires."""
        self._end()

    # -- requests

    async def _ask(self, body: Value, finish: Callable[[Value], Any], request_id: int | None = None) -> Any:
        self._check_time()
        if self._has_ended:
            raise SessionExpiredError("the session with the metadata store has ended")
        return await self._start(body, finish, request_id).future

    def _start(self, body: Value, finish: Callable[[Value], Any], request_id: int | None = None) -> _Request:
        request_id = request_id or next(self._request_ids)
        request = _Request(encode({"id": request_id, "seen": self._seen, **body}), finish)
        self._requests[request_id] = request
        if self._is_ready:
            self._send(request)
        return request

    def _send(self, request: _Request) -> None:
        assert self._writer is not None
        request.sent_at = time.monotonic()
        if not self._writer.is_closing():  # otherwise the next connection sends it; uvloop's transport would raise
            self._writer.write(request.frame)

    # -- the connection

    async def _stay_connected(self) -> None:
        while not self._has_ended:
            try:
                reader, self._writer = await asyncio.open_connection(self._host, self._port)
                await self._converse(reader)
            except (OSError, EOFError) as error:
                logger.debug("the connection of %s to the metadata store is lost: %s", self._name, error)
            finally:
                self._drop_connection()
            await asyncio.sleep(RETRY_PAUSE_S)

    async def _converse(self, reader: asyncio.StreamReader) -> None:
        """Open or resume the session, repeat the unanswered requests, and receive what the server sends."""
        assert self._writer is not None
        began_at = self._heard_at = time.monotonic()
        hello = {"name": self._name, "timeout_ms": self._timeout_ms, "session": self._id, "seen": self._seen}
        self._writer.write(encode(hello))
        welcome = await read_frame(reader)
        if "expired" in welcome:
            self._expire()
            return
        self._id = welcome["session"]
        self._note_contact(began_at)
        self._is_ready = True
        for request in self._requests.values():
            self._send(request)
        while not self._has_ended:
            self._receive(await read_frame(reader))

    def _receive(self, frame: Value) -> None:
        if "expired" in frame:
            self._expire()
            return
        self._heard_at = time.monotonic()
        self._seen = frame["number"]
        request_id = frame["id"]
        request = self._requests.pop(request_id, None)
        if request is not None:
            self._note_contact(request.sent_at)
            request.settle(frame)
        elif request_id in self._watchers:
            # Not called here: a watcher that raises must not break the connection.
            asyncio.get_running_loop().call_soon(self._watchers[request_id], read_entries(frame["entries"]))

    def _drop_connection(self) -> None:
        self._is_ready = False
        if self._writer is not None:
            self._writer.transport.abort()
            self._writer = None

    # -- the life of the session

    async def _keep_alive(self) -> None:
        """Send heartbeats, replace a connection that does not respond, and notice the end of the session in time."""
        pause_s = self._timeout_s / _PINGS_PER_TIMEOUT
        while not self._has_ended:
            await asyncio.sleep(min(pause_s, max(self._expires_at - time.monotonic(), 0)))
            self._check_time()
            if not self._requests and not self._has_ended:
                self._start({"do": "ping"}, _nothing)
            if time.monotonic() - self._heard_at > self._timeout_s / 2:
                self._drop_connection()

    def _note_contact(self, sent_at: float) -> None:
        self._expires_at = max(self._expires_at, sent_at + self._timeout_s)

    def _check_time(self) -> None:
        """Expire the session if it is time: after a pause of the process, its timer has not fired yet."""
        if time.monotonic() >= self._expires_at:
            self._expire()

    def _expire(self) -> None:
        if not self._has_ended and not self._is_closing:
            for listener in self._expiry_listeners:  # they run before the callers of the open requests
                asyncio.get_running_loop().call_soon(listener)
        self._end()

    def _end(self) -> None:
        self._has_ended = True
        self._drop_connection()
        for request in self._requests.values():
            if not request.future.done():
                request.future.set_exception(SessionExpiredError("the session with the metadata store has expired"))
                request.future.exception()  # marks it as retrieved: no one waits for a heartbeat
        self._requests.clear()


def _entries(answer: Value) -> dict[str, Entry | None]:
    return read_entries(answer["entries"])


def _check_commit(answer: Value) -> None:
    if "conflict" in answer:
        raise VersionConflictError(answer["conflict"])


def _nothing(_: Value) -> None:
    return None
