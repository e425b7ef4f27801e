"""How brokers connect to each other: over the inter-broker listener, with its TLS and the broker's own login."""

from __future__ import annotations

import logging

from skylog.broker.security.secure_listener import tls_config
from skylog.errors import ConfigError
from skylog.net.peer import PeerSecurity
from skylog.net.tls import Credentials, client_context
from skylog.security.config import SecurityConfig
from skylog.security.own_client import own_login
from skylog.security.peer_login import password_login

logger = logging.getLogger(__name__)


class PeerAccess:
    """How to connect to this listener of other brokers. Raises ConfigError.

    New connections use the keys and certificates that the files have by then, as those of clients do.
    """

    def __init__(self, config: SecurityConfig, listener: str) -> None:
        self._listener = listener
        protocol = config.protocol_of(listener)
        self._credentials = (
            Credentials(tls_config(config.of_listener(listener)), client_context) if protocol.has_tls else None
        )
        context = None if self._credentials is None else self._credentials.context
        if not protocol.has_login:
            self.security = PeerSecurity(context)
            return
        login = own_login(config, listener)
        if login is None:
            raise ConfigError(
                f"brokers log in on the listener {listener}: give username and password in listener.name."
                f"{listener.lower()}.MECHANISM.sasl.jaas.config"
            )
        self.security = PeerSecurity(context, password_login(*login))

    def reconfigure(self, config: SecurityConfig) -> None:
        """Use other keys for new connections. Those that cannot be used leave those before in place."""
        if self._credentials is None:
            return
        try:
            self._credentials.reconfigure(tls_config(config.of_listener(self._listener)))
        except ConfigError as error:
            logger.error("connections to other brokers keep their former keys and certificates: %s", error)
