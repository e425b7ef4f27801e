"""Stored quotas: names of any kind, changes in one commit, and every session follows."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from skylog.cluster import EmbeddedStore
from skylog.cluster.client_quotas import QUOTAS, AllQuotas, StoredEntity, StoredQuotas

NAMES = ["alice", "a/b", "a&client-id=b", "..", "ü", "%2F", "<default>", None]


@pytest.mark.parametrize("name", NAMES)
def test_any_name_is_stored_as_it_is(tmp_path: Path, name: str | None) -> None:
    entity: StoredEntity = (("user", name), ("client-id", None))

    async def run() -> None:
        store = EmbeddedStore(tmp_path).open_session()
        await StoredQuotas(store).change(lambda _: {entity: {"producer_byte_rate": 1.5}})
        (path,) = await store.load(QUOTAS)
        assert "/" not in path.removeprefix(QUOTAS)
        await store.close()
        again = StoredQuotas(EmbeddedStore(tmp_path).open_session())
        assert await again.load() == {entity: {"producer_byte_rate": 1.5}}

    asyncio.run(run())


def test_listeners_follow_changes_and_removals() -> None:
    async def run() -> None:
        quotas = StoredQuotas(EmbeddedStore(None).open_session())
        seen: dict[StoredEntity, dict[str, float]] = {}

        def note(changed: AllQuotas) -> None:
            seen.update({entity: dict(found) for entity, found in changed.items()})

        alice: StoredEntity = (("user", "alice"),)
        bob: StoredEntity = (("user", "bob"),)
        await quotas.follow(note)
        await quotas.change(lambda _: {alice: {"a": 1.0}, bob: {"b": 2.0}})
        assert seen == {alice: {"a": 1.0}, bob: {"b": 2.0}}
        await quotas.change(lambda before: {bob: {}, alice: before[alice]})
        assert seen == {alice: {"a": 1.0}, bob: {}}
        assert await quotas.load() == {alice: {"a": 1.0}}

    asyncio.run(run())
