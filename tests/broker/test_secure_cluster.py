"""Brokers that reach each other through a listener with TLS and logins."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from skylog.broker import Broker
from skylog.broker.security.access import AccessControl
from skylog.broker.session import Session
from skylog.errors import ConfigError
from skylog.net import peer as peer_module
from skylog.net import tls
from skylog.net.peer import Peer, PeerError, PeerSecurity
from skylog.protocol.metadata import MetadataRequest
from skylog.security.acl import Acl, AclFilter, AclOperation, PatternType, Permission, Resource, ResourceType
from skylog.security.peer_login import PlainPeerLogin, ScramPeerLogin
from tests.patience import patience
from tests.security import certificates

from .members import Members
from .test_tls import settings_in

JAAS = 'x.ScramLoginModule required username="broker" password="broker-secret";'


def settings_of(folder: Path) -> dict[str, str]:
    return settings_in(folder) | {
        "listeners": "INTERNAL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "listener.security.protocol.map": "INTERNAL:SASL_SSL",
        "inter.broker.listener.name": "INTERNAL",
        "ssl.client.auth": "required",
        "connection.failed.authentication.delay.ms": "1",
        "listener.name.internal.scram-sha-512.sasl.jaas.config": JAAS,
    }


def principals(broker: Broker, listener: str) -> set[str]:
    sessions = [connection.handler for connection in broker.listener.connections]
    return {each.principal for each in sessions if isinstance(each, Session) and each.listener == listener}


def test_brokers_replicate_over_tls_and_log_in(tmp_path: Path) -> None:
    async def run() -> None:
        async with Members(tmp_path, settings_of(tmp_path), size=2) as members:
            await members.create("t")  # returns when the follower has fetched
            leader = members.brokers[members.image("t").leader]
            assert principals(leader, "INTERNAL") >= {"User:broker"}
            other = members.brokers[2 if leader is members.brokers[1] else 1]
            answer = await other.leader_client.ask(leader.identity.node_id, MetadataRequest(topics=[]), 9)
            ports = {broker.node_id: broker.port for broker in answer.brokers}
            assert ports == {each.identity.node_id: each.endpoints.port for each in members.live()}
            await refused(leader.endpoints.port, tmp_path)

    asyncio.run(run())


def access_of(broker: Broker) -> AccessControl:
    assert broker.access is not None
    return broker.access


def test_brokers_with_an_authorizer_have_the_same_rules_at_once(tmp_path: Path) -> None:
    acl = Acl(
        Resource(ResourceType.TOPIC, PatternType.LITERAL, "t"), "User:alice", "*", AclOperation.READ, Permission.ALLOW
    )
    access = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:broker",
    }

    async def run() -> None:
        async with Members(tmp_path, settings_of(tmp_path) | access, size=2) as members:
            await members.create("t")  # returns when the follower, a super user, has fetched
            first, second = map(access_of, members.live())
            await first.add([acl])
            assert first.authorizer.acls() == [acl]
            await members.until(lambda: second.authorizer.acls() == [acl])
            assert await second.remove([AclFilter()]) == [acl]
            await members.until(lambda: first.authorizer.acls() == [])

    asyncio.run(run())


async def refused(port: int, folder: Path) -> None:
    """Strangers are not served: without TLS, without a login, with a wrong password, with another mechanism."""

    def own() -> ssl.SSLContext:
        return certificates.context_of(folder, certificates.client())

    wrong = [
        None,
        PeerSecurity(lambda: certificates.context_of(folder)),
        PeerSecurity(own, lambda: ScramPeerLogin("SCRAM-SHA-512", "broker", "guess")),
        PeerSecurity(own, lambda: PlainPeerLogin("broker", "broker-secret")),
    ]
    for security in wrong:
        with pytest.raises(PeerError):
            await Peer.connect("127.0.0.1", port, client_id="eve", timeout_s=20, security=security)
    right = PeerSecurity(own, lambda: ScramPeerLogin("SCRAM-SHA-512", "broker", "broker-secret"))
    peer = await Peer.connect("127.0.0.1", port, client_id="broker", timeout_s=20, security=right)
    assert (await peer.ask(MetadataRequest(topics=[]), 9)).brokers
    peer.close()


def test_brokers_need_a_login_of_their_own(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    del settings["listener.name.internal.scram-sha-512.sasl.jaas.config"]

    async def run() -> None:
        async with Members(tmp_path, settings, size=1):
            pass

    with pytest.raises(ConfigError, match="brokers log in on the listener INTERNAL"):
        asyncio.run(run())


def test_a_peer_repeats_its_login_before_the_session_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_module, "RENEWED_AFTER", 0.001)  # of ten minutes
    settings = settings_of(tmp_path) | {"connections.max.reauth.ms": "600000"}
    security = PeerSecurity(
        lambda: certificates.context_of(tmp_path, certificates.client()),
        lambda: ScramPeerLogin("SCRAM-SHA-512", "broker", "broker-secret"),
    )

    async def run() -> None:
        async with Members(tmp_path, settings, size=1) as members:
            port = members.brokers[1].endpoints.port
            peer = await Peer.connect("127.0.0.1", port, client_id="b", timeout_s=patience(20), security=security)
            logins = [each.handler.login for each in members.brokers[1].listener.connections]  # type: ignore[union-attr]
            expires = max(login._timer.when() for login in logins if login is not None)
            async with asyncio.timeout(patience(20)):
                while max(login._timer.when() for login in logins if login is not None) == expires:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            assert (await peer.ask(MetadataRequest(topics=[]), 9)).brokers
            peer.close()

    asyncio.run(run())


def test_connections_to_other_brokers_use_certificates_that_have_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "FILE_CHECK_SECONDS", 0.0)

    async def run() -> None:
        async with Members(tmp_path, settings_of(tmp_path), size=1) as members:
            endpoints = members.brokers[1].endpoints
            assert endpoints.peer_security is not None

            async def connect() -> None:
                security = endpoints.peer_security
                (await Peer.connect("127.0.0.1", endpoints.port, client_id="b", security=security)).close()

            await connect()
            other = certificates.other_authority()
            own = other.issue("broker", certificates.HOSTS)
            certificates.write(tmp_path / "ca.pem", other.certificate)
            certificates.write(tmp_path / "server.pem", own.key, own.certificate)
            await connect()  # both sides have the new ones

    asyncio.run(run())
