"""One client's connection: frames in, replies out, in the order of the requests.

A frame is a big-endian int32 length and that many bytes. The connection's handler gets each frame as a view, which is
valid during that call only, because small frames lie in a buffer that all connections share. It returns

* a `Reply`: the parts of the response, sent in order;
* a `PendingReply`, to be resolved later. Until then no further frame of this connection is handled, unless the
  reply is `pipelined`; replies always leave in the order of their requests;
* None: there is no response.

Memory stays bounded whatever a client does. The rest of a large frame is received only after the memory budget has
granted room for it, and a client that does not read its replies is not read from either. The socket is read in every
state except these:

| state | entered when | left when |
|---|---|---|
| no room (`_partial.is_waiting`) | a large frame begins and the budget is used up | the budget grants it |
| backlog (`_backlog`) | frames follow a blocking reply or `hold`, or a turn is full | it is resolved, the next turn |
| choked (`_writing`) | more than MAX_UNSENT_BYTES are unsent | the client has read enough of them |
| draining (`_is_draining`) | the broker stops | never: the connection is closed |
| closed (`closed`) | the client leaves, or `close` | never |
"""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from struct import Struct
from time import perf_counter
from typing import Final, Protocol

from skylog.errors import MalformedRequestError
from skylog.limited_logger import LimitedLogger
from skylog.net.budget import MemoryBudget
from skylog.net.buffers import FrameBuffers
from skylog.net.outbox import Outbox, Reply
from skylog.net.partial_frame import PartialFrame
from skylog.net.transport import Transport

logger = logging.getLogger(__name__)
limited_logger = LimitedLogger(logger)  # for lines that clients can cause

MAX_PIPELINED: Final = 64
FRAMES_AT_ONCE: Final = 32  # that a connection handles before the others get their turn,
TURN_SECONDS: Final = 0.01  # unless this time is up first
MAX_UNSENT_BYTES: Final = 4 * 1024 * 1024
_LENGTH = Struct(">i")


class PendingReply:
    """A reply that is not known yet. `resolve` it once, from the event loop's thread.

    `on_cancel` is called if the client leaves first, `on_resolve` when the reply is known.
    """

    __slots__ = ("_connection", "on_cancel", "on_resolve", "pipelined", "reply", "resolved")

    def __init__(
        self, connection: Connection, *, pipelined: bool = False, on_cancel: Callable[[], object] | None = None
    ) -> None:
        self._connection = connection
        self.on_cancel = on_cancel
        self.on_resolve: Callable[[], None] | None = None
        self.pipelined = pipelined
        self.resolved = False
        self.reply: Reply | None = None

    def resolve(self, reply: Reply | None) -> None:
        self.reply = reply
        self.resolved = True
        if self.on_resolve is not None:
            self.on_resolve()
        self.forget()
        self._connection.advance()

    def forget(self) -> None:
        """Drop the callbacks. They often refer to this object, so this breaks a reference cycle."""
        self.on_cancel = self.on_resolve = None

    def abort(self) -> None:
        """Close the connection instead of replying."""
        self._connection.close()

    def refuse(self, error: MalformedRequestError) -> None:
        """Close the connection because the request turned out to be malformed, and log why."""
        self._connection.refuse(error)


FrameHandler = Callable[[memoryview], Reply | PendingReply | None]

Shortcut = Callable[[memoryview, int, int, Reply], int]
"""Handles several frames of a known form at once. It gets the buffer, the position and end of the received bytes, and
the list to add replies to. It returns the position of the first frame that it leaves to the handler's `handle`."""


class ConnectionHandler(Protocol):
    """What the layer above keeps for one connection, and how it handles the connection's frames."""

    @property
    def handle(self) -> FrameHandler: ...

    @property
    def shortcut(self) -> Shortcut | None: ...

    def close(self) -> None:
        """Drop the references to the connection, which is closed."""


OpenHandler = Callable[["Connection"], ConnectionHandler]


@dataclass(frozen=True, slots=True)
class Shared:
    """What the connections of a listener share."""

    loop: AbstractEventLoop
    open_handler: OpenHandler
    scratch: memoryview
    budget: MemoryBudget
    buffers: FrameBuffers
    max_frame_bytes: int
    on_close: Callable[[Connection], None]


