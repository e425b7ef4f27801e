"""The store on a real ZooKeeper: the contract of stores, and what a network does to a session."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Coroutine
from dataclasses import replace
from functools import partial
from operator import methodcaller
from typing import Any

import pytest
from kazoo.client import KazooClient

from skylog.cluster import (
    Entry,
    MetadataStore,
    SessionExpiredError,
    UnknownOutcomeError,
    VersionCheck,
    VersionConflictError,
)
from skylog.cluster.zookeeper import ZooKeeperSession, open_zookeeper
from skylog.cluster.zookeeper import session as session_module
from skylog.cluster.zookeeper.ensemble import Ensemble
from skylog.cluster.zookeeper.server import ZooKeeperServer
from skylog.cluster.zookeeper.transaction import MAX_COMMIT_BYTES, failure_of, send, to_steps
from skylog.errors import ConfigError, ErrorCode, KafkaError, SkylogError
from tests.patience import patience
from tests.proof import proof

from .relay import Relay
from .store_contract import Recorder, StoreContract, StoreHome, commit, delete, ephemeral, put, until_current

_numbers = itertools.count()
TIMEOUT_MS = 20_000  # of sessions that are not meant to expire


async def session_at(address: str, timeout_ms: int = TIMEOUT_MS) -> ZooKeeperSession:
    return await open_zookeeper(address, session_timeout_ms=timeout_ms, connection_timeout_ms=10_000)


def new_chroot() -> str:
    return f"/tests/{next(_numbers)}"


class ZooKeeperHome:
    def __init__(self, server: ZooKeeperServer) -> None:
        self._address = server.address + new_chroot()
        self._sessions: list[ZooKeeperSession] = []

    def run(self, test: Coroutine[Any, Any, None]) -> None:
        asyncio.run(self._run(test))

    async def _run(self, test: Coroutine[Any, Any, None]) -> None:
        try:
            await test
        finally:
            await asyncio.gather(*(session.close() for session in self._sessions))
            self._sessions.clear()

    async def __call__(self) -> MetadataStore:
        self._sessions.append(await session_at(self._address))
        return self._sessions[-1]

    async def another_session(self) -> MetadataStore:
        return await self()

    async def expire(self, session: MetadataStore) -> None:
        """Let another client close the session."""
        assert isinstance(session, ZooKeeperSession)
        expired = asyncio.Event()
        session.on_expiry(expired.set)
        await asyncio.to_thread(close_elsewhere, session._connection._client)
        await asyncio.wait_for(expired.wait(), patience(10))


def close_elsewhere(client: Any) -> None:
    other = KazooClient([f"{host}:{port}" for host, port in client.hosts], client_id=client.client_id)
    other.start()
    other.stop()
    other.close()


class TestZooKeeper(StoreContract):
    @pytest.fixture
    def home(self, zookeeper: ZooKeeperServer) -> StoreHome:
        return ZooKeeperHome(zookeeper)


# -- opening


def test_chroots_are_created_and_separate(zookeeper: ZooKeeperServer) -> None:
    async def run() -> None:
        outer = new_chroot()
        addresses = [zookeeper.address + outer + inner for inner in ("", "/a/b", "/a/c/")]
        sessions = [await session_at(address) for address in addresses]
        for number, session in enumerate(sessions[1:]):
            await commit(session, put("/topics/t", number))
        assert await sessions[1].load("") == {"/topics/t": Entry({"is": 0}, 1)}
        assert await sessions[2].load("") == {"/topics/t": Entry({"is": 1}, 1)}
        assert set(await sessions[0].load("/a/b/topics/")) == {"/a/b/topics/t"}
        await close(*sessions)

    asyncio.run(run())


def test_the_znodes_of_zookeeper_itself_are_not_entries(zookeeper: ZooKeeperServer) -> None:
    async def run() -> None:
        store, watcher = await session_at(zookeeper.address + new_chroot()), Recorder()
        await store.watch("", watcher)
        for path, data in (("/zookeeper", b""), ("/zookeeper/config", b"server.1=localhost")):
            znode = store._znodes.znode(path)
            await store._connection.call(methodcaller("create_async", znode, data))
        await commit(store, put("/a", 1))
        assert set(await store.load("")) == {"/a"}
        await until_current(watcher, store, "")
        await close(store)

    asyncio.run(run())


def test_a_server_that_answers_is_found_among_others(zookeeper: ZooKeeperServer) -> None:
    async def run() -> None:
        async with Relay(zookeeper.address) as silent:
            silent.forwards_answers = False
            session = await session_at(f"127.0.0.1:1,{silent.address},{zookeeper.address}{new_chroot()}", 3000)
            await commit(session, put("/a", 1))
            await close(session)

    asyncio.run(run())


def test_if_nothing_answers_the_error_explains_what_to_do() -> None:
    async def run() -> None:
        began = time.monotonic()
        with pytest.raises(
            SkylogError, match=r"no ZooKeeper answers at 127.0.0.1:1/x within 0.2 s \(Connection refused"
        ):
            await open_zookeeper("127.0.0.1:1/x", session_timeout_ms=6000, connection_timeout_ms=200)
        assert time.monotonic() - began < patience(2)

    asyncio.run(run())


def test_a_long_wait_for_the_first_connection_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(session_module, "_SILENCE_S", 0.05)

    async def run() -> None:
        with pytest.raises(SkylogError, match="no ZooKeeper answers"):
            await open_zookeeper("127.0.0.1:1/x", session_timeout_ms=6000, connection_timeout_ms=500)
        assert "waiting up to 0.5 s for ZooKeeper at 127.0.0.1:1/x" in caplog.text

    asyncio.run(run())


@pytest.mark.parametrize("address", ["", "/x", "a:b", "a:70000", "a:1,,b:2", "a:1/x//y", "a:1/x/../y", "a:1/./y"])
def test_an_invalid_address_is_rejected(address: str) -> None:
    with pytest.raises(ConfigError, match="is not the address of a ZooKeeper ensemble"):
        asyncio.run(session_at(address))


@pytest.mark.parametrize(
    ("address", "parsed"),
    [
        ("a", Ensemble(("a:2181",), "")),
        ("a:1,b-c.d:2,10.0.0.1", Ensemble(("a:1", "b-c.d:2", "10.0.0.1:2181"), "")),
        ("[::1]:1,[fe80::1]/x", Ensemble(("[::1]:1", "[fe80::1]:2181"), "/x")),
        ("a:1/x/y/", Ensemble(("a:1",), "/x/y")),
        ("a:1/", Ensemble(("a:1",), "")),
    ],
)
def test_an_address_has_servers_and_a_chroot(address: str, parsed: Ensemble) -> None:
    assert Ensemble.parse(address) == parsed


def test_the_server_may_limit_the_session_timeout(zookeeper: ZooKeeperServer) -> None:
    async def run() -> None:
        session = await session_at(zookeeper.address, 600_000)
        assert session._connection._liveness.timeout_s == 60
        await close(session)

    asyncio.run(run())


# -- a connection that is lost


@pytest.mark.parametrize("fault", ["cut", "silence"])
def test_nothing_is_missed_while_the_connection_is_lost(zookeeper: ZooKeeperServer, fault: str) -> None:
    async def run() -> None:
        chroot = new_chroot()
        async with Relay(zookeeper.address) as relay:
            other = await session_at(zookeeper.address + chroot)
            session, watcher = await session_at(relay.address + chroot, 3000), Recorder()
            session.on_expiry(lambda: pytest.fail("it did not expire"))
            await commit(session, ephemeral("/brokers/1", 1))
            await commit(other, *(put(f"/topics/{name}", 1) for name in "abcd"))
            await session.watch("", watcher)
            getattr(relay, fault)()
            await commit(other, put("/topics/a", 2, 1), delete("/topics/b", 1), put("/topics/e", 1))
            await commit(other, delete("/topics/c", 1), put("/topics/c", "same version"))
            assert len(watcher.reported) == 1
            relay.mend()
            # kazoo does not notice a silent connection while there are requests to send
            loading = asyncio.ensure_future(load_repeatedly(session))
            await until_current(watcher, other, "")
            loading.cancel()
            assert "/brokers/1" in watcher.entries
            changes = [path for changed in watcher.reported[1:] for path in changed]
            assert sorted(changes) == [f"/topics/{name}" for name in "abce"]
            await commit(other, put("/topics/d", 2, 1))
            await until_current(watcher, other, "")
            await close(session, other)

    asyncio.run(run())


def test_a_session_survives_a_restart_of_the_server(
    zookeeper: ZooKeeperServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        address = zookeeper.address + new_chroot()
        first, second, watcher = await session_at(address), await session_at(address), Recorder()
        await commit(first, ephemeral("/brokers/1", 1), put("/topics/a", 1))
        await second.watch("", watcher)
        zookeeper.kill()
        committing = asyncio.ensure_future(commit(first, put("/topics/a", 2, 1), put("/topics/b", 1)))
        await asyncio.to_thread(zookeeper.start)
        await committing
        await until_current(watcher, second, "")
        assert watcher.entries == {
            "/brokers/1": Entry({"is": 1}, 1),
            "/topics/a": Entry({"is": 2}, 2),
            "/topics/b": Entry({"is": 1}, 1),
        }
        await close(first, second)

    with caplog.at_level(logging.INFO):
        asyncio.run(run())
    lines = [record.getMessage().partition(" at ")[0] for record in caplog.records]
    both = ["opened a session with ZooKeeper", "lost the connection to ZooKeeper", "the connection to ZooKeeper"]
    assert sorted(lines) == sorted(both * 2)
    assert not any(record.exc_info for record in caplog.records)


@pytest.mark.parametrize("direction", ["requests", "answers"])
def test_a_commit_is_applied_once_if_the_connection_is_lost(zookeeper: ZooKeeperServer, direction: str) -> None:
    async def run() -> None:
        chroot = new_chroot()
        async with Relay(zookeeper.address) as relay:
            session, other = await session_at(relay.address + chroot), await session_at(zookeeper.address + chroot)
            await commit(session, put("/counter", 0), put("/brokers/2", 1), put("/topics/b", 1))
            setattr(relay, f"forwards_{direction}", False)
            puts = [put("/counter", 1, 1), ephemeral("/brokers/1", 1), put("/topics/a", 1)]
            committing = asyncio.ensure_future(commit(session, VersionCheck("/none", 0), *puts, delete("/topics/b", 1)))
            if direction == "answers":
                await until(other, "/counter", 2)
            else:
                await asyncio.sleep(0.1)
            relay.cut()
            relay.mend()
            await committing
            assert await other.load("/counter") == {"/counter": Entry({"is": 1}, 2)}
            await commit(session, put("/counter", 2, 2), put("/brokers/1", 2, 1), put("/topics/a", 2, 1))
            await close(session, other)

    asyncio.run(run())


@pytest.mark.parametrize("direction", ["requests", "answers"])
def test_of_two_equal_commits_only_the_one_that_was_applied_succeeds(
    zookeeper: ZooKeeperServer, direction: str
) -> None:
    """Two brokers reserve the same block of producer ids, and the connection of one of them is lost."""

    async def run() -> None:
        chroot = new_chroot()
        async with Relay(zookeeper.address) as relay:
            session, other = await session_at(relay.address + chroot), await session_at(zookeeper.address + chroot)
            await commit(other, put("/producer-ids", 0))
            setattr(relay, f"forwards_{direction}", False)
            committing = asyncio.ensure_future(commit(session, put("/producer-ids", 1000, 1)))
            if direction == "answers":
                await until(other, "/producer-ids", 2)
                await commit(other, put("/producer-ids", 1000, 2))
            else:
                await asyncio.sleep(0.1)
                await commit(other, put("/producer-ids", 1000, 1))
            relay.cut()
            relay.mend()
            if direction == "answers":
                await committing
            else:
                with pytest.raises(VersionConflictError):
                    await committing
            await close(session, other)

    asyncio.run(run())


def test_a_commit_that_is_refused_is_known_to_be_refused_after_a_lost_connection(zookeeper: ZooKeeperServer) -> None:
    async def run() -> None:
        chroot = new_chroot()
        async with Relay(zookeeper.address) as relay:
            session, other = await session_at(relay.address + chroot), await session_at(zookeeper.address + chroot)
            await commit(other, put("/a", 1), put("/b", 1))
            relay.forwards_answers = False
            committing = asyncio.ensure_future(commit(session, put("/a", 2, 1), put("/b", 2, 7)))
            await asyncio.sleep(0.1)
            relay.cut()
            relay.mend()
            with pytest.raises(VersionConflictError) as caught:
                await committing
            assert caught.value.path == "/b"
            assert await other.load("") == {"/a": Entry({"is": 1}, 1), "/b": Entry({"is": 1}, 1)}
            await close(session, other)

    asyncio.run(run())


def test_many_commits_are_applied_once_while_the_connection_is_lost_again_and_again(
    zookeeper: ZooKeeperServer,
) -> None:
    each = proof(10, 3)

    async def add_one(session: ZooKeeperSession, path: str) -> None:
        while True:
            entry = (await session.load(path)).get(path)
            number, version = (entry.value["is"], entry.version) if entry else (0, 0)
            try:
                await commit(session, put(path, number + 1, version))
                return
            except VersionConflictError:
                continue

    async def run() -> None:
        chroot = new_chroot()
        async with Relay(zookeeper.address) as relay:
            session, watcher = await session_at(relay.address + chroot), Recorder()
            await session.watch("/counters/", watcher)
            work = [asyncio.ensure_future(add_one(session, f"/counters/{n % 10}")) for n in range(10 * each)]
            working = asyncio.gather(*work)
            while not working.done():
                await asyncio.sleep(0.1)
                relay.forwards_answers = False
                await asyncio.sleep(0.01)
                relay.cut()
                relay.mend()
            await working
            loaded = await session.load("/counters/")
            assert [entry.value["is"] for entry in loaded.values()] == [each] * 10
            assert relay.connections >= 2  # how often it was cut depends on how fast the machine is
            await until_current(watcher, session, "/counters/")
            await close(session)

    asyncio.run(run())


def test_a_transaction_that_was_fenced_is_never_applied(zookeeper: ZooKeeperServer) -> None:
    """A server may have it in a queue while the client is connected to another one."""

    async def run() -> None:
        session = await session_at(zookeeper.address + new_chroot())
        committer, connection = session._committer, session._connection
        await commit(session, put("/a", 1))
        for version in (1, 2):
            (marker,) = committer._idle_markers
            delayed = [marker.put(b"applied"), *to_steps([put("/a", 9, version)], session._znodes)]
            fenced = replace(marker)
            assert not await committer._was_applied(fenced)
            assert not await committer._was_applied(marker)  # as if the answer to the fence had been lost
            failure = failure_of(delayed, await connection.call(partial(send, steps=delayed)))
            assert failure is not None
            assert failure.step is delayed[0]
            await commit(session, put("/a", 2, version))
        await close(session)

    asyncio.run(run())


def test_nothing_blocks_the_event_loop_while_the_connection_is_lost(zookeeper: ZooKeeperServer) -> None:
    async def run() -> None:
        async with Relay(zookeeper.address) as relay:
            session = await session_at(relay.address + new_chroot())
            await commit(session, put("/a", 1))
            loading = asyncio.gather(*(session.load("/a") for _ in range(400)))
            for _ in range(10):
                await relay.wait_for_connection()
                await asyncio.sleep(0.005)  # so that kazoo has sent a part of its requests
                relay.cut()
                relay.mend()
            assert await loading == [{"/a": Entry({"is": 1}, 1)}] * 400
            await close(session)

    asyncio.run(run())


# -- expiry


@pytest.mark.parametrize("fault", ["cut", "silent"])
def test_a_session_without_contact_expires_in_time_and_never_comes_back(zookeeper: ZooKeeperServer, fault: str) -> None:
    async def run() -> None:
        chroot = new_chroot()
        async with Relay(zookeeper.address) as relay:
            other = await session_at(zookeeper.address + chroot)
            session, watcher, expired = await session_at(relay.address + chroot, 1500), Recorder(), asyncio.Event()
            await session.watch("/topics/", watcher)
            await commit(session, ephemeral("/brokers/1", 1))
            session.on_expiry(expired.set)
            if fault == "cut":
                relay.cut()
            else:
                relay.forwards_answers = relay.forwards_requests = False
            began = time.monotonic()
            committing = asyncio.ensure_future(commit(session, put("/a", 1)))
            loading = asyncio.ensure_future(session.load(""))
            await asyncio.wait_for(expired.wait(), patience(5))
            assert time.monotonic() - began < 1.5 + patience(0.2)  # ZooKeeper ends it after 1.5 to 2 s
            relay.mend()
            with pytest.raises(UnknownOutcomeError, match=r"no contact with ZooKeeper for 1\.5 s; a change under way"):
                await committing
            for call in (loading, session.load(""), commit(session, put("/a", 1)), session.watch("", watcher)):
                with pytest.raises(SessionExpiredError, match=r"no contact with ZooKeeper for 1\.5 s"):
                    await call
            await commit(other, put("/topics/late", 1))
            await close(session)
            assert watcher.reported == [{}]
            await close(other)

    asyncio.run(run())


def test_a_session_expires_at_once_if_the_event_loop_was_blocked_for_too_long(zookeeper: ZooKeeperServer) -> None:
    async def run() -> None:
        session = await session_at(zookeeper.address + new_chroot(), 1000)
        time.sleep(1.1)  # noqa: ASYNC251 # that is the point
        with pytest.raises(SessionExpiredError) as caught:
            await commit(session, put("/a", 1))
        assert caught.type is SessionExpiredError  # nothing was sent
        await close(session)

    asyncio.run(run())


def test_a_session_that_is_idle_does_not_expire(zookeeper: ZooKeeperServer) -> None:
    async def run() -> None:
        session = await session_at(zookeeper.address + new_chroot(), 1000)
        session.on_expiry(lambda: pytest.fail("it did not expire"))
        await asyncio.sleep(1.2)
        await commit(session, put("/a", 1))
        await close(session)

    asyncio.run(run())


def test_closing_does_not_wait_for_a_server_that_is_silent(zookeeper: ZooKeeperServer) -> None:
    async def run() -> None:
        async with Relay(zookeeper.address) as relay:
            session = await session_at(relay.address + new_chroot(), 9000)
            relay.silence()
            began = time.monotonic()
            await close(session)
            assert time.monotonic() - began < patience(2.5)

    asyncio.run(run())


# -- entries


def test_a_change_that_is_too_large_is_rejected_with_the_reason(zookeeper: ZooKeeperServer) -> None:
    async def run() -> None:
        session = await session_at(zookeeper.address + new_chroot())
        session.on_expiry(lambda: pytest.fail("the connection was lost"))
        await commit(session, put("/topics/large", "x" * (MAX_COMMIT_BYTES - 300)))
        too_large = [put("/topics/larger", "x" * MAX_COMMIT_BYTES)]
        too_many = [put(f"/topics/{number}", "x" * 200_000) for number in range(6)]
        for changes, path in ((too_large, "/topics/larger"), (too_many, "/topics/0")):
            with pytest.raises(KafkaError, match=rf"for {path}; ZooKeeper takes at most 1048575 bytes") as caught:
                await commit(session, *changes)
            assert caught.value.code is ErrorCode.INVALID_REQUEST
        assert set(await session.load("")) == {"/topics/large"}
        await close(session)

    asyncio.run(run())


def test_a_thousand_entries_are_loaded_and_watched_quickly(zookeeper: ZooKeeperServer) -> None:
    async def run() -> None:
        chroot = new_chroot()
        session, other, watcher = *[await session_at(zookeeper.address + chroot) for _ in range(2)], Recorder()
        await commit(other, *(put(f"/topics/{number}", "x" * 500) for number in range(1000)))
        began = time.monotonic()
        assert len(await session.load("/topics/")) == 1000
        loaded = time.monotonic()
        await session.watch("/topics/", watcher)
        watched = time.monotonic()
        for first in range(0, 1000, 100):
            await commit(other, *(put(f"/topics/{number}", 2, 1) for number in range(first, first + 100)))
        await until_current(watcher, other, "/topics/")
        print(f"1,000 entries: loaded in {loaded - began:.2f} s, watched in {watched - loaded:.2f} s,", end=" ")
        print(f"changed in {time.monotonic() - watched:.2f} s with {len(watcher.reported) - 1} calls")
        assert watched - began < patience(4)
        await close(session, other)

    asyncio.run(run())


def test_a_change_is_read_without_reading_the_other_entries(zookeeper: ZooKeeperServer) -> None:
    async def run() -> None:
        session, watcher = await session_at(zookeeper.address + new_chroot()), Recorder()
        await commit(session, *(put(f"/topics/{number}", 1) for number in range(100)))
        await session.watch("/topics/", watcher)
        requests = next(session._connection._numbers)
        await commit(session, put("/topics/5", 2, 1))
        await commit(session, delete("/topics/6", 1))
        await commit(session, put("/topics/100", 1))
        await asyncio.sleep(0.2)
        assert next(session._connection._numbers) - requests < 15
        await until_current(watcher, session, "/topics/")
        await close(session)

    asyncio.run(run())


def test_an_entry_that_is_damaged_is_named_and_does_not_hide_what_it_was(
    zookeeper: ZooKeeperServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        session, watcher = await session_at(zookeeper.address + new_chroot()), Recorder()
        await commit(session, put("/topics/a", 1))
        await session.watch("/topics/", watcher)
        znode = session._znodes.znode("/topics/a")
        damages = {b"{": "is damaged: unexpected", b"": "is damaged: Input", b"[]": "is not a JSON object"}
        for data, told in damages.items():
            await session._connection.call(methodcaller("set_async", znode, data))
            await logged(caplog, f"the data of /topics/a in ZooKeeper {told}")
        assert watcher.reported == [{"/topics/a": Entry({"is": 1}, 1)}]
        with pytest.raises(SkylogError, match="the data of /topics/a in ZooKeeper is not a JSON object"):
            await session.load("/topics/")
        await commit(session, put("/topics/a", 2, 4))
        await until_current(watcher, session, "/topics/")
        await close(session)

    asyncio.run(run())


def test_a_session_ends_if_what_it_watches_is_removed(zookeeper: ZooKeeperServer) -> None:
    async def run() -> None:
        session, expired = await session_at(zookeeper.address + new_chroot()), asyncio.Event()
        session.on_expiry(expired.set)
        await session.watch("/topics/", Recorder())
        znode = session._znodes.znode("/topics")
        await session._connection.call(methodcaller("delete_async", znode))
        await asyncio.wait_for(expired.wait(), patience(5))
        await close(session)

    asyncio.run(run())


async def close(*sessions: ZooKeeperSession) -> None:
    await asyncio.gather(*(session.close() for session in sessions))


async def load_repeatedly(session: ZooKeeperSession) -> None:
    """Send requests until cancelled, whether or not there are answers."""
    async with asyncio.TaskGroup() as group:
        while True:
            group.create_task(session.load("/topics/a"))
            await asyncio.sleep(0.1)


async def logged(caplog: pytest.LogCaptureFixture, text: str) -> None:
    for _ in range(500):
        if text in caplog.text:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"not logged: {text}")


async def until(session: ZooKeeperSession, path: str, version: int) -> None:
    for _ in range(500):
        if (await session.load(path))[path].version == version:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{path} has not reached version {version}")
