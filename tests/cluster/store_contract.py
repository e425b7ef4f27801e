"""What every `MetadataStore` promises, as tests.

A store is tested by a subclass whose `home` fixture opens it:

    class TestMyStore(StoreContract):
        @pytest.fixture
        def home(self, tmp_path: Path) -> StoreHome:
            return lambda: MyStore(tmp_path)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from skylog.cluster import Change, Entry, MetadataStore, VersionConflictError

StoreHome = Callable[[], MetadataStore]
"""Opens the store of one test, again and again: what was committed before is there."""


def put(path: str, value: object, expected_version: int = 0) -> Change:
    return Change(path, {"is": value}, expected_version)


def delete(path: str, expected_version: int) -> Change:
    return Change(path, None, expected_version)


async def commit(store: MetadataStore, *changes: Change) -> None:
    await store.commit(changes)


class StoreContract:
    """Each test opens the store itself, on an event loop of its own."""

    @pytest.fixture
    def home(self) -> StoreHome:
        raise NotImplementedError

    def test_a_new_store_is_empty(self, home: StoreHome) -> None:
        async def run() -> None:
            assert await home().load("") == {}

        asyncio.run(run())

    def test_an_entry_has_version_1_and_each_change_adds_one(self, home: StoreHome) -> None:
        async def run() -> None:
            store = home()
            await commit(store, put("/a", "first"))
            assert await store.load("/a") == {"/a": Entry({"is": "first"}, 1)}
            await commit(store, put("/a", "second", 1))
            await commit(store, put("/a", "third", 2))
            assert await store.load("/a") == {"/a": Entry({"is": "third"}, 3)}

        asyncio.run(run())

    @pytest.mark.parametrize("expected_version", [0, 1, 3])
    def test_a_change_against_another_version_is_refused_and_changes_nothing(
        self, home: StoreHome, expected_version: int
    ) -> None:
        async def run() -> None:
            store = home()
            await commit(store, put("/a", 1))
            await commit(store, put("/a", 2, 1))
            for change in (put("/a", 3, expected_version), delete("/a", expected_version)):
                with pytest.raises(VersionConflictError) as caught:
                    await commit(store, change)
                assert caught.value.path == "/a"
            assert await store.load("") == {"/a": Entry({"is": 2}, 2)}

        asyncio.run(run())

    def test_an_entry_that_is_not_there_has_no_version_to_expect(self, home: StoreHome) -> None:
        async def run() -> None:
            store = home()
            for change in (put("/a", 1, 1), delete("/a", 1)):
                with pytest.raises(VersionConflictError):
                    await commit(store, change)
            assert await store.load("") == {}

        asyncio.run(run())

    def test_a_deleted_entry_is_gone_and_begins_anew(self, home: StoreHome) -> None:
        async def run() -> None:
            store = home()
            await commit(store, put("/a", 1), put("/b", 1))
            await commit(store, delete("/a", 1))
            assert set(await store.load("")) == {"/b"}
            await commit(store, put("/a", 2))
            assert await store.load("/a") == {"/a": Entry({"is": 2}, 1)}

        asyncio.run(run())

    @pytest.mark.parametrize("place", [0, 1, 2])
    def test_several_changes_are_made_together_or_not_at_all(self, home: StoreHome, place: int) -> None:
        async def run() -> None:
            store = home()
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

        asyncio.run(run())

    def test_loading_takes_what_begins_with_the_prefix(self, home: StoreHome) -> None:
        async def run() -> None:
            store = home()
            await commit(store, put("/topics/a", 1), put("/topics/b", 2), put("/topic", 3), put("/other/topics/a", 4))
            assert set(await store.load("/topics/")) == {"/topics/a", "/topics/b"}
            assert set(await store.load("/topics/a")) == {"/topics/a"}
            assert set(await store.load("/nothing")) == set()
            assert len(await store.load("")) == 4

        asyncio.run(run())

    def test_what_was_loaded_does_not_change_afterwards(self, home: StoreHome) -> None:
        async def run() -> None:
            store = home()
            await commit(store, put("/a", 1))
            loaded = await store.load("")
            await commit(store, put("/a", 2, 1), put("/b", 1))
            assert loaded == {"/a": Entry({"is": 1}, 1)}

        asyncio.run(run())

    def test_of_two_commits_at_the_same_time_one_is_refused(self, home: StoreHome) -> None:
        async def run() -> None:
            store = home()
            outcomes = await asyncio.gather(
                *(commit(store, put("/a", number), put(f"/{number}", number)) for number in range(5)),
                return_exceptions=True,
            )
            refused = [each for each in outcomes if each is not None]
            assert len(refused) == 4
            assert all(isinstance(each, VersionConflictError) for each in refused)
            winner = outcomes.index(None)
            assert await store.load("") == {"/a": Entry({"is": winner}, 1), f"/{winner}": Entry({"is": winner}, 1)}

        asyncio.run(run())

    def test_what_was_committed_is_there_after_the_store_is_opened_again(self, home: StoreHome) -> None:
        value = {"text": "ä\n", "number": 2**53, "list": [1, {"a": None}], "flag": True, "empty": {}}

        async def write() -> None:
            store = home()
            await commit(store, Change("/a", value, 0), put("/b", 1), put("/c", 1))
            await commit(store, put("/b", 2, 1), delete("/c", 1))
            await store.close()

        async def read() -> None:
            store = home()
            assert await store.load("") == {"/a": Entry(value, 1), "/b": Entry({"is": 2}, 2)}
            await commit(store, put("/b", 3, 2), put("/c", 1))
            await store.close()

        asyncio.run(write())
        asyncio.run(read())

    def test_what_was_committed_is_there_though_the_store_was_never_closed(self, home: StoreHome) -> None:
        async def run() -> None:
            await commit(home(), put("/a", 1))
            assert await home().load("") == {"/a": Entry({"is": 1}, 1)}

        asyncio.run(run())

    def test_closing_waits_for_a_commit_that_is_under_way(self, home: StoreHome) -> None:
        async def run() -> None:
            store = home()
            committing = asyncio.ensure_future(commit(store, put("/a", 1)))
            await asyncio.sleep(0)
            await store.close()
            assert committing.done()
            assert await home().load("") == {"/a": Entry({"is": 1}, 1)}

        asyncio.run(run())
