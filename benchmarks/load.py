"""The load generator: many connections, one thread, epoll, prebuilt requests, answers counted rather than decoded.

It must cost less per request than any server under test, or it would measure itself. So requests are built before the
measurement, several are sent in one `send`, responses are separated by their length prefix alone, and most of a long
response is dropped inside the kernel (`MSG_TRUNC` on TCP) without being copied. `Load.busy` is the share of its core
that the generator used: a figure is valid only while that is below one.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

_LENGTH = struct.Struct(">i")
SMALL_ANSWER_BYTES = 64 << 10
_BUFFER_BYTES = 4 << 20


@dataclass(frozen=True)
class Load:
    """The responses received within the measured window."""

    seconds: float
    requests: int
    busy: float
    """The share of the time in which the generator had work to do: near 1.0 it was the limit, not the server."""
    answer_bytes: int = 0
    total_requests: int = 0
    """Answers since the connections were opened, the warm-up included."""

    @property
    def requests_per_second(self) -> float:
        return self.requests / self.seconds


class BadAnswerError(Exception):
    """An answer carried an error code or had an impossible length."""


class _Connection:
    """One socket with a fixed number of requests in flight. Each complete response makes room for one request."""

    def __init__(self, address: tuple[str, int], requests: Sequence[bytes], error_at: int) -> None:
        self.sock = socket.create_connection(address)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.setblocking(False)
        self.requests, self.next, self.error_at = requests, 0, error_at
        self.unsent: memoryview | None = None
        self.begun = b""  # the beginning of an answer, up to its error code
        self.answer_bytes = 0

    def request(self, count: int) -> None:
        """Send the next `count` requests, and keep what the socket did not accept."""
        requests, at = self.requests, self.next
        self.next = (at + count) % len(requests)
        if count == 1:
            data = requests[at]
        else:
            chosen = requests[at : at + count]
            while len(chosen) < count:
                chosen = [*chosen, *requests[: count - len(chosen)]]
            data = b"".join(chosen)
        self.unsent = memoryview(data if self.unsent is None else bytes(self.unsent) + data)
        self.flush()

    def flush(self) -> None:
        if self.unsent is not None:
            try:
                sent = self.sock.send(self.unsent)
            except BlockingIOError:
                return
            self.unsent = self.unsent[sent:] if sent < len(self.unsent) else None

    def check(self, data: memoryview, at: int) -> int:
        """Return the size of the response that starts at `at`. Raises BadAnswerError if it has an error code."""
        code_at = at + self.error_at
        if data[code_at] or data[code_at + 1]:
            raise BadAnswerError(f"the answer carries an error code: {bytes(data[at : at + 80])!r}")
        return 4 + int(_LENGTH.unpack_from(data, at)[0])

    def receive(self, buffer: memoryview) -> int:
        """Receive. Return the number of responses completed. Raises BlockingIOError if nothing was received."""
        raise NotImplementedError


class _ShortAnswers(_Connection):
    """Reads and checks every response. For acknowledgements, many of which fit into one receive."""

    def receive(self, buffer: memoryview) -> int:
        count = self.sock.recv_into(buffer, SMALL_ANSWER_BYTES)
        if not count:
            raise ConnectionError("the server closed the connection")
        self.answer_bytes += count
        data = buffer
        if self.begun:
            data = memoryview(self.begun + bytes(buffer[:count]))
            count = len(data)
        at = ended = 0
        while count - at > self.error_at + 2:
            size = self.check(data, at)
            if at + size > count:
                break
            at += size
            ended += 1
        self.begun = bytes(data[at:count])
        return ended


class _LongAnswers(_Connection):
    """Drops responses unread in the kernel. All are as long as the first one, and every 64th is checked."""

    size = 0
    partial = 0  # bytes seen of the answer that is under way
    until_check = 0

    def receive(self, buffer: memoryview) -> int:
        if self.until_check <= 0:
            return self._next_checked(buffer)
        count = self.sock.recv_into(buffer, len(buffer), socket.MSG_TRUNC)
        return self._dropped(count)

    def _dropped(self, count: int) -> int:
        if not count:
            raise ConnectionError("the server closed the connection")
        self.answer_bytes += count
        ended, self.partial = divmod(self.partial + count, self.size)
        self.until_check -= ended
        return ended

    def _next_checked(self, buffer: memoryview) -> int:
        """Finish the current response, then read the beginning of the next one."""
        if self.partial:
            return self._dropped(self.sock.recv_into(buffer, self.size - self.partial, socket.MSG_TRUNC))
        wanted = self.error_at + 2 - len(self.begun)
        data = self.sock.recv(wanted)
        self.begun += data
        if not data:
            raise ConnectionError("the server closed the connection")
        if len(data) == wanted:
            size = self.check(memoryview(self.begun), 0)
            if self.size not in (0, size):
                raise BadAnswerError(f"answers of {self.size} and of {size} bytes")
            self.size, self.partial, self.until_check = size, len(self.begun), 64
            self.answer_bytes += len(self.begun)
            self.begun = b""
        return 0


def run(
    address: tuple[str, int],
    requests: Sequence[Sequence[bytes]],
    *,
    in_flight: int,
    error_at: int,
    seconds: float,
    long_answers: bool = False,
    warm_up_seconds: float = 0.3,
    max_requests: int = 1 << 60,
) -> Load:
    """Drive one connection per element of `requests`, going round each list of frames, for `seconds`.

    Stops early after `max_requests` measured answers. With `long_answers` all answers must have the same length.
    """
    kind = _LongAnswers if long_answers else _ShortAnswers
    connections = [kind(address, mine, error_at) for mine in requests]
    driver = _Driver(connections)
    for connection in connections:
        connection.request(in_flight)
        driver.watch(connection)
    if warm_up_seconds:
        driver.drive(warm_up_seconds, max_requests)
    before = sum(c.answer_bytes for c in connections)
    load = driver.drive(seconds, max_requests)
    received = sum(c.answer_bytes for c in connections) - before
    driver.close()
    return replace(load, answer_bytes=received, total_requests=driver.answered)


class _Driver:
    """The loop over all connections. It spins instead of sleeping, so that no response waits for the generator."""

    def __init__(self, connections: Sequence[_Connection]) -> None:
        self.poll = select.epoll()
        self.connections = {c.sock.fileno(): c for c in connections}
        self.buffer = memoryview(bytearray(_BUFFER_BYTES))
        self.answered = 0
        for fd in self.connections:
            self.poll.register(fd, select.EPOLLIN)

    def drive(self, seconds: float, max_requests: int) -> Load:
        poll, connections, buffer = self.poll.poll, self.connections, self.buffer
        clock = time.perf_counter
        start = now = clock()
        until, idle, answered = start + seconds, 0.0, 0
        while answered < max_requests and now < until:
            events = poll(0)
            if not events:
                before, now = now, clock()
                idle += now - before
                continue
            for fd, event in events:
                connection = connections[fd]
                waited = connection.unsent is not None
                if waited:
                    connection.flush()
                if event & ~select.EPOLLOUT:
                    ended = connection.receive(buffer)
                    if ended:
                        answered += ended
                        connection.request(ended)
                if waited != (connection.unsent is not None):
                    self.watch(connection)
            now = clock()
        self.answered += answered
        return Load(now - start, answered, busy=1 - idle / (now - start))

    def watch(self, connection: _Connection) -> None:
        writing = select.EPOLLOUT if connection.unsent is not None else 0
        self.poll.modify(connection.sock.fileno(), select.EPOLLIN | writing)

    def close(self) -> None:
        for connection in self.connections.values():
            connection.sock.close()
        self.poll.close()
