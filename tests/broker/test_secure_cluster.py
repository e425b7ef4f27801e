"""Brokers that reach each other through a listener with TLS and logins."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from skylog.broker import Broker
from skylog.broker.security.access import AccessControl
from skylog.broker.security.peer_access import PlainPeerLogin, ScramPeerLogin
from skylog.broker.session import Session
from skylog.errors import ConfigError
from skylog.net.peer import Peer, PeerError, PeerSecurity
from skylog.protocol.metadata import MetadataRequest
from skylog.security.acl import Acl, AclFilter, AclOperation, PatternType, Permission, Resource, ResourceType
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
    own = certificates.context_of(folder, certificates.client())
    wrong = [
        None,
        PeerSecurity(certificates.context_of(folder)),
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
