"""The single-file store: the contract of stores, and the durability of its file."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from skylog.cluster import EmbeddedSession, EmbeddedStore, Entry, MetadataStore
from skylog.cluster.embedded import FILE_NAME
from skylog.errors import ErrorCode, KafkaError, SkylogError

from .store_contract import StoreContract, StoreHome, commit, put


class EmbeddedHome:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def run(self, test: Coroutine[Any, Any, None]) -> None:
        asyncio.run(test)

    async def __call__(self) -> MetadataStore:
        self._store = EmbeddedStore(self._directory)
        return self._store.open_session()

    async def another_session(self) -> MetadataStore:
        return self._store.open_session()

    async def expire(self, session: MetadataStore) -> None:
        assert isinstance(session, EmbeddedSession)
        await session.expire()


class TestEmbeddedStore(StoreContract):
    @pytest.fixture
    def home(self, tmp_path: Path) -> StoreHome:
        return EmbeddedHome(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{", b'{"format": 1, "entries": {'])
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)
    with pytest.raises(SkylogError, match=rf"{FILE_NAME} is damaged"):
        EmbeddedStore(tmp_path)


def test_a_file_of_a_later_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b'{"format": 2, "entries": {}}')
    with pytest.raises(SkylogError, match="has format 2; this version reads format 1"):
        EmbeddedStore(tmp_path)


def test_only_the_owner_may_read_the_file(tmp_path: Path) -> None:
    (tmp_path / f"{FILE_NAME}.tmp").touch(0o644)  # of a crash

    async def run() -> None:
        await commit(EmbeddedStore(tmp_path).open_session(), put("/users/alice", 1))

    asyncio.run(run())
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o777 == 0o600


def test_a_crash_before_the_swap_leaves_the_state_before(tmp_path: Path) -> None:
    async def run() -> None:
        await commit(EmbeddedStore(tmp_path).open_session(), put("/a", 1))
        (tmp_path / FILE_NAME).with_suffix(".json.tmp").write_bytes(b'{"format": 1, "entr')
        store = EmbeddedStore(tmp_path).open_session()
        assert await store.load("") == {"/a": Entry({"is": 1}, 1)}
        await commit(store, put("/b", 1))
        assert set(await EmbeddedStore(tmp_path).open_session().load("")) == {"/a", "/b"}

    asyncio.run(run())


def test_a_commit_that_cannot_be_written_is_refused_and_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    async def run() -> None:
        store = EmbeddedStore(tmp_path).open_session()
        await commit(store, put("/a", 1))
        with monkeypatch.context() as disk:
            disk.setattr(os, "fsync", full)
            with pytest.raises(KafkaError, match="No space left") as caught:
                await commit(store, put("/a", 2, 1), put("/b", 1))
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert await store.load("") == {"/a": Entry({"is": 1}, 1)}
        await commit(store, put("/a", 3, 1))
        assert await EmbeddedStore(tmp_path).open_session().load("") == {"/a": Entry({"is": 3}, 2)}

    asyncio.run(run())
