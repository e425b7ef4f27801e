"""The contract of a `MetadataStore`, as tests.

A store is tested by a subclass whose `home` fixture opens it:

    class TestMyStore(StoreContract):
        @pytest.fixture
        def home(self, tmp_path: Path) -> StoreHome:
            return MyHome(tmp_path)
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, Protocol

import pytest

from skylog.cluster import (
    Entry,
    EntryChange,
    MetadataStore,
    SessionExpiredError,
    VersionCheck,
    VersionConflictError,
)
from skylog.cluster.store import Operation

Reported = list[dict[str, Entry | None]]


class StoreHome(Protocol):
    """The store of one test."""

    def run(self, test: Coroutine[Any, Any, None]) -> None:
        """Run a test on an event loop of its own, and close the sessions that it has opened."""

    async def __call__(self) -> MetadataStore:
        """Open the store as after a restart, with one session. Earlier commits are still there."""

    async def another_session(self) -> MetadataStore:
        """A further session with the store that was opened last."""

    async def expire(self, session: MetadataStore) -> None:
        """End a session from the store's side."""


class Recorder:
    """A watcher that records its calls and the resulting state."""

    def __init__(self) -> None:
        self.reported: Reported = []
        self.entries: dict[str, Entry] = {}

    def __call__(self, changed: Mapping[str, Entry | None]) -> None:
        self.reported.append(dict(changed))
        for path, entry in changed.items():
            if entry is None:
                self.entries.pop(path, None)
            else:
                self.entries[path] = entry


def put(path: str, value: object, expected_version: int = 0) -> EntryChange:
    return EntryChange(path, {"is": value}, expected_version)


def delete(path: str, expected_version: int) -> EntryChange:
    return EntryChange(path, None, expected_version)


def ephemeral(path: str, value: object, expected_version: int = 0) -> EntryChange:
    return EntryChange(path, {"is": value}, expected_version, ephemeral=True)


async def commit(store: MetadataStore, *operations: Operation) -> None:
    await store.commit(operations)


async def until_current(watcher: Recorder, store: MetadataStore, prefix: str) -> None:
    """Wait until a watcher has all entries of the store: it may be called some time after a commit."""
    for _ in range(500):
        if watcher.entries == await store.load(prefix):
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"the watcher has {watcher.entries}, the store has {await store.load(prefix)}")


