"""Accept connections, keep them, and close those that are idle or hold memory that others wait for."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Final, Protocol

from skylog.config import UpdateMode, setting
from skylog.limited_logger import LimitedLogger
from skylog.net.budget import MemoryBudget
from skylog.net.buffers import FrameBuffers
from skylog.net.connection import Connection, OpenHandler, Shared
from skylog.net.connection_limits import (
    UNLIMITED,
    ConnectionLimits,
    Limits,
    ListenerLimits,
    Refusal,
    check_overrides,
    parse_overrides,
)
from skylog.net.transport import PlainTransport, Transport

logger = logging.getLogger(__name__)
limited_logger = LimitedLogger(logger)  # for lines that clients can cause

SWEEP_SECONDS: Final = 5.0
STALL_SECONDS: Final = 10.0
_ACCEPTS_AT_ONCE: Final = 128
_SCRATCH_BYTES: Final = 1024 * 1024
_RETRY_SECONDS: Final = 0.5
_MAX_REFUSED: Final = 1000  # connections that wait for their end
_MAX_CONNECTIONS: Final = "max.connections"
_MAX_RATE: Final = "max.connection.creation.rate"

OF_A_LISTENER: Final = (_MAX_CONNECTIONS, _MAX_RATE)
"""The keys that can also be set for one listener."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetConfig:
    """Settings of sockets. Each field is a key of Kafka's broker configuration.

    `by_listener` has the keys that are set for one listener, by its name in lower case and the key.
    """

    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms", 600_000, "Close connections that have been silent this long.", minimum=1
    )
    max_connection_creation_rate: int = setting(
        _MAX_RATE,
        UNLIMITED,
        "Accept at most this many connections per second; further ones wait. Those of the listener between brokers do "
        "not count if there are several listeners.",
        kind="int",
        minimum=0,
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    max_connections: int = setting(
        _MAX_CONNECTIONS,
        UNLIMITED,
        "Accept no further connections while there are this many; they wait until others end. On the listener between "
        "brokers, if there are several listeners, the longest idle connection of another one is closed instead.",
        kind="int",
        minimum=1,
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    max_connections_per_ip: int = setting(
        "max.connections.per.ip",
        UNLIMITED,
        "Close further connections of an IP address that has this many.",
        kind="int",
        minimum=0,
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    max_connections_per_ip_overrides: tuple[str, ...] = setting(
        "max.connections.per.ip.overrides",
        (),
        "Other limits for some IP addresses, as address:count,….",
        kind="list",
        check=check_overrides,
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    queued_max_request_bytes: int = setting(
        "queued.max.request.bytes",
        256 * 1024 * 1024,
        "Memory for requests that are being received; beyond it, clients wait.",
        minimum=1024 * 1024,
    )
    socket_listen_backlog_size: int = setting(
        "socket.listen.backlog.size",
        4096,
        "Connections the kernel keeps until they are accepted.",
        kind="int",
        minimum=1,
    )
    socket_receive_buffer_bytes: int = setting(
        "socket.receive.buffer.bytes",
        -1,
        "SO_RCVBUF of the sockets; -1 leaves it to the kernel.",
        kind="int",
        minimum=-1,
    )
    socket_request_max_bytes: int = setting(
        "socket.request.max.bytes",
        100 * 1024 * 1024,
        "The largest request; a client that sends a larger one is disconnected.",
        kind="int",
        minimum=1,
    )
    socket_send_buffer_bytes: int = setting(
        "socket.send.buffer.bytes", -1, "SO_SNDBUF of the sockets; -1 leaves it to the kernel.", kind="int", minimum=-1
    )
    by_listener: Mapping[tuple[str, str], int] = field(default_factory=dict)


class Handshakes(Protocol):
    """Turns accepted sockets into transports that need more than the socket, such as TLS."""

    def begin(
        self, sock: socket.socket, peer: str, admit: Callable[[Transport], object], abandon: Callable[[], object]
    ) -> None:
        """Call `admit` when the transport is ready, or close the socket and call `abandon`."""

    def close(self) -> None:
        """Give up the handshakes that are under way."""


class _Endpoint:
    """What the sockets that listen on one address have in common."""

    __slots__ = ("handshakes", "is_protected", "name", "shared")

    def __init__(self, name: str, shared: Shared, handshakes: Handshakes | None, is_protected: bool) -> None:
        self.name = name
        self.shared = shared
        self.handshakes = handshakes
        self.is_protected = is_protected


class Listener:
    """The listening addresses and their connections. `open_handler` is called for each new connection.

    The rate of new connections is measured over `windows` of `window_s` seconds.
    """

    def __init__(self, config: NetConfig, open_handler: OpenHandler, windows: int = 11, window_s: float = 1.0) -> None:
        self._config = config
        self._windows = windows
        self._window_s = window_s
        self.limits = ConnectionLimits(self._limits_of(config))
        self._full: list[tuple[socket.socket, _Endpoint]] = []  # that accept nothing until a connection ends
        self._refused: dict[socket.socket, asyncio.TimerHandle] = {}  # that are closed after a wait
        self._open_handler = open_handler
        self._budget = MemoryBudget(config.queued_max_request_bytes)
        self._sockets: list[socket.socket] = []
        self._handshakes: list[Handshakes] = []
        self._sweeper: asyncio.TimerHandle | None = None
        self.connections: dict[Connection, tuple[_Endpoint, str]] = {}  # with their addresses, the oldest first
        self.accepted_total = 0

    def reconfigure(self, config: NetConfig) -> None:
        """Use another configuration from now on."""
        self._config = config
        self.limits.reconfigure(self._limits_of(config))
        self._accept_again()

    def _limits_of(self, config: NetConfig) -> Limits:
        return Limits(
            total=config.max_connections,
            per_address=config.max_connections_per_ip,
            overrides=parse_overrides(config.max_connections_per_ip_overrides),
            rate=config.max_connection_creation_rate,
            listeners={
                name: ListenerLimits(*(config.by_listener.get((name, key)) for key in OF_A_LISTENER))
                for name, _ in config.by_listener
            },
            windows=self._windows,
            window_s=self._window_s,
        )

    async def start(
        self,
        host: str,
        port: int,
        open_handler: OpenHandler | None = None,
        handshakes: Handshakes | None = None,
        max_frame_bytes: int | None = None,
        *,
        name: str = "",
        is_protected: bool = False,
    ) -> int:
        """Listen on every address of `host` and return the port. The kernel picks one for port 0."""
        self._loop = asyncio.get_running_loop()
        self._shared = Shared(
            loop=self._loop,
            open_handler=self._open_handler,
            scratch=memoryview(bytearray(_SCRATCH_BYTES)),
            budget=self._budget,
            buffers=FrameBuffers(),
            max_frame_bytes=self._config.socket_request_max_bytes,
            on_close=self._forget,
        )
        self._sweeper = self._loop.call_later(SWEEP_SECONDS, self._sweep)
        return await self.listen(
            host, port, open_handler, handshakes, max_frame_bytes, name=name, is_protected=is_protected
        )

    async def listen(
        self,
        host: str,
        port: int,
        open_handler: OpenHandler | None = None,
        handshakes: Handshakes | None = None,
        max_frame_bytes: int | None = None,
        *,
        name: str = "",
        is_protected: bool = False,
    ) -> int:
        """Listen on a further address, after `start`. Its connections may have another handler and handshakes.

        They begin with frames of up to `max_frame_bytes`, until `Connection.allow_frames`. `name` is that of the
        listener, whose limits count. If it `is_protected`, its connections are accepted even if the broker has too
        many: others give way.
        """
        shared = self._shared if open_handler is None else replace(self._shared, open_handler=open_handler)
        if max_frame_bytes is not None:
            shared = replace(shared, max_frame_bytes=max_frame_bytes)
        endpoint = _Endpoint(name.lower(), shared, handshakes, is_protected)
        if handshakes is not None:
            self._handshakes.append(handshakes)
        found = await self._loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in sorted(set(found)):
            sock = socket.socket(family, kind, protocol)
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            self._sockets.append(sock)
            try:
                sock.bind((address[0], port, *address[2:]))
                sock.listen(self._config.socket_listen_backlog_size)
            except OSError:
                self.stop_accepting()
                raise
            port = sock.getsockname()[1]
            self._loop.add_reader(sock.fileno(), self._accept, sock, endpoint)
        return port

    def _accept(self, listening: socket.socket, endpoint: _Endpoint) -> None:
        for _ in range(_ACCEPTS_AT_ONCE):
            if not self._has_room(listening, endpoint):
                return
            try:
                sock, address = listening.accept()
            except BlockingIOError:
                return
            except ConnectionError as error:
                logger.debug("a client disconnected before it was accepted: %s", error)
                continue
            except OSError as error:  # out of descriptors: leave the rest in the backlog and try again shortly
                limited_logger.error("cannot accept connections for %.1f s: %s", _RETRY_SECONDS, error)
                self._pause(listening, endpoint, _RETRY_SECONDS)
                return
            if endpoint.is_protected and self.limits.is_full:
                self._make_room()
            host = address[0]
            refusal, wait_s = self.limits.admit(
                host, self._loop.time(), endpoint.name, is_protected=endpoint.is_protected
            )
            if refusal is None:
                self._admit(sock, host, f"{host}:{address[1]}", endpoint)
            else:
                self._refuse(sock, host, refusal, wait_s)

    def _has_room(self, listening: socket.socket, endpoint: _Endpoint) -> bool:
        """Whether to accept a connection now. If not, this is called again when that may have changed."""
        wait_s = self.limits.wait_s(self._loop.time(), endpoint.name, is_protected=endpoint.is_protected)
        if not wait_s:
            return True
        if wait_s == inf:
            own = self._config.by_listener.get((endpoint.name, _MAX_CONNECTIONS))
            if own is not None and self.limits.is_full_for(endpoint.name):
                key, limit = f"listener.name.{endpoint.name}.{_MAX_CONNECTIONS}", own
            else:
                key, limit = _MAX_CONNECTIONS, self._config.max_connections
            limited_logger.warning("accepting no connections until others end: %s=%d", key, limit)
            self._loop.remove_reader(listening.fileno())
            self._full.append((listening, endpoint))
        else:
            self._pause(listening, endpoint, wait_s)
        return False

    def _make_room(self) -> None:
        """Close the connection that has been idle longest, of those that are not protected."""
        others = [each for each, (endpoint, _) in self.connections.items() if not endpoint.is_protected]
        if others:
            idle = min(others, key=lambda connection: connection.last_activity)
            limited_logger.warning("closing the connection of %s: a broker needs its place", idle.peer)
            idle.close()

    def _refuse(self, sock: socket.socket, host: str, refusal: Refusal, wait_s: float) -> None:
        limited_logger.warning("refusing a connection of %s: it is beyond %s", host, refusal.value)
        if wait_s and len(self._refused) < _MAX_REFUSED:
            self._refused[sock] = self._loop.call_later(wait_s, self._close_refused, sock)
        else:
            sock.close()

    def _close_refused(self, sock: socket.socket) -> None:
        del self._refused[sock]
        sock.close()

    def _pause(self, listening: socket.socket, endpoint: _Endpoint, seconds: float) -> None:
        self._loop.remove_reader(listening.fileno())
        self._loop.call_later(seconds, self._resume_accepting, listening, endpoint)

    def _accept_again(self) -> None:
        """Accept connections where there was no room for them."""
        full, self._full = self._full, []
        for listening, endpoint in full:
            self._resume_accepting(listening, endpoint)

    def _resume_accepting(self, listening: socket.socket, endpoint: _Endpoint) -> None:
        if listening.fileno() >= 0:
            self._loop.add_reader(listening.fileno(), self._accept, listening, endpoint)

    def _admit(self, sock: socket.socket, host: str, peer: str, endpoint: _Endpoint) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._config.socket_receive_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._config.socket_receive_buffer_bytes)
        if self._config.socket_send_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._config.socket_send_buffer_bytes)
        self.accepted_total += 1
        if endpoint.handshakes is None:
            self.connections[Connection(PlainTransport(sock), peer, endpoint.shared)] = endpoint, host
        else:
            connect = partial(self._connect, peer, host, endpoint)
            endpoint.handshakes.begin(sock, peer, connect, partial(self._release, host, endpoint))

    def _connect(self, peer: str, host: str, endpoint: _Endpoint, transport: Transport) -> None:
        """Begin a connection after its handshake, unless the listener is stopping."""
        if self._sockets:
            self.connections[Connection(transport, peer, endpoint.shared)] = endpoint, host
        else:
            transport.close()
            self._release(host, endpoint)

    def _forget(self, connection: Connection) -> None:
        found = self.connections.pop(connection, None)
        if found is not None:
            endpoint, host = found
            self._release(host, endpoint)

    def _release(self, host: str, endpoint: _Endpoint) -> None:
        self.limits.release(host, endpoint.name)
        if self._full:
            self._accept_again()

    def _sweep(self) -> None:
        """Close connections that are idle, and those that hold memory for an unfinished frame while others wait."""
        self._sweeper = self._loop.call_later(SWEEP_SECONDS, self._sweep)
        now = self._loop.time()
        idle_since = now - self._config.connections_max_idle_ms / 1000
        stalled_since = now - STALL_SECONDS
        for connection in list(self.connections):
            if connection.last_activity < idle_since:
                logger.info("closing the idle connection of %s", connection.peer)
                connection.close()
            elif self._budget.has_waiters and connection.stalls_budget(stalled_since):
                limited_logger.warning(
                    "closing the connection of %s: its unfinished request holds memory others wait for", connection.peer
                )
                connection.close()

    def stop_accepting(self) -> None:
        for sock in self._sockets:
            self._loop.remove_reader(sock.fileno())
            sock.close()
        self._sockets.clear()
        self._full.clear()
        for refused, timer in self._refused.items():
            timer.cancel()
            refused.close()
        self._refused.clear()
        for handshakes in self._handshakes:
            handshakes.close()
        self._handshakes.clear()

    async def stop(self, grace_seconds: float) -> None:
        """Stop accepting, send the replies that are under way, then close every connection."""
        self.stop_accepting()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in self.connections:
            connection.drain()
        deadline = self._loop.time() + grace_seconds
        while self._loop.time() < deadline and any(each.has_unfinished_work for each in self.connections):  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # polled: connections need not signal something that only a stop asks for
        for connection in list(self.connections):
            connection.close()
