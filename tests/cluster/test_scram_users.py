"""The credentials of users in the metadata store."""

from __future__ import annotations

import asyncio

import pytest

from skylog.cluster import EmbeddedStore
from skylog.cluster.scram_users import USERS, ScramUsers


@pytest.mark.parametrize("name", ["alice", "a/b,c=d", "%2E", ".", "..", "a.b", "ü"])
def test_any_name_is_one_entry(name: str) -> None:
    async def run() -> None:
        session = EmbeddedStore(None).open_session()
        users, others = ScramUsers(session), ScramUsers(session)
        await others.load()
        await users.change(name, lambda _: {"SCRAM-SHA-256": {"iterations": 4096}})
        assert others.names() == users.names() == [name]
        (path,) = await session.load(USERS)
        assert path.removeprefix(USERS) not in (".", "..")  # ZooKeeper refuses these
        assert "/" not in path.removeprefix(USERS)
        await users.change(name, lambda _: {})
        assert others.names() == []

    asyncio.run(run())
