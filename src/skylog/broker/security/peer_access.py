"""How brokers connect to each other: over the inter-broker listener, with its TLS and the broker's own login."""

from __future__ import annotations

from functools import partial

from skylog.broker.security.secure_listener import tls_config
from skylog.errors import ConfigError
from skylog.net.peer import PeerSecurity
from skylog.net.tls import client_context
from skylog.security.config import SecurityConfig
from skylog.security.own_client import own_login
from skylog.security.scram import MECHANISMS, ScramLogin


class PlainPeerLogin:
    """A login with PLAIN."""

    mechanism = "PLAIN"

    def __init__(self, user: str, password: str) -> None:
        self._token = f"\0{user}\0{password}".encode()

    def respond(self, challenge: bytes | None) -> bytes | None:
        return self._token if challenge is None else None


class ScramPeerLogin:
    """A login with SCRAM. The other broker must prove that it knows the password, too."""

    def __init__(self, mechanism: str, user: str, password: str) -> None:
        self.mechanism = mechanism
        self._login = ScramLogin(MECHANISMS[mechanism], user, password)
        self._is_proven = False

    def respond(self, challenge: bytes | None) -> bytes | None:
        if challenge is None:
            return self._login.first()
        if self._is_proven:
            self._login.verify(challenge)
            return None
        self._is_proven = True
        return self._login.final(challenge)


def peer_security(config: SecurityConfig, listener: str) -> PeerSecurity | None:
    """Return how to connect to this listener of other brokers; None if it is PLAINTEXT. Raises ConfigError."""
    protocol = config.protocol_of(listener)
    if not (protocol.has_tls or protocol.has_login):
        return None
    context = client_context(tls_config(config.of_listener(listener))) if protocol.has_tls else None
    if not protocol.has_login:
        return PeerSecurity(context)
    login = own_login(config, listener)
    if login is None:
        raise ConfigError(
            f"brokers log in on the listener {listener}: give username and password in listener.name."
            f"{listener.lower()}.MECHANISM.sasl.jaas.config"
        )
    mechanism, user, password = login
    if mechanism in MECHANISMS:
        return PeerSecurity(context, partial(ScramPeerLogin, mechanism, user, password))
    return PeerSecurity(context, partial(PlainPeerLogin, user, password))
