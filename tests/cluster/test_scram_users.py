"""The credentials of users in the metadata store."""

from __future__ import annotations

import asyncio
from base64 import b64encode

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


def test_the_seed_is_the_same_for_all_brokers_and_not_a_user() -> None:
    async def run() -> None:
        session = EmbeddedStore(None).open_session()
        brokers = [ScramUsers(session) for _ in range(3)]
        await asyncio.gather(*(each.load_seed() for each in brokers))
        assert len({each.seed for each in brokers}) == 1
        assert len(brokers[0].seed) == 32
        await brokers[0].load()
        assert brokers[0].names() == []

    asyncio.run(run())


def test_unknown_users_look_like_most_of_the_others() -> None:
    def credentials(salt_bytes: int, iterations: int) -> dict[str, dict[str, object]]:
        return {"SCRAM-SHA-256": {"salt": b64encode(bytes(salt_bytes)).decode(), "iterations": iterations}}

    async def run() -> None:
        users = ScramUsers(EmbeddedStore(None).open_session())
        await users.load()
        assert users.usual_kind("SCRAM-SHA-256") is None
        for name, kind in (("a", (64, 4096)), ("b", (26, 8192)), ("c", (26, 8192))):
            await users.change(name, lambda _, kind=kind: credentials(*kind))  # type: ignore[misc]
        assert users.usual_kind("SCRAM-SHA-256") == (26, 8192)
        assert users.usual_kind("SCRAM-SHA-512") is None

    asyncio.run(run())
