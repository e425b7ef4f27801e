"""What is on its way to a client: bytes and ranges of files, sent in order.

Below `SENDFILE_BYTES` it is quicker to read a range of a file and send it with its header than to make two calls of it
(`python -m benchmarks loops` has the figures); larger ranges go from the file to the socket by `sendfile`.
"""

from __future__ import annotations

import os
import socket
from typing import Final, Protocol

SENDFILE_BYTES: Final = 32 * 1024
SEND_BYTES: Final = 256 * 1024  # also what a client that does not read can make us hold of a file


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


Part = bytes | FilePart
Reply = list[Part]


class Outbox:
    """The unsent parts of one connection."""

    __slots__ = ("_fd", "_socket", "parts")

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._fd = sock.fileno()
        self.parts: list[Part] = []

    @property
    def size_bytes(self) -> int:
        return sum(len(part) if isinstance(part, bytes) else part.length for part in self.parts)

    def flush(self) -> bool:
        """Send as much as the socket takes; whether that was all. Raises OSError when the connection is broken."""
        parts = self.parts
        try:
            while parts:
                first = parts[0]
                if isinstance(first, bytes) or first.length < SENDFILE_BYTES:
                    self._send_bytes()
                else:
                    self._send_file(first)
        except BlockingIOError:
            return False
        return True

    def _send_bytes(self) -> None:
        """Send the leading parts that are bytes, or short enough to be read, in one call."""
        parts = self.parts
        if len(parts) == 1 and isinstance(parts[0], bytes):
            data, count, flags = parts[0], 1, 0
        else:
            data, count, flags = self._gather()
        sent = self._socket.send(data, flags)
        if sent == len(data):
            del parts[:count]
        else:
            parts[:count] = [data[sent:]]

    def _gather(self) -> tuple[bytes, int, int]:
        """The bytes of the leading parts, how many parts that are, and the flags to send them with."""
        gathered: list[bytes] = []
        total = 0
        for part in self.parts:
            if isinstance(part, bytes):
                gathered.append(part)
            elif part.length < SENDFILE_BYTES:
                gathered.append(part.file.read(part.position, part.length))
            else:
                return b"".join(gathered), len(gathered), socket.MSG_MORE
            total += len(gathered[-1])
            if total > SEND_BYTES:
                break
        return b"".join(gathered), len(gathered), 0

    def _send_file(self, part: FilePart) -> None:
        sent = os.sendfile(self._fd, part.file.fileno(), part.position, part.length)
        if sent == part.length:
            del self.parts[0]
        elif sent:
            self.parts[0] = _Rest(part.file, part.position + sent, part.length - sent)
        else:
            raise OSError("a file ended before the range that was to be sent")


class _Rest:
    """What is left of a file part."""

    __slots__ = ("file", "length", "position")

    def __init__(self, file: File, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = length
