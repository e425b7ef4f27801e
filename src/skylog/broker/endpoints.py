"""The listeners of a broker: where each listens, what it advertises, and how its connections begin.

Without security settings there is one PLAINTEXT listener. What TLS and logins need is imported only if a listener has
them.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from skylog.broker.config import ServerConfig
from skylog.broker.session import PLAINTEXT, Session
from skylog.cluster import BrokerImage
from skylog.cluster.scram_users import ScramUsers
from skylog.errors import ConfigError
from skylog.net import Connection, Listener
from skylog.net.peer import PeerSecurity
from skylog.security.listeners import Address, SecurityProtocol, parse_listeners

if TYPE_CHECKING:
    from skylog.broker.router import Router
    from skylog.broker.security.peer_access import PeerAccess
    from skylog.broker.security.secure_listener import SecureListener

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 9092
_WILDCARDS: Final = frozenset({"", "0.0.0.0", "::"})


class Endpoints:
    """Starts the listeners and knows their addresses. Use it on the event loop.

    `peer_security` is how this broker connects to others, None for plain text.
    """

    def __init__(
        self, node_id: int, router: Router, listener: Listener, users: ScramUsers, *, is_replicated: bool
    ) -> None:
        self._node_id = node_id
        self._router = router
        self._listener = listener
        self._users = users
        self._is_replicated = is_replicated
        self._bound: dict[str, Address] = {}
        self._advertised: dict[str, Address] = {}
        self._secure: dict[str, SecureListener] = {}
        self._rack: str | None = None
        self._inter_broker = PLAINTEXT
        self._peer_access: PeerAccess | None = None
        self.peer_security: PeerSecurity | None = None

    async def start(self, config: ServerConfig, host: str | None, port: int | None) -> int:
        """Listen, and return the port of the first listener. Its address is `host` and `port` where these are given.

        Raises ConfigError.
        """
        security = config.security
        addresses = security.addresses() or [Address(PLAINTEXT, DEFAULT_HOST, DEFAULT_PORT)]
        first = addresses[0]
        addresses[0] = Address(first.name, first.host if host is None else host, first.port if port is None else port)
        names = [address.name for address in addresses]
        self._inter_broker = (security.inter_broker_listener_name or first.name).upper()
        if self._inter_broker not in names:
            raise ConfigError(f"inter.broker.listener.name={self._inter_broker} is not one of {', '.join(names)}")
        if self._is_replicated and security.protocol_of(self._inter_broker) is not SecurityProtocol.PLAINTEXT:
            from skylog.broker.security.peer_access import PeerAccess

            self._peer_access = PeerAccess(security, self._inter_broker)
            self.peer_security = self._peer_access.security
        self._apply(config)
        unknown = set(self._advertised) - set(names)
        if unknown:
            raise ConfigError(f"advertised.listeners: {', '.join(sorted(unknown))} is not in listeners")
        for address in addresses:
            if security.protocol_of(address.name).has_login:
                from skylog.broker.security.mechanisms import add_own_user

                await self._users.load()
                await self._users.load_seed()
                await add_own_user(address.name, security, self._users)
            open_session = self._opener(address.name, config)
            secure = self._secure.get(address.name)
            handshakes, max_frame_bytes = (secure.handshakes, secure.max_frame_bytes) if secure else (None, None)
            begin = self._listener.listen if self._bound else self._listener.start
            is_protected = len(addresses) > 1 and address.name == self._inter_broker
            bound = await begin(
                address.host,
                address.port,
                open_session,
                handshakes,
                max_frame_bytes,
                name=address.name,
                is_protected=is_protected,
            )
            self._bound[address.name] = address._replace(port=bound)
        return self._bound[first.name].port

    def _opener(self, name: str, config: ServerConfig) -> Callable[[Connection], Session] | None:
        """Return what opens the sessions of a listener, None for the default."""
        protocol = config.security.protocol_of(name)
        if protocol is SecurityProtocol.PLAINTEXT:
            return None if name == PLAINTEXT else partial(self._router.open_session, listener=name)
        from skylog.broker.security.secure_listener import SecureListener

        secure = self._secure[name] = SecureListener(name, protocol, config, self._router, self._users)
        return secure.open_session

    def check(self, config: ServerConfig) -> None:
        """Raise ConfigError if another configuration cannot be applied."""
        for secure in self._secure.values():
            secure.check(config.security)

    def reconfigure(self, config: ServerConfig) -> bool:
        """Apply another configuration to new connections. Return whether the registered addresses have changed."""
        before = self.registration()
        self._apply(config)
        for secure in self._secure.values():
            secure.reconfigure(config.security)
        if self._peer_access is not None:
            self._peer_access.reconfigure(config.security)
        return self.registration() != before

    def _apply(self, config: ServerConfig) -> None:
        self._advertised = {
            address.name: address
            for address in parse_listeners(config.broker.advertised_listeners, "advertised.listeners")
        }
        self._rack = config.broker.broker_rack or None

    @property
    def port(self) -> int:
        """The port that other brokers connect to."""
        return self._bound[self._inter_broker].port

    def registration(self) -> BrokerImage:
        """Return the addresses for other brokers and their clients: the advertised ones, or those to listen on."""
        found = {name: self._registered(name) for name in self._bound}
        host, port = found[self._inter_broker]
        is_plain = list(found) == [PLAINTEXT]
        return BrokerImage(self._node_id, host, port, self._rack, endpoints={} if is_plain else found)

    def _registered(self, name: str) -> tuple[str, int]:
        """Return the address of a listener, by the name of this host if it listens on all of its addresses."""
        address = self._advertised.get(name) or self._bound[name]
        is_unnamed = address.host in _WILDCARDS and self._is_replicated
        return socket.gethostname() if is_unnamed else address.host, address.port

    def own_address(self, connection: Connection) -> BrokerImage:
        """Return the address of this broker for the client on `connection`."""
        session = connection.handler
        name = session.listener if isinstance(session, Session) else self._inter_broker
        address = self._advertised.get(name) or self._bound[name]
        host, port = address.host, address.port
        if host in _WILDCARDS:
            host, port = connection.local_address
        return BrokerImage(self._node_id, host, port, self._rack)
