"""The server of the metadata store that the brokers of a test share. It keeps the entries in memory.

    with StoreServer() as store:
        session = await open_shared_store(store.address, "broker-1", 2000)

It runs in a thread of the test process. `cluster/store_frames.py` has the protocol. Several sessions may have the same
name, as those of a broker before and after a restart.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Mapping
from typing import Final, Self
from uuid import uuid4

from skylog.cluster.embedded import EmbeddedStore
from skylog.cluster.store import Entry, Value, VersionConflictError
from skylog.cluster.store_frames import encode, entry_rows, read_frame, read_operations
from skylog.testing.loop_thread import LoopThread

EXPIRY_CHECK_S: Final = 0.02


class StoreServer:
    """A store on a free port of 127.0.0.1. Tests call its methods from their own thread."""

    def __init__(self) -> None:
        self._sessions = StoreSessions()
        self._thread = LoopThread("skylog-store")
        self.address = self._thread.run(self._sessions.start())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._thread.run(self._sessions.stop())
        self._thread.close()

    def entries(self, prefix: str = "") -> dict[str, Entry]:
        """Return the current entries whose path starts with `prefix`."""
        return self._thread.call(self._sessions.store.entries, prefix)

    def expire(self, name: str) -> None:
        """Expire the sessions with this name now. Their ephemeral entries are gone when this returns."""
        self._thread.run(self._sessions.expire(name))

    def cut(self, name: str, *, silently: bool = False) -> None:
        """Drop the connections of the sessions with this name, and refuse further ones until `heal`.

        With `silently` the connections stay open, but nothing passes, as in a network partition.
        """
        self._thread.call(self._sessions.cut, name, silently)

    def heal(self, name: str) -> None:
        """End a `cut`. A session that has not expired meanwhile resumes."""
        self._thread.call(self._sessions.heal, name)


class ServedSession:
    """A session as the server sees it. Its outbox has the sent frames that the client may not have received."""

    def __init__(self, name: str, timeout_ms: int, store: EmbeddedStore) -> None:
        self.id = uuid4().hex
        self.name = name
        self.heard_at = 0.0
        self.timeout_s = timeout_ms / 1000
        self.is_closed = False
        self._embedded = store.open_session()
        self._last_request = 0
        self._last_number = 0
        self._outbox: deque[tuple[int, bytes]] = deque()
        self._writer: asyncio.StreamWriter | None = None

    def attach(self, writer: asyncio.StreamWriter, seen: int) -> None:
        """Continue on a new connection of the client, which has received the frames up to `seen`."""
        if self._writer is not None:
            self._writer.transport.abort()
        self._writer = writer
        _write(writer, encode({"session": self.id}))
        self._forget(seen)
        for _, frame in self._outbox:
            _write(writer, frame)

    def detach(self, writer: asyncio.StreamWriter | None = None) -> None:
        """Send nothing more, or not on this connection."""
        if writer is None or writer is self._writer:
            self._writer = None

    async def execute(self, request: Value) -> None:
        self._forget(request["seen"])
        if request["id"] <= self._last_request:
            return  # repeated after a reconnect: its answer is in the outbox
        self._last_request = request["id"]
        match request["do"]:
            case "load":
                self._answer(request, {"entries": entry_rows(await self._embedded.load(request["prefix"]))})
            case "watch":
                await self._watch(request)
            case "commit":
                await self._commit(request)
            case "close":
                await self.end()
                self._answer(request, {})
            case _:
                self._answer(request, {})

    async def _watch(self, request: Value) -> None:
        def report(changed: Mapping[str, Entry | None]) -> None:
            self._answer(request, {"entries": entry_rows(changed)})

        await self._embedded.watch(request["prefix"], report)

    async def _commit(self, request: Value) -> None:
        try:
            await self._embedded.commit(read_operations(request["operations"]))
        except VersionConflictError as error:
            self._answer(request, {"conflict": error.path})
        else:
            self._answer(request, {})

    async def end(self) -> None:
        """Remove the session's ephemeral entries."""
        self.is_closed = True
        await self._embedded.close()

    async def expire(self) -> None:
        await self.end()
        if self._writer is not None:
            _write(self._writer, encode({"expired": True}))
            self._writer.close()

    def _answer(self, request: Value, body: Value) -> None:
        self._last_number += 1
        frame = encode({"number": self._last_number, "id": request["id"], **body})
        self._outbox.append((self._last_number, frame))
        if self._writer is not None:
            _write(self._writer, frame)

    def _forget(self, seen: int) -> None:
        while self._outbox and self._outbox[0][0] <= seen:
            self._outbox.popleft()


