"""One client's connection: frames in, replies out, in the order of the requests.

A frame is a big-endian int32 length and that many bytes. The handler is called with a view of each frame; the view
is valid during that call only, because small frames lie in a buffer that all connections share. It answers with

* a `Reply`: the parts of the response, sent in order. A `FilePart` is sent from its file by `sendfile`;
* a `PendingReply`, to be resolved later. Until then no further frame of this connection is handled, unless the
  reply is `pipelined`; replies always leave in the order of their requests;
* None: there is nothing to answer.

Memory stays bounded whatever a client does: a frame that comes in pieces and is not small needs a grant of the budget
before it is read on, and a client that does not read its replies is not read from either.
"""

from __future__ import annotations

import logging
import os
import socket
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Any, Final, Protocol

from skylog.errors import MalformedRequestError
from skylog.net.budget import MemoryBudget

logger = logging.getLogger(__name__)

MAX_PIPELINED: Final = 64
UNGRANTED_BYTES: Final = 16 * 1024
MAX_UNSENT_BYTES: Final = 4 * 1024 * 1024
# Below this size it is quicker to read a file range and send it with its header than to make two calls of it:
# measured by `python -m benchmarks loops`.
SENDFILE_BYTES: Final = 32 * 1024
_LENGTH = Struct(">i")


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


class PendingReply:
    """A reply that is not known yet. `resolve` it once, from the event loop's thread.

    `on_cancel` is called where the client leaves first.
    """

    __slots__ = ("_connection", "on_cancel", "pipelined", "reply", "resolved")

    def __init__(
        self, connection: Connection, *, pipelined: bool = False, on_cancel: Callable[[], None] | None = None
    ) -> None:
        self._connection = connection
        self.on_cancel = on_cancel
        self.pipelined = pipelined
        self.resolved = False
        self.reply: Reply | None = None

    def resolve(self, reply: Reply | None) -> None:
        self.reply = reply
        self.resolved = True
        self._connection.advance()

    def abort(self) -> None:
        """There will be no reply: close the connection."""
        self._connection.close()


Handler = Callable[["Connection", memoryview], Reply | PendingReply | None]