class StoreContract:
    """Each test opens the store itself."""

    @pytest.fixture
    def home(self) -> StoreHome:
        raise NotImplementedError

    def test_a_new_store_is_empty(self, home: StoreHome) -> None:
        async def run() -> None:
            assert await (await home()).load("") == {}

        home.run(run())

    def test_an_entry_has_version_1_and_each_change_adds_one(self, home: StoreHome) -> None:
        async def run() -> None:
            store = await home()
            await commit(store, put("/a", "first"))
            assert await store.load("/a") == {"/a": Entry({"is": "first"}, 1)}
            await commit(store, put("/a", "second", 1))
            await commit(store, put("/a", "third", 2))
            assert await store.load("/a") == {"/a": Entry({"is": "third"}, 3)}

        home.run(run())

    @pytest.mark.parametrize("expected_version", [0, 1, 3])
    def test_a_change_against_another_version_is_refused_and_changes_nothing(
        self, home: StoreHome, expected_version: int
    ) -> None:
        async def run() -> None:
            store = await home()
            await commit(store, put("/a", 1))
            await commit(store, put("/a", 2, 1))
            for change in (put("/a", 3, expected_version), delete("/a", expected_version)):
                with pytest.raises(VersionConflictError) as caught:
                    await commit(store, change)
                assert caught.value.path == "/a"
            assert await store.load("") == {"/a": Entry({"is": 2}, 2)}

        home.run(run())

    def test_an_entry_that_is_not_there_has_no_version_to_expect(self, home: StoreHome) -> None:
        async def run() -> None:
            store = await home()
            for change in (put("/a", 1, 1), delete("/a", 1)):
                with pytest.raises(VersionConflictError):
                    await commit(store, change)
            assert await store.load("") == {}

        home.run(run())

    def test_a_deleted_entry_is_gone_and_begins_anew(self, home: StoreHome) -> None:
        async def run() -> None:
            store = await home()
            await commit(store, put("/a", 1), put("/b", 1))
            await commit(store, delete("/a", 1))
            assert set(await store.load("")) == {"/b"}
            await commit(store, put("/a", 2))
            assert await store.load("/a") == {"/a": Entry({"is": 2}, 1)}

        home.run(run())

    @pytest.mark.parametrize("place", [0, 1, 2])
    def test_several_changes_are_made_together_or_not_at_all(self, home: StoreHome, place: int) -> None:
        async def run() -> None:
            store = await home()
            await commit(store, put("/a", 1), put("/b", 1))
            before = await store.load("")
            changes = [put("/a", 2, 1), delete("/b", 1)]
            changes.insert(place, put("/c", 1, 7))
            with pytest.raises(VersionConflictError) as caught:
                await commit(store, *changes)
            assert caught.value.path == "/c"
            assert await store.load("") == before
            await commit(store, put("/a", 2, 1), delete("/b", 1), put("/c", 1))
            assert await store.load("") == {"/a": Entry({"is": 2}, 2), "/c": Entry({"is": 1}, 1)}

        home.run(run())

    def test_load_returns_the_entries_with_the_prefix(self, home: StoreHome) -> None:
        async def run() -> None:
            store = await home()
            await commit(store, put("/topics/a", 1), put("/topics/b", 2), put("/topic", 3), put("/other/topics/a", 4))
            assert set(await store.load("/topics/")) == {"/topics/a", "/topics/b"}
            assert set(await store.load("/topics/a")) == {"/topics/a"}
            assert set(await store.load("/nothing")) == set()
            assert len(await store.load("")) == 4

        home.run(run())

    def test_paths_have_all_characters_of_names(self, home: StoreHome) -> None:
        paths = [f"/topics/{name}" for name in ("a.b_c-d", "...", "__consumer_offsets", "-", "0" * 249)]
        paths += ["/configs/brokers/<default>", "/configs/brokers/1"]

        async def run() -> None:
            store, watcher = await home(), Recorder()
            await store.watch("", watcher)
            await commit(store, *(put(path, path) for path in paths))
            assert await store.load("") == {path: Entry({"is": path}, 1) for path in paths}
            await until_current(watcher, store, "")

        home.run(run())

    def test_several_changes_of_one_entry_are_applied_in_order(self, home: StoreHome) -> None:
        async def run() -> None:
            store = await home()
            await commit(store, put("/a", 1), put("/a", 2, 1), VersionCheck("/a", 2), put("/a", 3, 2))
            assert await store.load("") == {"/a": Entry({"is": 3}, 3)}
            await commit(store, delete("/a", 3), VersionCheck("/a", 0), put("/a", 4))
            assert await store.load("") == {"/a": Entry({"is": 4}, 1)}

        home.run(run())

    def test_a_deletion_of_nothing_is_a_check(self, home: StoreHome) -> None:
        async def run() -> None:
            store = await home()
            await commit(store, delete("/none/a", 0), put("/b", 1))
            assert await store.load("") == {"/b": Entry({"is": 1}, 1)}

        home.run(run())

    def test_loaded_entries_do_not_change_afterwards(self, home: StoreHome) -> None:
        async def run() -> None:
            store = await home()
            await commit(store, put("/a", 1))
            loaded = await store.load("")
            await commit(store, put("/a", 2, 1), put("/b", 1))
            assert loaded == {"/a": Entry({"is": 1}, 1)}

        home.run(run())

    def test_of_two_commits_at_the_same_time_one_is_refused(self, home: StoreHome) -> None:
        async def run() -> None:
            store = await home()
            outcomes = await asyncio.gather(
                *(commit(store, put("/a", number), put(f"/{number}", number)) for number in range(5)),
                return_exceptions=True,
            )
            refused = [each for each in outcomes if each is not None]
            assert len(refused) == 4
            assert all(isinstance(each, VersionConflictError) for each in refused)
            winner = outcomes.index(None)
            assert await store.load("") == {"/a": Entry({"is": winner}, 1), f"/{winner}": Entry({"is": winner}, 1)}

        home.run(run())

    def test_commits_survive_reopening_the_store(self, home: StoreHome) -> None:
        value = {"text": "ä\n", "number": 2**53, "list": [1, {"a": None}], "flag": True, "empty": {}}

        async def write() -> None:
            store = await home()
            await commit(store, EntryChange("/a", value, 0), put("/b", 1), put("/c", 1))
            await commit(store, put("/b", 2, 1), delete("/c", 1))
            await store.close()

        async def read() -> None:
            store = await home()
            assert await store.load("") == {"/a": Entry(value, 1), "/b": Entry({"is": 2}, 2)}
            await commit(store, put("/b", 3, 2), put("/c", 1))
            await store.close()

        home.run(write())
        home.run(read())

    def test_commits_survive_without_closing_the_store(self, home: StoreHome) -> None:
        async def run() -> None:
            await commit(await home(), put("/a", 1))
            assert await (await home()).load("") == {"/a": Entry({"is": 1}, 1)}

        home.run(run())

    def test_closing_waits_for_a_commit_that_is_under_way(self, home: StoreHome) -> None:
        async def run() -> None:
            store = await home()
            committing = asyncio.ensure_future(commit(store, put("/a", 1)))
            await asyncio.sleep(0)
            await store.close()
            assert committing.done()
            assert await (await home()).load("") == {"/a": Entry({"is": 1}, 1)}

        home.run(run())

    # -- checks

    def test_a_check_lets_the_commit_fail_unless_the_version_fits(self, home: StoreHome) -> None:
        async def run() -> None:
            store = await home()
            await commit(store, put("/epoch", 1))
            await commit(store, VersionCheck("/epoch", 1), VersionCheck("/none", 0), put("/a", 1))
            for check in (VersionCheck("/epoch", 0), VersionCheck("/epoch", 2), VersionCheck("/none", 1)):
                with pytest.raises(VersionConflictError) as caught:
                    await commit(store, check, put("/b", 1))
                assert caught.value.path == check.path
            assert await store.load("") == {"/epoch": Entry({"is": 1}, 1), "/a": Entry({"is": 1}, 1)}

        home.run(run())

    # -- sessions

    def test_a_session_sees_the_commits_of_others(self, home: StoreHome) -> None:
        async def run() -> None:
            first, second = await home(), await home.another_session()
            await commit(first, put("/a", 1))
            await commit(second, put("/a", 2, 1))
            assert await first.load("") == await second.load("") == {"/a": Entry({"is": 2}, 2)}
            with pytest.raises(VersionConflictError):
                await commit(first, put("/a", 3, 1))

        home.run(run())

    @pytest.mark.parametrize("end", ["close", "expiry"])
    def test_an_ephemeral_entry_lasts_as_long_as_its_session(self, home: StoreHome, end: str) -> None:
        async def run() -> None:
            first, second = await home(), await home.another_session()
            await commit(first, ephemeral("/brokers/1", "first"), put("/kept", 1))
            await commit(second, ephemeral("/brokers/2", "second"))
            await commit(second, put("/brokers/1", "changed by another", 1))
            assert set(await second.load("/brokers/")) == {"/brokers/1", "/brokers/2"}
            await (first.close() if end == "close" else home.expire(first))
            assert set(await second.load("")) == {"/brokers/2", "/kept"}
            await commit(second, ephemeral("/brokers/1", "again"))

        home.run(run())

    @pytest.mark.parametrize("end", ["close", "expiry"])
    def test_an_ephemeral_entry_that_is_taken_over_outlasts_its_first_session(self, home: StoreHome, end: str) -> None:
        async def run() -> None:
            first, second = await home(), await home.another_session()
            watcher = Recorder()
            await second.watch("/brokers/", watcher)
            await commit(first, ephemeral("/brokers/1", "first"))
            await until_current(watcher, second, "/brokers/")
            await commit(second, delete("/brokers/1", 1), ephemeral("/brokers/1", "second"))
            await (first.close() if end == "close" else home.expire(first))
            assert await second.load("") == {"/brokers/1": Entry({"is": "second"}, 1)}
            await until_current(watcher, second, "/brokers/")
            await second.close()
            assert await (await home()).load("") == {}

        home.run(run())

    def test_changing_an_entry_does_not_change_its_owner(self, home: StoreHome) -> None:
        async def run() -> None:
            first, second = await home(), await home.another_session()
            await commit(first, ephemeral("/brokers/1", 1), put("/kept", 1))
            await commit(second, ephemeral("/brokers/1", 2, 1), ephemeral("/kept", 2, 1))
            await first.close()
            assert await second.load("") == {"/kept": Entry({"is": 2}, 2)}
            await second.close()
            assert set(await (await home()).load("")) == {"/kept"}

        home.run(run())

    def test_an_entry_can_become_ephemeral_or_lasting_in_one_commit(self, home: StoreHome) -> None:
        async def run() -> None:
            store = await home()
            await commit(store, ephemeral("/a", 1), put("/b", 1))
            await commit(store, delete("/a", 1), put("/a", 2))
            await commit(store, delete("/b", 1), ephemeral("/b", 2))
            assert await store.load("") == {"/a": Entry({"is": 2}, 1), "/b": Entry({"is": 2}, 1)}
            await store.close()
            assert await (await home()).load("") == {"/a": Entry({"is": 2}, 1)}

        home.run(run())

    def test_an_ephemeral_entry_is_gone_after_a_restart(self, home: StoreHome) -> None:
        async def run() -> None:
            first = await home()
            await commit(first, ephemeral("/brokers/1", 1), put("/kept", 1))
            await first.close()
            assert set(await (await home()).load("")) == {"/kept"}

        home.run(run())

    def test_an_expired_session_is_rejected_and_its_listeners_are_called(self, home: StoreHome) -> None:
        async def run() -> None:
            first, second = await home(), await home.another_session()
            expired: list[str] = []
            first.on_expiry(lambda: expired.append("first"))
            second.on_expiry(lambda: expired.append("second"))
            await home.expire(first)
            assert expired == ["first"]
            with pytest.raises(SessionExpiredError):
                await first.load("")
            with pytest.raises(SessionExpiredError):
                await commit(first, put("/a", 1))
            with pytest.raises(SessionExpiredError):
                await first.watch("", Recorder())
            assert await second.load("") == {}

        home.run(run())

    def test_closing_a_session_does_not_call_expiry_listeners(self, home: StoreHome) -> None:
        async def run() -> None:
            store = await home()
            store.on_expiry(lambda: pytest.fail("it was closed"))
            await store.close()

        home.run(run())

    # -- watching

    def test_a_watcher_gets_the_entries_and_then_every_change(self, home: StoreHome) -> None:
        async def run() -> None:
            first, second = await home(), await home.another_session()
            watcher = Recorder()
            await commit(first, put("/topics/a", 1), put("/other", 1))
            await second.watch("/topics/", watcher)
            assert watcher.reported == [{"/topics/a": Entry({"is": 1}, 1)}]
            await commit(first, put("/topics/a", 2, 1), put("/topics/b", 1))
            await commit(second, put("/other", 2, 1))
            await until_current(watcher, second, "/topics/")
            await commit(first, delete("/topics/a", 2))
            await until_current(watcher, second, "/topics/")
            assert all(path.startswith("/topics/") for changed in watcher.reported for path in changed)
            assert {"/topics/a": None} in watcher.reported

        home.run(run())

    def test_a_watcher_sees_entries_below_new_parents(self, home: StoreHome) -> None:
        async def run() -> None:
            first, second = await home(), await home.another_session()
            watcher = Recorder()
            await second.watch("/a", watcher)
            await commit(first, put("/a/b/c", 1), put("/ab", 1), put("/b/a", 1))
            await until_current(watcher, second, "/a")
            assert set(watcher.entries) == {"/a/b/c", "/ab"}
            await commit(first, put("/a/b/d", 1), put("/a/b/c", 2, 1))
            await until_current(watcher, second, "/a")
            assert set(watcher.entries) == {"/a/b/c", "/a/b/d", "/ab"}

        home.run(run())

    def test_an_entry_that_is_deleted_and_put_again_is_reported(self, home: StoreHome) -> None:
        async def run() -> None:
            first, second = await home(), await home.another_session()
            watcher = Recorder()
            await second.watch("/topics/", watcher)
            for number in range(20):
                await commit(first, put("/topics/a", number))
                await commit(first, delete("/topics/a", 1))
            await commit(first, put("/topics/a", "last"))
            await until_current(watcher, second, "/topics/")
            await commit(first, delete("/topics/a", 1), put("/topics/a", "same version"))
            await until_current(watcher, second, "/topics/")
            assert watcher.entries == {"/topics/a": Entry({"is": "same version"}, 1)}

        home.run(run())

    def test_a_watcher_that_rejects_the_first_state_is_not_called_again(self, home: StoreHome) -> None:
        async def run() -> None:
            calls: list[object] = []

            def unable(changed: Mapping[str, Entry | None]) -> None:
                calls.append(changed)
                raise OSError("disk full")

            store, watcher = await home(), Recorder()
            with pytest.raises(OSError, match="disk full"):
                await store.watch("/a", unable)
            await store.watch("/a", watcher)
            await commit(store, put("/a", 1))
            await until_current(watcher, store, "/a")
            assert calls == [{}]

        home.run(run())

    def test_a_watcher_of_an_empty_prefix_is_called_at_once(self, home: StoreHome) -> None:
        async def run() -> None:
            watcher = Recorder()
            await (await home()).watch("/topics/", watcher)
            assert watcher.reported == [{}]

        home.run(run())

    def test_a_watcher_sees_ephemeral_entries_go(self, home: StoreHome) -> None:
        async def run() -> None:
            first, second = await home(), await home.another_session()
            watcher = Recorder()
            await second.watch("/brokers/", watcher)
            await commit(first, ephemeral("/brokers/1", 1))
            await until_current(watcher, second, "/brokers/")
            assert set(watcher.entries) == {"/brokers/1"}
            await home.expire(first)
            await until_current(watcher, second, "/brokers/")
            assert watcher.entries == {}

        home.run(run())

    def test_a_commit_that_is_refused_is_not_reported(self, home: StoreHome) -> None:
        async def run() -> None:
            store, watcher = await home(), Recorder()
            await store.watch("", watcher)
            with pytest.raises(VersionConflictError):
                await commit(store, put("/a", 1), put("/b", 1, 5))
            await commit(store, put("/c", 1))
            await until_current(watcher, store, "")
            assert watcher.reported == [{}, {"/c": Entry({"is": 1}, 1)}]

        home.run(run())

    def test_versions_of_an_entry_are_reported_in_order(self, home: StoreHome) -> None:
        async def run() -> None:
            first, second = await home(), await home.another_session()
            watcher = Recorder()
            await second.watch("/a", watcher)
            for version in range(50):
                await commit(first, put("/a", version, version))
            await until_current(watcher, second, "/a")
            versions = [entry.version for changed in watcher.reported if (entry := changed.get("/a")) is not None]
            assert versions == sorted(set(versions))
            assert versions[-1] == 50

        home.run(run())
