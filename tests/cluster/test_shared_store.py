"""The store that processes share through a server: the contract of stores, lost connections and expiry."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

import pytest

from skylog.cluster import Entry, MetadataStore, SessionExpiredError, VersionConflictError
from skylog.cluster.shared_store import SharedSession, open_shared_store
from skylog.errors import SkylogError
from skylog.fastest_loop import run_on_fastest_loop
from skylog.testing import wait_until
from skylog.testing.store_server import StoreServer

from .store_contract import Recorder, StoreContract, StoreHome, commit, delete, ephemeral, put, until_current

PATIENT_MS = 60_000
SHORT_MS = 600


class SharedHome:
    def __init__(self, server: StoreServer) -> None:
        self._server = server
        self._names: dict[MetadataStore, str] = {}

    def run(self, test: Coroutine[Any, Any, None]) -> None:
        asyncio.run(test)

    async def __call__(self) -> MetadataStore:
        return await self.another_session()

    async def another_session(self) -> MetadataStore:
        name = f"session-{len(self._names)}"
        session = SharedSession(self._server.address, name, PATIENT_MS)
        self._names[session] = name
        return session

    async def expire(self, session: MetadataStore) -> None:
        await session.load("")  # the server knows it now
        await asyncio.to_thread(self._server.expire, self._names[session])
        await until_expired(session)


@pytest.fixture
def server() -> Iterator[StoreServer]:
    with StoreServer() as server:
        yield server


class TestSharedStore(StoreContract):
    @pytest.fixture
    def home(self, server: StoreServer) -> StoreHome:
        return SharedHome(server)


async def until_expired(session: MetadataStore) -> None:
    with contextlib.suppress(SessionExpiredError):
        while True:
            await session.load("")
            await asyncio.sleep(0.01)
    await asyncio.sleep(0)  # the listeners are called by the event loop


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        await asyncio.wait_for(scenario(), 20)

    asyncio.run(limited())


def listen(session: MetadataStore) -> list[float]:
    """Return a list that gets the time at which the session expires."""
    expired: list[float] = []
    session.on_expiry(lambda: expired.append(time.monotonic()))
    return expired


# -- lost connections


@pytest.mark.parametrize("silently", [False, True])
def test_a_session_resumes_after_a_cut(server: StoreServer, silently: bool) -> None:
    async def scenario() -> None:
        first = await open_shared_store(server.address, "first", PATIENT_MS)
        second = await open_shared_store(server.address, "second", PATIENT_MS)
        watcher = Recorder()
        await first.watch("/", watcher)
        expired = listen(first)
        await commit(first, ephemeral("/brokers/1", 1))
        server.cut("first", silently=silently)
        asked = [asyncio.ensure_future(commit(first, put(f"/{number}", number))) for number in range(3)]
        for version in range(5):
            await commit(second, put("/a", version, version))
        assert not any(each.done() for each in asked)
        assert set(server.entries()) == {"/brokers/1", "/a"}
        server.heal("first")
        await asyncio.gather(*asked)
        assert set(await second.load("/brokers/")) == {"/brokers/1"}
        await until_current(watcher, first, "/")
        versions = [entry.version for changed in watcher.reported if (entry := changed.get("/a")) is not None]
        assert versions == [1, 2, 3, 4, 5]
        assert len([changed for changed in watcher.reported if "/brokers/1" in changed]) == 1
        assert expired == []

    run(scenario)


async def closed_connection(address: str) -> asyncio.StreamWriter:
    """Return a connection whose end its owner has not noticed yet. uvloop raises if it is written to."""
    host, _, port = address.partition(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.close()
    await writer.wait_closed()
    return writer


def test_a_request_on_a_connection_that_was_just_lost_is_sent_on_the_next_one(server: StoreServer) -> None:
    async def scenario() -> None:
        session = SharedSession(server.address, "lossy", PATIENT_MS)
        await session.load("")
        connection = session._writer
        assert connection is not None
        session._writer = await closed_connection(server.address)
        committing = asyncio.ensure_future(commit(session, put("/a", 1)))
        await asyncio.sleep(0)
        connection.transport.abort()
        await committing
        assert server.entries().keys() == {"/a"}

    run_on_fastest_loop(asyncio.wait_for(scenario(), 20))


def test_a_lost_connection_of_a_watcher_does_not_fail_the_commit_of_another_session(server: StoreServer) -> None:
    async def lose_connection() -> None:
        [session] = server._sessions._named("watching")
        session._writer = await closed_connection(server.address)

    async def scenario() -> None:
        watching = SharedSession(server.address, "watching", PATIENT_MS)
        watcher = Recorder()
        await watching.watch("/", watcher)
        server._thread.run(lose_connection())
        other = await open_shared_store(server.address, "other", PATIENT_MS)
        await commit(other, put("/a", 1))
        assert watching._writer is not None
        watching._writer.transport.abort()
        await until_current(watcher, watching, "/")
        assert any("/a" in changed for changed in watcher.reported)

    run(scenario)


def test_a_commit_whose_answer_was_lost_is_not_applied_twice_and_no_conflict_with_itself(server: StoreServer) -> None:
    async def scenario() -> None:
        session = await open_shared_store(server.address, "lossy", PATIENT_MS)
        for version in range(20):
            committing = asyncio.ensure_future(commit(session, put("/counter", version, version)))
            refused = asyncio.ensure_future(commit(session, put("/counter", "never", version)))
            await asyncio.sleep(0)  # both are sent
            await asyncio.to_thread(server.cut, "lossy")  # before, while or after the server executes them
            server.heal("lossy")
            await committing
            with pytest.raises(VersionConflictError):
                await refused
        assert await session.load("/") == {"/counter": Entry({"is": 19}, 20)}

    run(scenario)


def test_a_commit_whose_answer_was_lost_is_not_repeated_though_its_condition_is_true_again(server: StoreServer) -> None:
    async def scenario() -> None:
        other = await open_shared_store(server.address, "other", PATIENT_MS)
        session = await open_shared_store(server.address, "deaf", PATIENT_MS)
        committing = asyncio.ensure_future(commit(session, put("/a", 1)))
        await asyncio.sleep(0)
        wait_until(lambda: server.entries("/a"), "the commit")  # blocks the loop: the session does not read the answer
        server.cut("deaf")
        session._drop_connection()  # what has arrived is lost
        await commit(other, delete("/a", 1))
        server.heal("deaf")
        await committing
        assert await session.load("/") == {}

    run(scenario)


def test_a_connection_that_does_not_respond_is_replaced() -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            silent.settimeout(10)
            session = SharedSession(f"127.0.0.1:{silent.getsockname()[1]}", "unheard", SHORT_MS)
            accepted = [await asyncio.to_thread(silent.accept) for _ in range(2)]
            await session.close()
            for connection, _ in accepted:
                connection.close()

    run(scenario)


# -- expiry


@pytest.mark.parametrize("silently", [False, True])
def test_a_session_without_contact_expires_on_both_sides(server: StoreServer, silently: bool) -> None:
    async def scenario() -> None:
        session = await open_shared_store(server.address, "lonely", SHORT_MS)
        expired = listen(session)
        await commit(session, ephemeral("/brokers/1", 1))
        await asyncio.sleep(SHORT_MS / 1000 * 1.2)
        assert server.entries("/brokers/")  # heartbeats keep it alive
        began = time.monotonic()
        server.cut("lonely", silently=silently)
        asked = asyncio.ensure_future(session.load("/"))
        with pytest.raises(SessionExpiredError):
            await asked
        assert expired[0] - began > SHORT_MS / 1000 / 2
        await asyncio.to_thread(wait_until, lambda: not server.entries("/brokers/"), "the server to expire the session")
        server.heal("lonely")
        await asyncio.sleep(0.1)
        with pytest.raises(SessionExpiredError):
            await session.load("/")
        assert len(expired) == 1

    run(scenario)


def test_a_session_that_was_paused_too_long_has_expired_before_its_next_request(server: StoreServer) -> None:
    async def scenario() -> None:
        session = await open_shared_store(server.address, "paused", SHORT_MS)
        expired = listen(session)
        time.sleep(SHORT_MS / 1000 * 1.2)  # noqa: ASYNC251 - as SIGSTOP or a long garbage collection does
        with pytest.raises(SessionExpiredError):
            session.load("/").send(None)  # it raises at once, and sends nothing
        await asyncio.sleep(0)
        assert len(expired) == 1

    run(scenario)


def test_a_session_that_the_server_has_expired_during_a_cut_does_not_resume(server: StoreServer) -> None:
    async def scenario() -> None:
        session = await open_shared_store(server.address, "gone", PATIENT_MS)
        await commit(session, ephemeral("/brokers/1", 1))
        server.cut("gone")
        server.expire("gone")
        assert server.entries() == {}
        committing = asyncio.ensure_future(commit(session, put("/a", 1)))
        server.heal("gone")
        with pytest.raises(SessionExpiredError):
            await committing
        assert server.entries() == {}

    run(scenario)


def test_closing_during_a_cut_ends_with_the_session_timeout_and_calls_no_listener(server: StoreServer) -> None:
    async def scenario() -> None:
        session = await open_shared_store(server.address, "closing", SHORT_MS)
        expired = listen(session)
        server.cut("closing", silently=True)
        await session.close()
        await session.close()
        with pytest.raises(SessionExpiredError):
            await session.load("/")
        assert expired == []

    run(scenario)


def test_two_sessions_with_one_name_end_separately(server: StoreServer) -> None:
    async def scenario() -> None:
        before = await open_shared_store(server.address, "broker-1", PATIENT_MS)
        await commit(before, ephemeral("/before", 1))
        after = await open_shared_store(server.address, "broker-1", PATIENT_MS)
        await commit(after, ephemeral("/after", 1))
        await before.close()
        assert set(await after.load("/")) == {"/after"}

    run(scenario)


def test_a_server_that_does_not_respond_is_named() -> None:
    async def scenario() -> None:
        with pytest.raises(SkylogError, match=r"store at 127\.0\.0\.1:1 did not respond in 200 ms"):
            await open_shared_store("127.0.0.1:1", "early", 200)

    run(scenario)


def test_a_watcher_that_raises_at_once_is_an_error_of_the_watch(server: StoreServer) -> None:
    def refuse(_: object) -> None:
        raise ValueError("cannot apply this")

    async def scenario() -> None:
        session = await open_shared_store(server.address, "strict", PATIENT_MS)
        with pytest.raises(ValueError, match="cannot apply"):
            await session.watch("/", refuse)
        await commit(session, put("/a", 1))

    run(scenario)
