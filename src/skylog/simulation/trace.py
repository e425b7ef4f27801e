"""The trace of a run: one line per event, in the order of virtual time, and a checksum of all of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from skylog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from skylog.simulation.sockets import TcpSocket

STORE_PORT: Final = 2181
_SHOWN_BYTES: Final = 240
_API_NAMES: Final = {int(key): key.name for key in ApiKey}


class Trace:
    """Collects lines. `digest` is the same for two runs if and only if all their lines are."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._hash = hashlib.blake2b(digest_size=8)
        self.lines: list[str] = []

    def add(self, who: str, what: str) -> None:
        line = f"{self._now():12.6f} {who:<10} {what}"
        self._hash.update(line.encode())
        self.lines.append(line)

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()


class FrameReader:
    """Finds the frames in the bytes that one end of a connection sends, and adds a line for each."""

    __slots__ = ("_head", "_left", "_sock", "_trace")

    def __init__(self, trace: Trace, sock: TcpSocket) -> None:
        self._trace = trace
        self._sock = sock
        self._head = b""
        self._left = 0

    def sent(self, data: bytes) -> None:
        if self._left >= len(data):
            self._left -= len(data)
            return
        data = self._head + data[self._left :]
        self._left, position = 0, 0
        while len(data) - position >= 4:
            size = int.from_bytes(data[position : position + 4], "big")
            self._describe(data[position + 4 : position + 4 + min(size, _SHOWN_BYTES)], size)
            position += 4 + size
        self._left = max(position - len(data), 0)
        self._head = data[position:]

    def _describe(self, frame: bytes, size: int) -> None:
        sock = self._sock
        if STORE_PORT in (sock.port, sock.peer_port):
            what = frame.decode(errors="replace")
        elif sock.port >= 40_000:
            key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
            what = f"{_API_NAMES.get(key, key)} v{version} #{int.from_bytes(frame[4:8], 'big')}"
        else:
            what = f"answer to #{int.from_bytes(frame[:4], 'big')}"
        port = sock.port if sock.port >= 40_000 else sock.peer_port
        self._trace.add(sock.host, f"→ {sock.peer_host} ({port}) {what}, {size} bytes")
