"""What is on its way to a client: bytes and ranges of files, sent in order.

Below `SENDFILE_BYTES` it is quicker to read a range of a file and send it with its header than to make two calls of it
(`python -m benchmarks loops` has the figures); larger ranges go from the file to the socket by `sendfile`.

No byte is copied twice on its way: what a socket has not taken stays where it is, as a view, and a large part is never
joined with its neighbours. So an answer costs work in proportion to its size, however slowly the client reads it.
"""

from __future__ import annotations

import os
import socket
from typing import Final, Protocol

SENDFILE_BYTES: Final = 32 * 1024
SEND_BYTES: Final = 256 * 1024  # also what a client that does not read can make us hold of a file
TURN_BYTES: Final = 8 * 1024 * 1024  # then it is the turn of the other connections, even if the client reads as fast


class File(Protocol):
    def fileno(self) -> int: ...

    def read(self, position: int, length: int) -> bytes: ...


class FilePart(Protocol):
    """A range of a file, to be sent as part of a reply."""

    @property
    def file(self) -> File: ...

    @property
    def position(self) -> int: ...

    @property
    def length(self) -> int: ...


Part = bytes | bytearray | memoryview | FilePart
"""A part belongs to the outbox once it is in it: a bytearray must not change any more."""

Reply = list[Part]

_IN_MEMORY: Final = (bytes, bytearray, memoryview)


class Outbox:
    """The unsent parts of one connection."""

    __slots__ = ("_fd", "_socket", "parts")

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._fd = sock.fileno()
        self.parts: list[Part] = []

    @property
    def size_bytes(self) -> int:
        return sum(len(part) if isinstance(part, _IN_MEMORY) else part.length for part in self.parts)

    def flush(self) -> bool:
        """Send as much as the socket takes in one turn; whether that was all.

        Raises OSError when the connection is broken.
        """
        parts = self.parts
        sent_bytes = 0
        try:
            while parts:
                first = parts[0]
                if isinstance(first, _IN_MEMORY) or first.length < SENDFILE_BYTES:
                    sent_bytes += self._send_bytes()
                else:
                    sent_bytes += self._send_file(first, TURN_BYTES - sent_bytes)
                if sent_bytes >= TURN_BYTES:
                    return not parts
        except BlockingIOError:
            return False
        return True

    def _send_bytes(self) -> int:
        """Send the leading parts that are bytes, or short enough to be read, in one call; how much of them went."""
        parts = self.parts
        first = parts[0]
        data: bytes | bytearray | memoryview
        if isinstance(first, _IN_MEMORY) and (
            len(parts) == 1 or isinstance(first, memoryview) or len(first) >= SEND_BYTES
        ):
            data, count, flags = first, 1, 0 if len(parts) == 1 else socket.MSG_MORE
        else:
            data, count, flags = self._gather()
        # One call goes on for as long as the client reads: it gets no more than the turn allows.
        sent = self._socket.send(data if len(data) <= TURN_BYTES else memoryview(data)[:TURN_BYTES], flags)
        if sent == len(data):
            del parts[:count]
        else:
            parts[:count] = [memoryview(data)[sent:]]
        return sent

    def _gather(self) -> tuple[bytes, int, int]:
        """The bytes of the leading parts, how many parts that are, and the flags to send them with."""
        gathered: list[bytes | bytearray | memoryview] = []
        total = 0
        for part in self.parts:
            if isinstance(part, _IN_MEMORY):
                if len(part) >= SEND_BYTES:
                    return b"".join(gathered), len(gathered), socket.MSG_MORE
                gathered.append(part)
            elif part.length < SENDFILE_BYTES:
                gathered.append(part.file.read(part.position, part.length))
            else:
                return b"".join(gathered), len(gathered), socket.MSG_MORE
            total += len(gathered[-1])
            if total > SEND_BYTES:
                break
        return b"".join(gathered), len(gathered), 0

    def _send_file(self, part: FilePart, at_most: int) -> int:
        sent = os.sendfile(self._fd, part.file.fileno(), part.position, min(part.length, at_most))
        if sent == part.length:
            del self.parts[0]
        elif sent:
            self.parts[0] = _Rest(part.file, part.position + sent, part.length - sent)
        else:
            raise OSError("a file ended before the range that was to be sent")
        return sent


class _Rest:
    """What is left of a file part."""

    __slots__ = ("file", "length", "position")

    def __init__(self, file: File, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = length