class StoreSessions:
    """All sessions and connections of a server. Use it on one event loop."""

    def __init__(self) -> None:
        self.store = EmbeddedStore(None)
        self._sessions: dict[str, ServedSession] = {}
        self._connections: dict[asyncio.StreamWriter, str] = {}
        self._cuts: dict[str, bool] = {}  # whether it is a silent one, by name

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._expiring = asyncio.ensure_future(self._expire_silent())
        host, port = self._server.sockets[0].getsockname()
        return f"{host}:{port}"

    async def stop(self) -> None:
        self._expiring.cancel()
        self._server.close()
        for writer in self._connections:
            writer.transport.abort()

    async def expire(self, name: str) -> None:
        for session in self._named(name):
            await self._expire(session)

    def cut(self, name: str, silently: bool) -> None:
        self._cuts[name] = silently
        for session in self._named(name):
            session.detach()
        if not silently:
            self._abort(name)

    def heal(self, name: str) -> None:
        if self._cuts.pop(name, False):
            self._abort(name)  # what was sent meanwhile is lost; the clients reconnect and repeat it

    def touch(self) -> None:
        """Give every session its whole timeout again, as ZooKeeper does after a restart."""
        for session in self._sessions.values():
            session.heard_at = _now()

    def _named(self, name: str) -> list[ServedSession]:
        return [session for session in self._sessions.values() if session.name == name]

    def _abort(self, name: str) -> None:
        for writer, owner in self._connections.items():
            if owner == name:
                writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError):  # the client has closed the connection, or a test has cut it
            hello = await read_frame(reader)
            self._connections[writer] = hello["name"]
            if hello["name"] not in self._cuts:
                await self._serve_session(hello, reader, writer)
            while self._cuts.get(hello["name"]):
                await read_frame(reader)
        self._connections.pop(writer, None)
        writer.close()

    async def _serve_session(self, hello: Value, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Execute requests until the session ends, the connection is lost, or a test cuts it."""
        session = self._open(hello, writer)
        try:
            while session is not None and not session.is_closed:
                request = await read_frame(reader)
                if session.name in self._cuts or session.is_closed:  # it may have expired during the wait
                    return
                session.heard_at = _now()
                await session.execute(request)
        finally:
            if session is not None:
                session.detach(writer)

    def _open(self, hello: Value, writer: asyncio.StreamWriter) -> ServedSession | None:
        """Open the session of a connection, or resume it. None if it has expired."""
        if hello["session"] is None:
            session = ServedSession(hello["name"], hello["timeout_ms"], self.store)
            self._sessions[session.id] = session
        elif hello["session"] in self._sessions:
            session = self._sessions[hello["session"]]
        else:
            _write(writer, encode({"expired": True}))
            return None
        session.heard_at = _now()
        session.attach(writer, hello["seen"])
        return session

    async def _expire_silent(self) -> None:
        while True:
            for session in tuple(self._sessions.values()):
                if session.is_closed:
                    self._sessions.pop(session.id, None)
                elif _now() - session.heard_at > session.timeout_s:
                    await self._expire(session)
            await asyncio.sleep(EXPIRY_CHECK_S)

    async def _expire(self, session: ServedSession) -> None:
        self._sessions.pop(session.id, None)
        await session.expire()


def _write(writer: asyncio.StreamWriter, frame: bytes) -> None:
    """Send a frame, unless the connection is lost: uvloop raises then, in the middle of another session's commit."""
    if not writer.is_closing():
        writer.write(frame)


def _now() -> float:
    return asyncio.get_running_loop().time()