class Connection:
    """A transport with its unfinished input and unsent output. Lives on the event loop's thread."""

    __slots__ = (
        "_backlog",
        "_fd",
        "_handler",
        "_is_draining",
        "_loop",
        "_outbox",
        "_partial",
        "_partial_since",
        "_prefix",
        "_reading",
        "_shared",
        "_transport",
        "_waiting",
        "_writing",
        "closed",
        "last_activity",
        "peer",
    )

    def __init__(self, transport: Transport, peer: str, shared: Shared) -> None:
        self.peer = peer
        self.closed = False
        self._transport = transport
        self._fd = transport.fileno()
        self._shared = shared
        self._loop = shared.loop
        self._prefix = b""  # the first bytes of a frame's length
        self._partial: PartialFrame | None = None
        self._partial_since = 0.0
        self._backlog: bytes | None = None  # received, and handled once earlier replies are known or sent
        self._waiting: deque[PendingReply] = deque()
        self._outbox = Outbox(transport)
        self._reading = True
        self._is_draining = False
        self._writing = False
        self.last_activity = self._loop.time()
        self._handler: ConnectionHandler | None = shared.open_handler(self)
        self._loop.add_reader(self._fd, self._on_readable)

    @property
    def local_address(self) -> tuple[str, int]:
        """The host and port that the client has connected to."""
        return self._transport.local_address()

    @property
    def transport(self) -> Transport:
        return self._transport

    @property
    def handler(self) -> ConnectionHandler | None:
        """What the layer above keeps for this connection, None once it is closed."""
        return self._handler

    @property
    def budget(self) -> MemoryBudget:
        """The memory budget for requests, which all connections share."""
        return self._shared.budget

    def allow_frames(self, max_bytes: int) -> None:
        """Accept frames of up to `max_bytes` from the next read on."""
        self._shared = replace(self._shared, max_frame_bytes=max_bytes)

    # -- input

    def _on_readable(self) -> None:
        self.last_activity = self._loop.time()
        try:
            if self._partial is not None:
                frame = self._partial.receive(self._transport)
                if frame is None:
                    if self._transport.has_pending:
                        self._loop.call_soon(self._read_pending)
                    return
                self._end_partial(frame)
            else:
                start = len(self._prefix)
                scratch = self._shared.scratch
                count = self._transport.receive_into(scratch[start:] if start else scratch)
                if not count:
                    self.close()
                    return
                if start:
                    scratch[:start] = self._prefix
                    self._prefix = b""
                if self._waiting and self._is_blocked():
                    self._keep(scratch[: start + count])  # reading goes on so that a disconnect is noticed
                else:
                    self._handle_frames(scratch, start + count)
        except BlockingIOError:
            return
        except MalformedRequestError as error:
            self.refuse(error)
            return
        except OSError as error:
            logger.debug("connection of %s broke: %s", self.peer, error)
            self.close()
            return
        if self._outbox.parts:
            self._flush()
        elif not self.closed and self._transport.is_broken():
            # Reset after the bytes just received. uvloop reports an error once; without a send it would go unnoticed.
            self.close()
            return
        if self._writing or self._partial is not None or self._backlog is not None:
            self._adjust_reading()
        if self._transport.has_pending:
            self._loop.call_soon(self._read_pending)

    def _read_pending(self) -> None:
        """Read what the transport has kept, unless reading has stopped: then `_adjust_reading` comes back to it."""
        if not self.closed and self._reading and self._transport.has_pending:
            self._on_readable()

    def _handle_frames(self, view: memoryview, end: int) -> None:
        """Handle the complete frames in the first `end` bytes of `view`, and keep the beginning of the next one."""
        position = handled = 0
        handler = self._handler
        assert handler is not None
        shortcut = handler.shortcut
        if shortcut is not None and not self._waiting:
            position = shortcut(view, 0, end, self._outbox.parts)
            if position == end or self.closed:
                return
            if self._waiting:  # the shortcut has held the connection
                self._keep(view[position:end])
                return
        parts, waiting, handle = self._outbox.parts, self._waiting, handler.handle
        max_frame_bytes = self._shared.max_frame_bytes
        turn_ends = perf_counter() + TURN_SECONDS
        while end - position >= 4:
            (length,) = _LENGTH.unpack_from(view, position)
            if length < 0 or length > max_frame_bytes:
                raise MalformedRequestError(
                    f"frame of {length} bytes, and the limit is {max_frame_bytes}: socket.request.max.bytes, "
                    "before a login sasl.server.max.receive.size"
                )
            start, position = position + 4, position + 4 + length
            if position > end:
                self._begin_partial(view[start:end], length)
                return
            reply = handle(view[start:position])
            if type(reply) is list and not waiting:
                parts += reply
            elif reply is not None or waiting:
                if reply is not None:
                    self.enqueue(reply)
                if self._is_blocked():
                    if position < end:
                        self._keep(view[position:end])
                    return
            if self.closed:
                return
            handled += 1
            if position < end and (handled == FRAMES_AT_ONCE or perf_counter() > turn_ends):
                self._keep(view[position:end])
                self._loop.call_soon(self.advance)
                return
        self._prefix = bytes(view[position:end])

    def _keep(self, data: memoryview) -> None:
        """Keep bytes that cannot be handled yet. They count against the memory budget."""
        if self._shared.budget.try_acquire(len(data)):
            self._backlog = bytes(data)
        else:
            limited_logger.warning(
                "closing the connection of %s: no memory for the requests behind one that waits", self.peer
            )
            self.close()

    def _begin_partial(self, start: memoryview, length: int) -> None:
        shared = self._shared
        self._partial_since = self.last_activity
        self._partial = PartialFrame(start, length, shared.budget, shared.buffers, self._on_granted)
        if self._partial.is_waiting:
            self._adjust_reading()

    def _on_granted(self) -> None:
        self._partial_since = self._loop.time()
        self._adjust_reading()

    def _end_partial(self, frame: memoryview) -> None:
        """Handle a frame that arrived in pieces, and release its memory in any case."""
        partial, self._partial = self._partial, None
        assert partial is not None
        assert self._handler is not None
        try:
            reply = self._handler.handle(frame)
            if reply is not None:
                self.enqueue(reply)
        finally:
            partial.release()

    def enqueue(self, reply: Reply | PendingReply) -> None:
        """Queue a reply behind those that are pending. A known reply with none before it is sent at once."""
        if isinstance(reply, PendingReply):
            self._waiting.append(reply)
        elif self._waiting:
            behind = PendingReply(self, pipelined=True)
            behind.reply, behind.resolved = reply, True
            self._waiting.append(behind)
        else:
            self._outbox.parts += reply

    def hold(self, seconds: float) -> None:
        """Handle no further frame for a time. The replies to those before leave as soon as they are known."""
        if self.closed:
            return
        held = PendingReply(self)
        held.on_cancel = self._loop.call_later(seconds, held.resolve, None).cancel
        self._waiting.append(held)

    def _is_blocked(self) -> bool:
        """Whether the next frame has to wait for a reply."""
        return bool(self._waiting) and (not self._waiting[-1].pipelined or len(self._waiting) >= MAX_PIPELINED)

    def _is_choked(self) -> bool:
        """Whether too much is unsent to handle another request."""
        self._flush()
        return self.closed or (self._writing and self._outbox.size_bytes > MAX_UNSENT_BYTES)

    def advance(self) -> None:
        """Send the resolved replies up to the first that is pending, and handle the frames that waited for them."""
        if self.closed:
            return
        while self._waiting and self._waiting[0].resolved:
            reply = self._waiting.popleft().reply
            if reply is not None:
                self._outbox.parts += reply
        if self._backlog is not None and not (self._is_draining or self._is_blocked() or self._is_choked()):
            backlog, self._backlog = self._backlog, None
            self._shared.budget.release(len(backlog))
            try:
                self._handle_frames(memoryview(bytearray(backlog)), len(backlog))
            except MalformedRequestError as error:
                self.refuse(error)
                return
        if self._outbox.parts:
            self._flush()
        self._adjust_reading()

    def refuse(self, error: MalformedRequestError) -> None:
        """Close the connection of a client that breaks the protocol, after sending the replies that are ready."""
        if self.closed:
            return
        limited_logger.warning("closing the connection of %s: %s", self.peer, error)
        if self._outbox.parts:
            self._flush()
        self.close()

    def _adjust_reading(self) -> None:
        """Start or stop reading from the socket, by the table of states above."""
        if self.closed:
            return
        may_read = (
            not self._is_draining
            and self._backlog is None
            and not (self._partial is not None and self._partial.is_waiting)
            and not (self._writing and self._outbox.size_bytes > MAX_UNSENT_BYTES)
        )
        if may_read != self._reading:
            self._reading = may_read
            if may_read:
                self._loop.add_reader(self._fd, self._on_readable)
                if self._transport.has_pending:
                    self._loop.call_soon(self._read_pending)
            else:
                self._loop.remove_reader(self._fd)

    # -- output

    def _flush(self) -> None:
        """Send as much as the socket accepts, and the rest when it accepts more."""
        if self._writing:
            return
        try:
            if not self._outbox.flush():
                self._writing = True
                self._loop.add_writer(self._fd, self._on_writable)
        except OSError as error:
            logger.debug("connection of %s broke: %s", self.peer, error)
            self.close()

    def _on_writable(self) -> None:
        self.last_activity = self._loop.time()
        self._writing = False
        self._loop.remove_writer(self._fd)
        self._flush()
        if self._backlog is None:
            self._adjust_reading()
        else:
            self.advance()

    # -- end

    def stalls_budget(self, since: float) -> bool:
        """Whether memory was granted before `since` for a frame that is still incomplete."""
        return self._partial is not None and self._partial.holds_grant and self._partial_since < since

    def drain(self) -> None:
        """Stop reading requests, because the broker stops."""
        self._is_draining = True
        self._adjust_reading()

    @property
    def has_unfinished_work(self) -> bool:
        """Whether a reply is still pending or unsent. Requests that may wait forever do not count."""
        return bool(self._outbox.parts) or any(
            pending.on_cancel is None and not pending.resolved for pending in self._waiting
        )

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._loop.remove_reader(self._fd)
        if self._writing:
            self._loop.remove_writer(self._fd)
        self._transport.close()
        if self._partial is not None:
            self._partial.release()
            self._partial = None
        waiting = list(self._waiting)
        self._waiting.clear()
        for pending in waiting:
            if pending.on_cancel is not None:
                pending.on_cancel()
            pending.forget()
        self._outbox.parts.clear()
        if self._backlog is not None:
            self._shared.budget.release(len(self._backlog))
            self._backlog = None
        if self._handler is not None:
            self._handler.close()
            self._handler = None
        self._shared.on_close(self)
