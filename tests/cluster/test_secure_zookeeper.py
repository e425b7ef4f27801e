"""A real ZooKeeper with TLS and logins: who is served, and who may read what brokers store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from skylog.cluster import Entry
from skylog.cluster.zookeeper import ZooKeeperAccess, open_zookeeper
from skylog.cluster.zookeeper.server import ZooKeeperServer
from skylog.cluster.zookeeper.server_security import ServerSecurity
from skylog.errors import ConfigError, SkylogError
from skylog.java import RequirementError
from tests.proof import in_proof
from tests.security import certificates

from .store_contract import commit, put

USER, PASSWORD = "broker", "zoo secret"
SESSION_MS = 20_000


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    server, client = certificates.server(), certificates.client()
    certificates.write(folder / "ca.pem", certificates.authority().certificate)
    certificates.write(folder / "server.pem", server.key, server.certificate)
    certificates.write(folder / "client.pem", client.key, client.certificate)
    return folder


@contextmanager
def running(data_dir: Path, security: ServerSecurity) -> Iterator[ZooKeeperServer]:
    try:
        with ZooKeeperServer(data_dir, security=security) as server:
            yield server
    except RequirementError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def server(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """It also serves strangers, so that the ACLs alone keep the secrets."""
    security = ServerSecurity(files / "server.pem", files / "ca.pem", USER, PASSWORD, needs_login=False)
    with running(tmp_path_factory.mktemp("zookeeper"), security) as server:
        yield server


@pytest.fixture
def access(files: Path) -> ZooKeeperAccess:
    return ZooKeeperAccess(has_tls=True, authority=str(files / "ca.pem"), user=USER, password=PASSWORD, sets_acl=True)


async def opened(address: str, access: ZooKeeperAccess, timeout_ms: int = SESSION_MS) -> Any:
    return await open_zookeeper(address, session_timeout_ms=SESSION_MS, connection_timeout_ms=timeout_ms, access=access)


async def store(address: str, access: ZooKeeperAccess, path: str = "/users/alice") -> None:
    session = await opened(address, access)
    await commit(session, put(path, {"SCRAM-SHA-512": "salt and keys"}))
    await session.close()


async def load(address: str, access: ZooKeeperAccess) -> dict[str, Entry]:
    session = await opened(address, access)
    try:
        found: dict[str, Entry] = await session.load("/users/")
        return found
    finally:
        await session.close()


def test_a_session_is_encrypted_and_logged_in(server: ZooKeeperServer, access: ZooKeeperAccess) -> None:
    async def scenario() -> None:
        await store(f"{server.address}/encrypted", access)
        assert (await load(f"{server.address}/encrypted", access)).keys() == {"/users/alice"}

    asyncio.run(scenario())


def test_the_entries_of_brokers_are_for_brokers_only(
    server: ZooKeeperServer, files: Path, access: ZooKeeperAccess
) -> None:
    asyncio.run(store(f"{server.address}/closed", access))
    asyncio.run(store(f"{server.address}/opened", replace(access, sets_acl=False)))
    stranger = KazooClient(server.address, use_ssl=True, ca=str(files / "ca.pem"))
    stranger.start(SESSION_MS / 1000)
    try:
        data, _ = stranger.get("/opened/users/alice")
        assert b"salt and keys" in data
        for path in ("/closed/users/alice", "/closed/users", "/closed/_commits"):
            with pytest.raises(NoAuthError):
                stranger.get(path)
    finally:
        stranger.stop()
        stranger.close()


def test_what_was_stored_before_is_closed_when_acls_are_turned_on(
    server: ZooKeeperServer, access: ZooKeeperAccess
) -> None:
    address = f"{server.address}/later"

    async def scenario() -> list[Any]:
        await store(address, replace(access, sets_acl=False))
        await store(address, access, "/users/bob")
        session = await opened(server.address, replace(access, sets_acl=False))
        paths = ("/later", "/later/_commits", "/later/users", "/later/users/alice", "/later/users/bob")
        found = [
            await session._connection.retry(lambda client, path=path: client.get_acls_async(path)) for path in paths
        ]
        await session.close()
        return [acls for acls, _ in found]

    for acls in asyncio.run(scenario()):
        assert [(acl.id.scheme, acl.id.id) for acl in acls] == [("sasl", USER)]


def test_a_wrong_password_is_refused(server: ZooKeeperServer, access: ZooKeeperAccess) -> None:
    with pytest.raises(SkylogError, match="ZooKeeper refused the login") as raised:
        asyncio.run(opened(server.address, replace(access, password="not it")))
    assert "not it" not in str(raised.value)


@in_proof
def test_a_server_can_require_a_login(files: Path, tmp_path: Path, access: ZooKeeperAccess) -> None:
    security = ServerSecurity(files / "server.pem", files / "ca.pem", USER, PASSWORD)
    with running(tmp_path / "zookeeper", security) as server:
        asyncio.run(store(server.address, access))
        with pytest.raises(SkylogError, match=r"serves only clients that log in; set zookeeper\.sasl\.jaas\.config"):
            asyncio.run(opened(server.address, replace(access, user="", sets_acl=False)))


def test_a_server_that_is_not_trusted_gets_no_password(server: ZooKeeperServer, access: ZooKeeperAccess) -> None:
    untrusted = replace(access, authority="")  # the operating system does not know the authority
    with pytest.raises(SkylogError, match=r"no ZooKeeper answers.*certificate verify failed"):
        asyncio.run(opened(server.address, untrusted, timeout_ms=1000))


@in_proof
def test_mutual_tls_identifies_a_broker(files: Path, tmp_path: Path) -> None:
    security = ServerSecurity(files / "server.pem", files / "ca.pem", needs_certificate=True)
    with running(tmp_path / "zookeeper", security) as server:
        access = ZooKeeperAccess(
            has_tls=True, authority=str(files / "ca.pem"), identity=str(files / "client.pem"), sets_acl=True
        )
        asyncio.run(store(f"{server.address}/mutual", access))
        assert asyncio.run(load(f"{server.address}/mutual", access)).keys() == {"/users/alice"}
        nobody = replace(access, identity="", sets_acl=False)
        with pytest.raises(SkylogError, match="no ZooKeeper answers"):
            asyncio.run(opened(server.address, nobody, timeout_ms=1000))


def test_settings_that_cannot_work_are_named() -> None:
    with pytest.raises(ConfigError, match=r"zookeeper\.set\.acl=true needs a user: set zookeeper\.sasl\.jaas\.config"):
        ZooKeeperAccess(sets_acl=True).check()
    with pytest.raises(ConfigError, match=r"zookeeper\.ssl\.\*: cannot read the certificates"):
        ZooKeeperAccess(has_tls=True, authority="/nowhere.pem").check()
