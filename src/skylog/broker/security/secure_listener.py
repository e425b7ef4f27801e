"""A listener with TLS or logins: how its connections begin, and which principal they have."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NoReturn

from skylog.broker.config import ServerConfig
from skylog.broker.security.login import Login, LoginRules
from skylog.broker.security.mechanisms import mechanisms
from skylog.broker.session import ANONYMOUS, Session
from skylog.cluster.scram_users import ScramUsers
from skylog.errors import ConfigError, MalformedRequestError
from skylog.net import Connection
from skylog.net.tls import Credentials, TlsConfig, TlsHandshakes, TlsTransport
from skylog.security.config import SecurityConfig
from skylog.security.listeners import SecurityProtocol
from skylog.security.principal_mapping import distinguished_name, mapper

if TYPE_CHECKING:
    from skylog.broker.router import Router

logger = logging.getLogger(__name__)


class SecureListener:
    """Opens the sessions of one listener. Raises ConfigError if its settings cannot be used."""

    def __init__(
        self, name: str, protocol: SecurityProtocol, config: ServerConfig, router: Router, users: ScramUsers
    ) -> None:
        self._name = name
        self._protocol = protocol
        self._router = router
        own = config.security.of_listener(name)
        self._principal_of = mapper(own.ssl_principal_mapping_rules)
        self._login_rules = login_rules(name, config, users) if protocol.has_login else None
        self.max_frame_bytes = own.sasl_server_max_receive_size if protocol.has_login else None
        self.handshakes = TlsHandshakes(Credentials(tls_config(own))) if protocol.has_tls else None

    def check(self, config: SecurityConfig) -> None:
        """Raise ConfigError if another configuration has keys that cannot be used."""
        if self.handshakes is not None:
            self.handshakes.credentials.check(tls_config(config.of_listener(self._name)))

    def reconfigure(self, config: SecurityConfig) -> None:
        """Use another configuration for new connections. Keys that cannot be used leave those before in place."""
        own = config.of_listener(self._name)
        self._principal_of = mapper(own.ssl_principal_mapping_rules)
        if self.handshakes is None:
            return
        try:
            self.handshakes.credentials.reconfigure(tls_config(own))
        except ConfigError as error:
            logger.error("the listener %s keeps its former keys and certificates: %s", self._name, error)

    def open_session(self, connection: Connection) -> Session:
        session = self._router.open_session(connection, self._name)
        if self._login_rules is not None:
            session.login = Login(session, self._router, self._login_rules)
            session.handle = session.login.handle
        else:
            try:
                session.principal = self._certified(connection)
            except ConfigError as error:
                session.handle = _Refusal(str(error))
        return session

    def _certified(self, connection: Connection) -> str:
        """Return the principal that the certificate of a client says. Raises ConfigError if no rule applies to it."""
        transport = connection.transport
        assert isinstance(transport, TlsTransport)
        certificate = transport.certificate
        return ANONYMOUS if certificate is None else f"User:{self._principal_of(distinguished_name(certificate))}"


def login_rules(name: str, config: ServerConfig, users: ScramUsers) -> LoginRules:
    """Return how clients of a listener log in. Raises ConfigError."""
    own = config.security.of_listener(name)
    found = mechanisms(name, config.security, users)
    return LoginRules(
        mechanisms=tuple(found),
        begin=lambda mechanism: found[mechanism](),
        max_reauth_ms=own.connections_max_reauth_ms,
        failure_delay_ms=own.connection_failed_authentication_delay_ms,
        max_request_bytes=config.net.socket_request_max_bytes,
    )


class _Refusal:
    """Handles the frames of a connection that must not be served: it is closed with its first request."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def __call__(self, frame: memoryview) -> NoReturn:
        raise MalformedRequestError(self._reason)


def tls_config(config: SecurityConfig) -> TlsConfig:
    """Return the part of the settings that a TLS context is made of."""
    return TlsConfig(
        keystore_location=config.ssl_keystore_location,
        certificate_chain=config.ssl_keystore_certificate_chain,
        key=config.ssl_keystore_key,
        key_password=config.ssl_key_password,
        truststore_location=config.ssl_truststore_location,
        trusted=config.ssl_truststore_certificates,
        client_auth=config.ssl_client_auth,
        protocols=config.ssl_enabled_protocols,
    )
