"""A TCP proxy in front of a broker, which cuts the connections of some clients or of all.

A broker advertises the port of its proxy, so the connections of clients and of other brokers pass through it. The
first request on a connection has the client id, which is `broker-N` for a connection of broker N:

    int32 size | int16 API key | int16 API version | int32 correlation id | int16 length | client id

When the client id is known, the proxy connects to the broker and forwards everything. If one end does not read, the
proxy stops reading from the other, so that back-pressure reaches the sender.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Final, cast

from skylog.testing.loop_thread import LoopThread

HOST: Final = "127.0.0.1"
ANY_CLIENT: Final = None
BUFFER_BYTES: Final = 1 << 20
_BEFORE_LENGTH: Final = 12
_LENGTH: Final = struct.Struct(">h")
_RESET_AT_CLOSE: Final = struct.pack("ii", 1, 0)  # SO_LINGER with a time of zero


class BrokerProxy:
    """The proxy of one broker, on a free port. Tests call its methods from their own thread."""

    def __init__(self, thread: LoopThread) -> None:
        self._thread = thread
        self._cuts: dict[str | None, bool] = {}  # whether it is a silent one, by client id
        self._connections: set[ProxiedConnection] = set()
        self.port = thread.run(self._listen())

    async def _listen(self) -> int:
        loop = asyncio.get_running_loop()
        self._target: asyncio.Future[int] = loop.create_future()
        self._server = await loop.create_server(self._accept, HOST, 0)
        return cast(int, self._server.sockets[0].getsockname()[1])

    def forward_to(self, port: int) -> None:
        """Set the port of the broker. Connections that came before wait for it."""
        self._thread.call(self._set_target, port)

    def cut(self, client_id: str | None = ANY_CLIENT, *, silently: bool = False) -> None:
        """Reset the connections of a client, by default of all, and refuse further ones until `heal`.

        With `silently` they stay open, but nothing passes, as in a network partition. What was sent meanwhile arrives
        after `heal`.
        """
        self._thread.call(self._cut, client_id, silently)

    def heal(self, client_id: str | None = ANY_CLIENT) -> None:
        """End a `cut`."""
        self._thread.call(self._heal, client_id)

    def close(self) -> None:
        self._thread.call(self._stop)

    # -- on the event loop

    def _set_target(self, port: int) -> None:
        if self._target.done():
            self._target = asyncio.get_running_loop().create_future()
        self._target.set_result(port)

    def _accept(self) -> ProxyEnd:
        connection = ProxiedConnection(self)
        self._connections.add(connection)
        return connection.client

    def _cut(self, client_id: str | None, silently: bool) -> None:
        self._cuts[client_id] = silently
        self._judge_all()

    def _heal(self, client_id: str | None) -> None:
        self._cuts.pop(client_id, None)
        self._judge_all()

    def _judge_all(self) -> None:
        for connection in tuple(self._connections):
            self.judge(connection)

    def judge(self, connection: ProxiedConnection) -> None:
        """Reset, hold or release a connection."""
        cuts = [self._cuts[key] for key in {ANY_CLIENT, connection.client_id} if key in self._cuts]
        if not all(cuts):
            connection.reset()
        else:
            connection.hold(bool(cuts))

    def _stop(self) -> None:
        self._server.close()
        for connection in tuple(self._connections):
            connection.reset()

    async def connect(self, end: ProxyEnd) -> None:
        """Connect an end to the broker. Raises OSError."""
        port = await asyncio.shield(self._target)
        await asyncio.get_running_loop().create_connection(lambda: end, HOST, port)

    def forget(self, connection: ProxiedConnection) -> None:
        self._connections.discard(connection)


class ProxiedConnection:
    """A connection of a client to the proxy, and the one of the proxy to the broker."""

    def __init__(self, proxy: BrokerProxy) -> None:
        self._proxy = proxy
        self._is_held = False
        self._early = bytearray()  # received before it could be forwarded
        self._is_identified = False
        self.client_id: str | None = None
        self.client = ProxyEnd(self)
        self.broker = ProxyEnd(self)
        self.client.other, self.broker.other = self.broker, self.client
        self.broker.is_forwarding = True
        self._connecting: asyncio.Task[None] | None = None

    def receive_early(self, data: bytes) -> None:
        self._early += data
        if not self._is_identified and (found := find_client_id(self._early)) is not None:
            self._is_identified, self.client_id = True, found
        self._proxy.judge(self)
        self._advance()

    def hold(self, is_held: bool) -> None:
        if is_held != self._is_held:
            self._is_held = is_held
            self._advance()

    def _advance(self) -> None:
        """Connect to the broker when the client is known, then forward what was received early.

        After that the ends forward by themselves, while they may be read from.
        """
        may_pass = self._is_identified and not self._is_held
        if may_pass and self._connecting is None and self.client.is_open:
            self._connecting = asyncio.ensure_future(self._connect())
        if may_pass and self.broker.is_open and self._early:
            self.broker.write(bytes(self._early))
            self._early.clear()
            self.client.is_forwarding = True
        self.client.read_if(not self._is_held and (self.client.is_forwarding or not self._is_identified))
        self.broker.read_if(not self._is_held)

    async def _connect(self) -> None:
        try:
            await self._proxy.connect(self.broker)
        except OSError:
            self.reset()  # the broker is not running
        else:
            self._advance()

    def reset(self) -> None:
        self.client.reset()
        self.broker.reset()
        if self._connecting is not None:
            self._connecting.cancel()
        self._proxy.forget(self)

    def lose(self, end: ProxyEnd) -> None:
        """Close the other end when one is lost, after what it has received is forwarded."""
        end.other.close()
        self._proxy.forget(self)


class ProxyEnd(asyncio.Protocol):
    """One of the two sockets of a proxied connection."""

    other: ProxyEnd

    def __init__(self, connection: ProxiedConnection) -> None:
        self._connection = connection
        self._transport: asyncio.Transport | None = None
        self.is_forwarding = False
        self._may_read = True
        self._is_other_full = False
        self._is_reading = True

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def close(self) -> None:
        """Close after everything is sent."""
        if self._transport is not None:
            self._transport.close()

    def reset(self) -> None:
        if self._transport is not None and self.is_open:
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
            self._transport.abort()

    def read_if(self, may_read: bool) -> None:
        self._may_read = may_read
        self._update_reading()

    def _update_reading(self) -> None:
        wanted = self._may_read and not self._is_other_full
        if self._transport is None or not self.is_open or wanted == self._is_reading:
            return
        self._is_reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    # -- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(BUFFER_BYTES)

    def data_received(self, data: bytes) -> None:
        if self.is_forwarding:
            self.other.write(data)
        else:
            self._connection.receive_early(data)

    def pause_writing(self) -> None:
        self.other._is_other_full = True
        self.other._update_reading()

    def resume_writing(self) -> None:
        self.other._is_other_full = False
        self.other._update_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self._connection.lose(self)


def find_client_id(received: bytes | bytearray) -> str | None:
    """Return the client id of a connection's first request, empty if it has none; None if too little is received."""
    start = _BEFORE_LENGTH + _LENGTH.size
    if len(received) < start:
        return None
    (length,) = _LENGTH.unpack_from(received, _BEFORE_LENGTH)
    if length <= 0:
        return ""
    if len(received) < start + length:
        return None
    return bytes(received[start : start + length]).decode(errors="replace")