class Connection:
    """A socket with its unfinished input and unsent output. Made by the listener; lives on the event loop's thread."""

    __slots__ = (
        "_backlog",
        "_budget",
        "_fd",
        "_filled",
        "_frame",
        "_granted_bytes",
        "_handler",
        "_loop",
        "_max_frame_bytes",
        "_on_close",
        "_out",
        "_reading",
        "_scratch",
        "_socket",
        "_unsent_bytes",
        "_waiting",
        "_writing",
        "closed",
        "last_activity",
        "peer",
        "state",
    )

    def __init__(
        self,
        sock: socket.socket,
        peer: str,
        loop: AbstractEventLoop,
        handler: Handler,
        *,
        scratch: memoryview,
        budget: MemoryBudget,
        max_frame_bytes: int,
        on_close: Callable[[Connection], None],
    ) -> None:
        self.peer = peer
        self.closed = False
        self.last_activity = 0.0
        self.state: Any = None  # what the handler wants to remember of this client
        self._socket = sock
        self._fd = sock.fileno()
        self._loop = loop
        self._handler = handler
        self._scratch = scratch
        self._budget = budget
        self._max_frame_bytes = max_frame_bytes
        self._on_close = on_close
        self._frame: bytearray | None = None  # a frame, or its length, of which only the first part has come
        self._filled = 0
        self._granted_bytes = 0
        self._backlog: bytes | None = None  # received, but not handled while an earlier reply is pending
        self._waiting: deque[PendingReply] = deque()
        self._out: list[Part] = []
        self._unsent_bytes = 0
        self._reading = True
        self._writing = False
        loop.add_reader(self._fd, self._on_readable)

    @property
    def local_address(self) -> tuple[str, int]:
        """Host and port at which the client has reached us."""
        host, port = self._socket.getsockname()[:2]
        return host, port

    # -- input

    def _on_readable(self) -> None:
        try:
            if self._frame is None:
                count = self._socket.recv_into(self._scratch)
                if count:
                    self.last_activity = self._loop.time()
                    self._handle_frames(self._scratch, count)
                else:
                    self.close()
                    return
            elif not self._fill_frame():
                return
        except BlockingIOError:
            return
        except MalformedRequestError as error:
            logger.warning("closing the connection of %s: %s", self.peer, error)
            self.close()
            return
        except OSError as error:
            logger.debug("connection of %s broke: %s", self.peer, error)
            self.close()
            return
        if self._out and not self._writing:
            self._flush()
        self._adjust_reading()

    def _handle_frames(self, view: memoryview, end: int) -> None:
        """Handle the whole frames among the first `end` bytes of `view` and keep the beginning of another."""
        position = 0
        while end - position >= 4:
            (length,) = _LENGTH.unpack_from(view, position)
            if length < 0 or length > self._max_frame_bytes:
                raise MalformedRequestError(
                    f"frame of {length} bytes; socket.request.max.bytes={self._max_frame_bytes}"
                )
            start, position = position + 4, position + 4 + length
            if position > end:
                self._begin_frame(view[start:end], length)
                return
            self._handle(view[start:position])
            if self._waiting and self._is_blocked():
                if position < end:
                    self._backlog = bytes(view[position:end])
                return
        if position < end:
            self._frame = bytearray(4)
            self._frame[: end - position] = view[position:end]
            self._filled = position - end  # negative: these are bytes of the length, not yet of the frame

    def _begin_frame(self, start: memoryview, length: int) -> None:
        """Keep the first bytes of a frame and wait for the rest; first for the memory, if it is a large one."""
        self._filled = len(start)
        if length <= UNGRANTED_BYTES:
            self._frame = bytearray(length)
            self._frame[: self._filled] = start
            return
        kept = bytes(start)

        def granted() -> None:
            self._granted_bytes = length
            if self.closed:
                self._give_back()
                return
            self._frame = bytearray(length)
            self._frame[: self._filled] = kept
            self._adjust_reading()

        if self._budget.acquire(length, granted):
            granted()
        else:
            self._frame = bytearray()  # nothing may be read until the grant
            self._adjust_reading()

    def _fill_frame(self) -> bool:
        """Read more of the frame that has begun; whether something was handled."""
        frame = self._frame
        assert frame is not None
        if self._filled < 0:  # the length itself is still incomplete
            have = -self._filled
            count = self._socket.recv_into(memoryview(frame)[have:4])
            if not count:
                self.close()
            elif have + count < 4:
                self._filled -= count
            else:
                self._frame = None
                self._handle_frames(memoryview(frame), 4)
                return self._frame is None
            return False
        count = self._socket.recv_into(memoryview(frame)[self._filled :])
        if not count:
            self.close()
            return False
        self.last_activity = self._loop.time()
        self._filled += count
        if self._filled < len(frame):
            return False
        self._frame = None
        try:
            self._handle(memoryview(frame))
        finally:
            self._give_back()
        return True

    def _give_back(self) -> None:
        if self._granted_bytes:
            granted, self._granted_bytes = self._granted_bytes, 0
            self._budget.release(granted)

    def _handle(self, frame: memoryview) -> None:
        reply = self._handler(self, frame)
        if reply is None:
            return
        if type(reply) is list and not self._waiting:
            self._out += reply
        elif isinstance(reply, PendingReply):
            self._waiting.append(reply)
        else:
            behind = PendingReply(self, pipelined=True)
            behind.reply, behind.resolved = reply, True
            self._waiting.append(behind)

    def _is_blocked(self) -> bool:
        """Whether the next frame has to wait for a reply."""
        return bool(self._waiting) and (not self._waiting[-1].pipelined or len(self._waiting) >= MAX_PIPELINED)

    def advance(self) -> None:
        """Send what has been resolved, up to the first reply that is not, and handle what waited for it."""
        if self.closed:
            return
        while self._waiting and self._waiting[0].resolved:
            reply = self._waiting.popleft().reply
            if reply is not None:
                self._out += reply
        if self._out and not self._writing:
            self._flush()
        if self._backlog is not None and not self._is_blocked() and not self.closed:
            backlog, self._backlog = self._backlog, None
            try:
                self._handle_frames(memoryview(bytearray(backlog)), len(backlog))
            except MalformedRequestError as error:
                logger.warning("closing the connection of %s: %s", self.peer, error)
                self.close()
            if self._out and not self._writing:
                self._flush()
        self._adjust_reading()

    def _adjust_reading(self) -> None:
        """Read from the socket exactly while there is room for what may come."""
        if self.closed:
            return
        may_read = (
            self._unsent_bytes <= MAX_UNSENT_BYTES
            and not (self._waiting and self._is_blocked())
            and (self._frame is None or len(self._frame) > 0)
        )
        if may_read != self._reading:
            self._reading = may_read
            if may_read:
                self._loop.add_reader(self._fd, self._on_readable)
            else:
                self._loop.remove_reader(self._fd)

    # -- output

    def _flush(self) -> None:
        """Send as much as the socket takes; the rest when it takes more."""
        out = self._out
        try:
            while out:
                if type(out[0]) is bytes:
                    if not self._send_bytes(out):
                        break
                elif not self._send_file(out, out[0]):  # type: ignore[arg-type]  # the other kind of part
                    break
        except OSError as error:
            logger.debug("connection of %s broke: %s", self.peer, error)
            self.close()
            return
        if out:
            self._unsent_bytes = sum(len(part) if isinstance(part, bytes) else part.length for part in out)
            if not self._writing:
                self._writing = True
                self._loop.add_writer(self._fd, self._on_writable)
        elif self._unsent_bytes:
            self._unsent_bytes = 0

    def _send_bytes(self, out: list[Part]) -> bool:
        """Send the leading parts that are bytes, or are short enough to be read, in one call."""
        count, total, flags = 0, 0, 0
        gathered: list[bytes] = []
        for part in out:
            if isinstance(part, bytes):
                gathered.append(part)
            elif part.length < SENDFILE_BYTES:
                gathered.append(part.file.read(part.position, part.length))
            else:
                flags = socket.MSG_MORE
                break
            count += 1
            total += len(gathered[-1])
            if total > MAX_UNSENT_BYTES:
                break
        data = gathered[0] if count == 1 else b"".join(gathered)
        try:
            sent = self._socket.send(data, flags)
        except BlockingIOError:
            sent = 0
        if sent == len(data):
            del out[:count]
            return True
        out[:count] = [data[sent:]]
        return False

    def _send_file(self, out: list[Part], part: FilePart) -> bool:
        try:
            sent = os.sendfile(self._fd, part.file.fileno(), part.position, part.length)
        except BlockingIOError:
            return False
        if sent == part.length:
            del out[0]
            return True
        if not sent:
            raise OSError("file ended before its length")
        out[0] = _Rest(part.file, part.position + sent, part.length - sent)
        return True

    def _on_writable(self) -> None:
        self._flush()
        if not self._out and not self.closed:
            self._writing = False
            self._loop.remove_writer(self._fd)
            self._adjust_reading()

    # -- end

    @property
    def stalls_budget(self) -> bool:
        """Whether memory has been granted for a frame that has not come in full."""
        return bool(self._granted_bytes)

    @property
    def has_unfinished_work(self) -> bool:
        return bool(self._waiting or self._out or self._backlog)

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._loop.remove_reader(self._fd)
        if self._writing:
            self._loop.remove_writer(self._fd)
        self._socket.close()
        self._give_back()
        waiting, self._waiting = self._waiting, deque()
        for pending in waiting:
            if pending.on_cancel is not None and not pending.resolved:
                pending.on_cancel()
        self._out.clear()
        self._frame = self._backlog = None
        self._on_close(self)


class _Rest:
    """What is left of a file part."""

    __slots__ = ("file", "length", "position")

    def __init__(self, file: File, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = length
