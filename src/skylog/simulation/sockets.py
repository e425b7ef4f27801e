"""The ends of simulated connections: sockets as `skylog.net` uses them, and transports as asyncio does."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from skylog.simulation.process import Process
from skylog.simulation.trace import FrameReader

if TYPE_CHECKING:
    from skylog.simulation.loop import VirtualLoop
    from skylog.simulation.network import Network

WINDOW_BYTES: Final = 256 * 1024

Watcher = Callable[[], object]


class _Watched:
    """Calls a watcher in its process again and again, while there is something to do for it."""

    def __init__(self, loop: VirtualLoop, process: Process, is_due: Callable[[], bool]) -> None:
        self._loop = loop
        self._process = process
        self._is_due = is_due
        self._watcher: Watcher | None = None
        self._is_scheduled = False

    def set(self, watcher: Watcher | None) -> bool:
        had_one, self._watcher = self._watcher is not None, watcher
        self.check()
        return had_one

    def check(self) -> None:
        if self._watcher is not None and not self._is_scheduled and self._is_due():
            self._is_scheduled = True
            self._loop.call_soon(self._call, context=self._process.context)

    def _call(self) -> None:
        self._is_scheduled = False
        if self._watcher is not None and self._is_due():
            self._watcher()
            self.check()


class ListeningSocket:
    """A socket that accepts connections."""

    def __init__(self, network: Network, process: Process) -> None:
        self.host = process.host
        self.process = process
        self.port = 0
        self._network = network
        self._descriptor = network.new_descriptor()
        self._backlog: deque[TcpSocket] = deque()
        self._input = _Watched(network.loop, process, lambda: bool(self._backlog))

    def fileno(self) -> int:
        return self._descriptor

    def setsockopt(self, *_: object) -> None:
        """Do nothing: there are no options."""

    def setblocking(self, _: bool) -> None:
        """Do nothing: nothing blocks."""

    def bind(self, address: tuple[Any, ...]) -> None:
        self.port = address[1]
        self._network.bind(self, self.port)

    def listen(self, _: int) -> None:
        """Do nothing: connections are accepted from `bind` on."""

    def getsockname(self) -> tuple[str, int]:
        return self.host, self.port

    def offer(self, sock: TcpSocket) -> None:
        self._backlog.append(sock)
        self._input.check()

    def accept(self) -> tuple[TcpSocket, tuple[str, int]]:
        if not self._backlog:
            raise BlockingIOError
        sock = self._backlog.popleft()
        return sock, (sock.peer_host, sock.peer_port)

    def watch_input(self, watcher: Watcher | None) -> bool:
        return self._input.set(watcher)

    def watch_output(self, watcher: Watcher | None) -> bool:
        raise AssertionError("a listening socket has no output")

    def close(self) -> None:
        self._network.unbind(self)
        while self._backlog:
            self._backlog.popleft().break_off()


class TcpSocket:
    """One end of a connection. `other` is the far end; its bytes arrive after the network's delay."""

    other: TcpSocket

    def __init__(
        self, network: Network, process: Process, host: str, port: int, peer_host: str, peer_port: int
    ) -> None:
        self.process = process
        self.host, self.port = host, port
        self.peer_host, self.peer_port = peer_host, peer_port
        self.arrived_at = 0.0  # when what was sent last arrives
        self._network = network
        self._descriptor = network.new_descriptor()
        self._received = bytearray()
        self._unread_bytes = 0  # sent from here, and not read by the other end yet
        self._has_ended = self._is_broken = self._is_closed = False
        self._input = _Watched(network.loop, process, self._has_input)
        self._output = _Watched(network.loop, process, self._has_room)
        self._frames = FrameReader(network.trace, self)

    def fileno(self) -> int:
        return self._descriptor

    # -- options that listeners set

    def setblocking(self, _: bool) -> None:
        """Do nothing: no call blocks."""

    def setsockopt(self, *_: object) -> None:
        """Do nothing: there are no options."""

    def getsockopt(self, *_: object) -> int:
        return int(self._is_broken)

    def getsockname(self) -> tuple[str, int]:
        return self.host, self.port

    # -- bytes

    def send(self, data: bytes | bytearray | memoryview, _: int = 0) -> int:
        self._check()
        room = WINDOW_BYTES - self._unread_bytes
        if room <= 0 or self._network.is_stalled(self.host, self.peer_host):
            raise BlockingIOError
        sent = bytes(data[:room])
        self._unread_bytes += len(sent)
        self._frames.sent(sent)
        self._transmit(lambda: self.other._arrived(sent), self._network.held_s(self.host, sent))
        return len(sent)

    def recv_into(self, buffer: memoryview) -> int:
        data = self.receive(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def receive(self, at_most: int) -> bytes:
        """Return received bytes, none at the end of the connection. Raises BlockingIOError and ConnectionError."""
        if self._received:
            data = bytes(self._received[:at_most])
            del self._received[:at_most]
            self.other._unread_bytes -= len(data)
            self.other._output.check()
            return data
        self._check()
        if self._has_ended:
            return b""
        raise BlockingIOError

    def _check(self) -> None:
        if self._is_broken:
            raise ConnectionResetError(104, f"{self.peer_host} has reset the connection")
        if self._is_closed:
            raise OSError(9, "the socket is closed")

    def watch_input(self, watcher: Watcher | None) -> bool:
        return self._input.set(watcher)

    def watch_output(self, watcher: Watcher | None) -> bool:
        return self._output.set(watcher)

    def _has_input(self) -> bool:
        return bool(self._received) or self._has_ended or self._is_broken

    def _has_room(self) -> bool:
        has_room = self._unread_bytes < WINDOW_BYTES and not self._network.is_stalled(self.host, self.peer_host)
        return has_room or self._is_broken

    def check_room(self) -> None:
        """Send on if there is room again."""
        self._output.check()

    # -- the network

    def _transmit(self, deliver: Callable[[], None], held_s: float = 0.0) -> None:
        self.arrived_at = self._network.transmit(self.host, self.peer_host, deliver, self.arrived_at, held_s)

    def _is_known(self) -> bool:
        """Whether the host still has this socket. Otherwise it resets the connection when something arrives."""
        if self._descriptor in self._network.sockets:
            return True
        self._network.transmit(self.host, self.peer_host, self.other._reset)
        return False

    def _arrived(self, data: bytes) -> None:
        if self._is_known():
            self._received += data
            self._input.check()

    def _ended(self) -> None:
        if self._is_known():
            self._has_ended = True
            self._input.check()

    def _reset(self) -> None:
        if self._descriptor in self._network.sockets:
            self._is_broken = True
            self._received.clear()
            self._input.check()
            self._output.check()

    def break_off(self) -> None:
        """Reset the connection at both ends."""
        self._reset()
        self._transmit(self.other._reset)

    def close(self) -> None:
        """Close this end. The other one gets what was sent before, then the end; a reset if something was not read."""
        if self._is_closed:
            return
        self._is_closed = True
        self._network.unbind(self)
        self._transmit(self.other._reset if self._received else self.other._ended)


class StreamTransport(asyncio.Transport):
    """A connection as asyncio's protocols see it."""

    def __init__(self, loop: VirtualLoop, sock: TcpSocket, protocol: Any) -> None:
        super().__init__({"peername": (sock.peer_host, sock.peer_port), "sockname": sock.getsockname()})
        self._loop = loop
        self._sock = sock
        self._protocol = protocol
        self._unsent = bytearray()
        self._is_closing = False
        self._protocol.connection_made(self)
        sock.watch_input(self._receive)

    def get_protocol(self) -> Any:
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def is_closing(self) -> bool:
        return self._is_closing

    def is_reading(self) -> bool:
        return not self._is_closing

    def pause_reading(self) -> None:
        self._sock.watch_input(None)

    def resume_reading(self) -> None:
        if not self._is_closing:
            self._sock.watch_input(self._receive)

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def write(self, data: Any) -> None:
        if not self._is_closing:
            self._unsent += data
            self._flush()

    def _flush(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: self._sock.send(self._unsent)]
            self._sock.watch_output(None)
        except BlockingIOError:
            self._sock.watch_output(self._flush)
        except OSError as error:
            self._lose(error)

    def _receive(self) -> None:
        try:
            data = self._sock.receive(WINDOW_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(error)
            return
        if not data:
            self._protocol.eof_received()
            self._lose(None)
        elif isinstance(self._protocol, asyncio.BufferedProtocol):
            self._fill(self._protocol, data)
        else:
            self._protocol.data_received(data)

    def _fill(self, protocol: asyncio.BufferedProtocol, data: bytes) -> None:
        position = 0
        while position < len(data) and not self._is_closing:
            buffer = cast(memoryview, protocol.get_buffer(len(data) - position))
            count = min(len(buffer), len(data) - position)
            buffer[:count] = data[position : position + count]
            position += count
            protocol.buffer_updated(count)

    def close(self) -> None:
        self._lose(None)

    def abort(self) -> None:
        self._lose(None)

    def _lose(self, error: Exception | None) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._sock.watch_input(None)
            self._sock.watch_output(None)
            self._sock.close()
            self._loop.call_soon(self._protocol.connection_lost, error)


class StreamServer:
    """What `create_server` returns, as far as `asyncio.start_server` and its callers use it."""

    def __init__(self, loop: VirtualLoop, listening: ListeningSocket, protocol_factory: Callable[[], Any]) -> None:
        self._loop = loop
        self._listening = listening
        self._protocol_factory = protocol_factory
        self.sockets = [listening]
        listening.watch_input(self._accept)

    def _accept(self) -> None:
        sock, _ = self._listening.accept()
        StreamTransport(self._loop, sock, self._protocol_factory())

    def close(self) -> None:
        self._listening.close()
