"""How the bytes of a connection travel. Connections and outboxes use a transport, never a socket.

A transport never waits: a call that cannot go on raises BlockingIOError, and is repeated when the descriptor is ready.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from typing import Protocol

Buffer = bytes | bytearray | memoryview

SendParts = Callable[[Sequence[Buffer], tuple[()], int], int]
"""Sends some of the given buffers, with flags. It returns how many bytes."""


class Transport(Protocol):
    """One connection's bytes. Every call may raise OSError, which means that the connection is broken."""

    @property
    def has_pending(self) -> bool:
        """Whether bytes were received that `receive_into` has not returned yet. Nothing else will report them."""

    def fileno(self) -> int: ...

    def receive_into(self, buffer: memoryview, /) -> int:
        """Receive into `buffer` and return the number of bytes; 0 when the peer has closed the connection."""

    def send(self, data: Buffer, flags: int, /) -> int:
        """Send some of `data` and return how much. With MSG_MORE in `flags` the kernel may wait for a full packet."""

    @property
    def send_parts(self) -> SendParts | None:
        """Like `send`, for several buffers at once: the method `sendmsg` of a socket, None if there is none."""

    def send_file(self, descriptor: int, position: int, length: int) -> int:
        """Send some of a range of a file and return how much; 0 when the file ends before `position`."""

    def local_address(self) -> tuple[str, int]:
        """Return the host and port that the peer has connected to."""

    def is_broken(self) -> bool:
        """Whether an error has been reported that no call has raised yet."""

    def close(self) -> None: ...


class PlainTransport:
    """A TCP socket without encryption. `send_file` does not pass the data through Python."""

    __slots__ = ("_descriptor", "_socket", "receive_into", "send", "send_parts")

    has_pending = False

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._descriptor = sock.fileno()
        # The socket's own methods: there is a call of each for every few requests.
        self.receive_into: Callable[[memoryview], int] = sock.recv_into
        self.send: Callable[[Buffer, int], int] = sock.send
        self.send_parts: SendParts | None = getattr(sock, "sendmsg", None)

    def fileno(self) -> int:
        return self._descriptor

    def send_file(self, descriptor: int, position: int, length: int) -> int:
        return os.sendfile(self._descriptor, descriptor, position, length)

    def local_address(self) -> tuple[str, int]:
        host, port = self._socket.getsockname()[:2]
        return host, port

    def is_broken(self) -> bool:
        return self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0

    def close(self) -> None:
        self._socket.close()
