"""A listener on a thread of its own, with any handler, and clients that speak in bytes."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Self

import uvloop

from skylog.net import Connection, FrameHandler, Listener, NetConfig, PendingReply, Reply
from tests.patience import patience

Handler = Callable[[Connection, memoryview], Reply | PendingReply | None]


class HandlerSession:
    """A session that hands each frame to a handler, with the connection it came from."""

    shortcut = None

    def __init__(self, handler: Handler, connection: Connection) -> None:
        self.handle: FrameHandler = partial(handler, connection)

    def close(self) -> None:
        del self.handle


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


class NetServer:
    """A `Listener` whose handler runs on the server's thread."""

    def __init__(self, handler: Handler, **config: Any) -> None:
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="net")
        self.listener = Listener(NetConfig(**config), partial(HandlerSession, handler))
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self.port = self.run(self.listener.start("127.0.0.1", 0))
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self.listener.stop(0.0))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(patience(30))

    def do(self, action: Callable[[], Any]) -> Any:
        """Call `action` on the server's thread and return its result."""

        async def act() -> Any:
            return action()

        return self.run(act())


class Client:
    """A socket that sends bytes and reads frames."""

    def __init__(self, server: NetServer, receive_buffer_bytes: int = 0) -> None:
        self.socket = socket.socket()
        if receive_buffer_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(patience(20))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.connect(("127.0.0.1", server.port))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, *bodies: bytes) -> None:
        """Whole frames, in one piece."""
        self.socket.sendall(b"".join(map(framed, bodies)))

    def receive(self) -> bytes:
        (length,) = struct.unpack(">i", self._read(4))
        return self._read(length)

    def ask(self, body: bytes) -> bytes:
        self.send(body)
        return self.receive()

    def _read(self, length: int) -> bytes:
        data = bytearray()
        while len(data) < length:
            more = self.socket.recv(length - len(data))
            if not more:
                raise ConnectionError("closed")
            data += more
        return bytes(data)

    def is_closed(self) -> bool:
        """Whether the server closes the connection. Bytes that it sends before are dropped."""
        try:
            while self.socket.recv(65536):
                pass
        except TimeoutError:
            return False
        except ConnectionError:
            return True
        return True

    def is_silent(self, seconds: float) -> bool:
        """Whether nothing is received for that long."""
        before = self.socket.gettimeout()
        self.socket.settimeout(seconds)
        try:
            return not self.socket.recv(1, socket.MSG_PEEK) and False
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(before)
