"""Unsent output of a connection: bytes and ranges of files, sent in order.

Up to `JOINED_BYTES` it is quicker to read a range of a file and send it with its header than to make two system calls
(`python -m benchmarks loops` has the figures). Up to `COPIED_BYTES` it still is, if the range is sent from where it was
read to, together with the bytes around it (`sendmsg`): `sendfile` works page by page, and its receiver often wakes up
several times. Larger ranges go through the transport's `send_file`, and so does what a client does not accept at once.

No byte is copied twice: data that the socket does not accept stays where it is, as a view, and a large part is never
joined with its neighbours. So the work for a response is proportional to its size, however slowly the client reads it.
"""

from __future__ import annotations

import socket
from typing import Final, Protocol

from skylog.net.transport import Transport

MSG_MORE: Final[int] = getattr(socket, "MSG_MORE", 0)  # only Linux has it
JOINED_BYTES: Final = 32 * 1024
COPIED_BYTES: Final = 256 * 1024
_AROUND: Final = 4  # parts that are sent with a copied range
SEND_BYTES: Final = 256 * 1024  # also limits the file content held in memory for a client that does not read
TURN_BYTES: Final = 8 * 1024 * 1024  # after this much, other connections are served, even if the client keeps reading


class File(Protocol):
    def fileno(self) -> int: ...

    def read(self, position: int, length: int) -> bytes: ...


class FilePart(Protocol):
    """A range of a file, sent as part of a reply."""

    @property
    def file(self) -> File: ...

    @property
    def position(self) -> int: ...

    @property
    def length(self) -> int: ...


Part = bytes | bytearray | memoryview | FilePart
"""The outbox owns its parts: a queued bytearray must not change."""

Reply = list[Part]

_IN_MEMORY: Final = (bytes, bytearray, memoryview)


class Outbox:
    """The unsent parts of one connection."""

    __slots__ = ("_send", "_send_parts", "_transport", "parts")

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._send = transport.send
        self._send_parts = transport.send_parts
        self.parts: list[Part] = []

    @property
    def size_bytes(self) -> int:
        return sum(len(part) if isinstance(part, _IN_MEMORY) else part.length for part in self.parts)

    def flush(self) -> bool:
        """Send as much as the socket accepts in one turn. Return whether everything was sent.

        Raises OSError if the connection is broken.
        """
        parts = self.parts
        sent_bytes = 0
        try:
            while parts:
                first = parts[0]
                if isinstance(first, _IN_MEMORY) or first.length < JOINED_BYTES:
                    sent_bytes += self._send_bytes()
                elif self._is_copied(first):
                    sent_bytes += self._send_copied(0, first)
                else:
                    sent_bytes += self._send_file(first, TURN_BYTES - sent_bytes)
                if sent_bytes >= TURN_BYTES:
                    return not parts
        except BlockingIOError:
            return False
        return True

    def _send_bytes(self) -> int:
        """Send the leading bytes and short file ranges in one call. Return the number of bytes sent."""
        parts = self.parts
        first = parts[0]
        data: bytes | bytearray | memoryview
        if isinstance(first, _IN_MEMORY) and (
            len(parts) == 1 or isinstance(first, memoryview) or len(first) >= SEND_BYTES
        ):
            data, count, flags = first, 1, 0 if len(parts) == 1 else MSG_MORE
        else:
            data, count, flags = self._gather()
            if not count:
                return self._send_copied(*self._next_range())
        # One call goes on for as long as the client reads: it gets no more than the turn allows.
        sent = self._send(data if len(data) <= TURN_BYTES else memoryview(data)[:TURN_BYTES], flags)
        if sent == len(data):
            del parts[:count]
        else:
            parts[:count] = [memoryview(data)[sent:]]
        return sent

    def _gather(self) -> tuple[bytes, int, int]:
        """Return the bytes of the leading parts, the number of parts, and the flags to send them with.

        The number is 0 if a range comes next that is copied, with the bytes before it.
        """
        gathered: list[bytes | bytearray | memoryview] = []
        total = 0
        for part in self.parts:
            if isinstance(part, _IN_MEMORY):
                if len(part) >= SEND_BYTES:
                    return b"".join(gathered), len(gathered), MSG_MORE
                gathered.append(part)
            elif part.length < JOINED_BYTES:
                gathered.append(part.file.read(part.position, part.length))
                if len(gathered[-1]) < part.length:
                    raise OSError("the file ends before the range to send")
            elif self._is_copied(part) and len(gathered) < _AROUND and self._next_range()[1] is part:
                return b"", 0, 0
            else:
                return b"".join(gathered), len(gathered), MSG_MORE
            total += len(gathered[-1])
            if total > SEND_BYTES:
                break
        return b"".join(gathered), len(gathered), 0

    def _is_copied(self, part: FilePart) -> bool:
        """Whether a range is read and sent, unless it is shorter than JOINED_BYTES."""
        return part.length <= COPIED_BYTES and self._send_parts is not None and type(part) is not _Rest

    def _next_range(self) -> tuple[int, FilePart]:
        """Return the first range of a file among the parts, and its index."""
        return next((index, part) for index, part in enumerate(self.parts) if not isinstance(part, _IN_MEMORY))

    def _send_copied(self, index: int, part: FilePart) -> int:
        """Read a range, and send it with the bytes before and after it. Return the number of bytes sent.

        It is read only once: what the client does not accept now is sent by `sendfile`.
        """
        parts, send_parts = self.parts, self._send_parts
        assert send_parts is not None
        data = part.file.read(part.position, part.length)
        if len(data) < part.length:
            raise OSError("the file ends before the range to send")
        parts[index] = _Rest(part.file, part.position, part.length)
        buffers: list[bytes | bytearray | memoryview] = []
        for number, each in enumerate(parts[: index + _AROUND]):
            if number == index:
                buffers.append(data)
            elif isinstance(each, _IN_MEMORY) and (number < index or len(each) <= JOINED_BYTES):
                buffers.append(each)
            else:
                break
        sent = send_parts(buffers, (), MSG_MORE if len(buffers) < len(parts) else 0)
        self._drop(sent)
        return sent

    def _drop(self, sent: int) -> None:
        """Drop the bytes that were sent from the leading parts."""
        parts, whole = self.parts, 0
        for part in parts:
            length = len(part) if isinstance(part, _IN_MEMORY) else part.length
            if sent < length:
                break
            sent -= length
            whole += 1
        del parts[:whole]
        if sent:
            first = parts[0]
            if isinstance(first, _IN_MEMORY):
                parts[0] = memoryview(first)[sent:]
            else:
                parts[0] = _Rest(first.file, first.position + sent, first.length - sent)

    def _send_file(self, part: FilePart, at_most: int) -> int:
        sent = self._transport.send_file(part.file.fileno(), part.position, min(part.length, at_most))
        if sent == part.length:
            del self.parts[0]
        elif sent:
            self.parts[0] = _Rest(part.file, part.position + sent, part.length - sent)
        else:
            raise OSError("the file ends before the range to send")
        return sent


class _Rest:
    """The unsent rest of a file part."""

    __slots__ = ("file", "length", "position")

    def __init__(self, file: File, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = length
