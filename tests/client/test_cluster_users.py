"""Logins of visitors: what is remembered, and for how long. The cluster is real, the clock is not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from skylog.client import Admin, Connection, cluster_users
from skylog.client.cluster_users import (
    BUSY,
    TRUSTED_S,
    ClusterUsers,
    console_rights,
    registry_rights,
)
from skylog.client.user_admin import UserAdmin
from skylog.config import read_properties
from skylog.web.access import Refusal
from skylog.web.users import Visitor
from tests.secured_cluster import SecuredCluster, secured_cluster

ALICE = ("alice", "secret of a user")
BOB = ("bob", "secret of a user")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    with secured_cluster(tmp_path_factory.mktemp("users")) as running:
        running.user("alice", ["alter", "--cluster"])
        running.user("bob", ["read", "--topic", "_schemas"])
        Admin(Connection(running.broker.bootstrap, read_properties(running.admin.read_text()))).create_topic(
            "_schemas", 1
        )
        yield running


@pytest.fixture
def connection(cluster: SecuredCluster) -> Connection:
    return Connection(cluster.broker.bootstrap, read_properties(cluster.admin.read_text()), 10.0)


def test_a_right_of_a_user_is_asked_for_again_after_a_while(connection: Connection) -> None:
    now = [0.0]
    users = ClusterUsers(connection, console_rights(connection), lambda: now[0])

    async def visit() -> None:
        assert await users.visitor(*ALICE) == Visitor("alice")
        UserAdmin(connection).remove("alice")
        assert await users.visitor(*ALICE) == Visitor("alice")
        now[0] = TRUSTED_S
        found = await users.visitor(*ALICE)
        assert isinstance(found, Refusal)
        assert found.status == 401

    asyncio.run(visit())
    UserAdmin(connection).add(*ALICE, ["SCRAM-SHA-512"], 4096)


def test_those_who_guess_do_not_keep_others_waiting(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_users, "MAX_WAITING", 32)
    now = [0.0]
    users = ClusterUsers(connection, registry_rights(connection, "_schemas"), lambda: now[0])

    async def visit() -> None:
        assert await users.visitor(*BOB) == Visitor("bob", may_change=False)
        now[0] = TRUSTED_S
        guesses = [asyncio.create_task(users.visitor("bob", f"guess {n}")) for n in range(37)]
        again = [asyncio.create_task(users.visitor(*BOB)) for _ in range(5)]
        assert await asyncio.gather(*again) == 5 * [Visitor("bob", may_change=False)]
        assert sum(guess.done() for guess in guesses) < 32
        assert (await asyncio.gather(*guesses)).count(BUSY) == 5

    asyncio.run(visit())


def test_rights_differ_between_console_and_registry(connection: Connection) -> None:
    async def visit() -> None:
        console = ClusterUsers(connection, console_rights(connection))
        registry = ClusterUsers(connection, registry_rights(connection, "_schemas"))
        assert await registry.visitor(*BOB) == Visitor("bob", may_change=False)
        for found in (await console.visitor(*BOB), await registry.visitor(*ALICE)):
            assert isinstance(found, Refusal)
            assert found.status == 403

    asyncio.run(visit())


def test_without_the_topic_only_the_registry_s_own_user_is_sure(
    connection: Connection, cluster: SecuredCluster
) -> None:
    login = connection.login()
    assert login is not None
    cluster.user("carol", ["read", "--topic", "gone"])

    async def visit() -> None:
        registry = ClusterUsers(connection, registry_rights(connection, "gone"))
        assert await registry.visitor(*login) == Visitor(login[0])
        found = await registry.visitor("carol", "secret of a user")
        assert isinstance(found, Refusal)
        assert (found.status, found.reason) == (503, "cannot check the rights: there is no topic 'gone'")

    asyncio.run(visit())


def test_those_who_were_right_stay_so_while_no_broker_answers(cluster: SecuredCluster, connection: Connection) -> None:
    now = [0.0]
    users = ClusterUsers(connection, registry_rights(connection, "_schemas"), lambda: now[0])

    async def visit() -> None:
        assert await users.visitor(*BOB) == Visitor("bob", may_change=False)
        await asyncio.to_thread(cluster.broker.stop)
        now[0] = TRUSTED_S
        assert await users.visitor(*BOB) == Visitor("bob", may_change=False)
        for unknown in (("bob", "wrong"), ALICE):
            found = await users.visitor(*unknown)
            assert isinstance(found, Refusal)
            assert (found.status, "cannot check the login" in found.reason) == (503, True)

    try:
        asyncio.run(visit())
    finally:
        cluster.broker.start()
