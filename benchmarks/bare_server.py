"""The limit: a server on a Python event loop that checks, looks up and remembers nothing.

Reads the same frames as the broker, writes the same record bytes to a file and acknowledges with a fixed response, or
responds with bytes of a file by `sendfile`. `loops.py` compares its styles of using a socket. The best of them, `raw`
on uvloop, is the limit that the broker is compared with.

Runs as a separate process: `python -m benchmarks.bare_server --help`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import struct
from collections import deque
from collections.abc import Callable

from benchmarks.frames import FRAME_TRAILER_BYTES, fetch_response_head, produce_response

TOPIC = "bench"
BUFFER_BYTES = 256 << 10
SENDFILE_FROM_BYTES = 32 << 10
_LENGTH = struct.Struct(">i")
_OFFSET = struct.Struct(">q")


class Workload:
    """Handles a request, independent of the style of the sockets.

    `patch_at` is a position in the request: of the records for Produce, of the fetch offset for Fetch. An offset is
    the number of a piece of `read_bytes` bytes in the file.
    """

    def __init__(self, path: str, patch_at: int, read_bytes: int) -> None:
        self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        self.patch_at = patch_at
        self.read_bytes = read_bytes
        self.response = produce_response(TOPIC)
        self.pieces = max(1, os.fstat(self.file).st_size // read_bytes) if read_bytes else 1
        self.head = fetch_response_head(TOPIC, read_bytes, self.pieces)
        self.tail = bytes(FRAME_TRAILER_BYTES)

    def append(self, frame: memoryview) -> bytes:
        os.write(self.file, frame[self.patch_at : -FRAME_TRAILER_BYTES])
        return self.response

    def position(self, frame: memoryview) -> int:
        offset: int = _OFFSET.unpack_from(frame, self.patch_at)[0]
        return offset % self.pieces * self.read_bytes


class FrameBuffer:
    """Bytes received and not yet consumed; grows to the largest frame seen, so that a frame is always contiguous."""

    def __init__(self) -> None:
        self.data = bytearray(BUFFER_BYTES)
        self.view = memoryview(self.data)
        self.start = 0
        self.end = 0

    def free(self) -> memoryview:
        return self.view[self.end :]

    def received(self, count: int, handle: Callable[[memoryview], None]) -> None:
        data, view, start = self.data, self.view, self.start
        self.end = end = self.end + count
        while end - start >= 4:
            size = 4 + _LENGTH.unpack_from(data, start)[0]
            if end - start < size:
                break
            handle(view[start : start + size])
            start += size
        else:
            size = 4
        if start == end:
            self.start = self.end = 0
        else:
            self.start = start
            self.make_room(size)

    def make_room(self, size: int) -> None:
        pending = self.end - self.start
        if size > len(self.data):
            grown = bytearray(size + BUFFER_BYTES)
            grown[:pending] = self.view[self.start : self.end]
            self.data, self.view = grown, memoryview(grown)
        elif self.start + size > len(self.data) or self.end == len(self.data):
            self.data[:pending] = self.data[self.start : self.end]
        else:
            return
        self.start, self.end = 0, pending


class RawConnection:
    """A non-blocking socket with `add_reader`. The responses to all requests of one read are sent in one `send`.

    Bytes that the socket does not accept wait in `outgoing`, with a writer registered. Nothing is read meanwhile, which
    is the only back-pressure.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket, work: Workload) -> None:
        self.loop, self.sock, self.work = loop, sock, work
        self.fd = sock.fileno()
        self.buffer = FrameBuffer()
        self.answers: list[bytes] = []
        self.outgoing: deque[bytes | tuple[int, int]] = deque()
        self.handle = self.fetch if work.read_bytes else self.produce
        loop.add_reader(self.fd, self.readable)

    def produce(self, frame: memoryview) -> None:
        work = self.work
        os.write(work.file, frame[work.patch_at : -FRAME_TRAILER_BYTES])
        self.answers.append(work.response)

    def fetch(self, frame: memoryview) -> None:
        work, position = self.work, self.work.position(frame)
        if work.read_bytes < SENDFILE_FROM_BYTES:
            self.outgoing.append(work.head + os.pread(work.file, work.read_bytes, position) + work.tail)
        else:
            self.outgoing.append(work.head)
            self.outgoing.append((position, work.read_bytes))
            self.outgoing.append(work.tail)

    def readable(self) -> None:
        try:
            count = self.sock.recv_into(self.buffer.free())
        except BlockingIOError:
            return
        except ConnectionError:
            count = 0
        if not count:
            self.close()
            return
        self.buffer.received(count, self.handle)
        if self.answers:
            self.acknowledge()
        if self.outgoing and not self.flush():
            self.loop.remove_reader(self.fd)
            self.loop.add_writer(self.fd, self.writable)

    def acknowledge(self) -> None:
        data = b"".join(self.answers)
        self.answers.clear()
        try:
            sent = self.sock.send(data)
        except BlockingIOError:
            sent = 0
        except ConnectionError:
            return
        if sent < len(data):
            self.outgoing.append(data[sent:])

    def flush(self) -> bool:
        outgoing = self.outgoing
        try:
            while outgoing:
                item = outgoing[0]
                if isinstance(item, bytes):
                    sent = self.sock.send(item, socket.MSG_MORE if len(outgoing) > 1 else 0)
                    if sent < len(item):
                        outgoing[0] = item[sent:]
                        return False
                else:
                    position, count = item
                    sent = os.sendfile(self.fd, self.work.file, position, count)
                    if sent < count:
                        outgoing[0] = (position + sent, count - sent)
                        continue
                outgoing.popleft()
        except BlockingIOError:
            return False
        except ConnectionError:
            outgoing.clear()
        return True

    def writable(self) -> None:
        if self.flush():
            self.loop.remove_writer(self.fd)
            self.loop.add_reader(self.fd, self.readable)

    def close(self) -> None:
        self.loop.remove_reader(self.fd)
        self.sock.close()


class TransportConnection(asyncio.BaseProtocol):
    """The common part of both asyncio protocols: sends responses with `transport.write`."""

    transport: asyncio.Transport

    def __init__(self, work: Workload) -> None:
        self.work = work
        self.answers: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # uvloop's transport is no asyncio.Transport by name

    def handle(self, frame: memoryview) -> None:
        work = self.work
        if work.read_bytes:
            data = os.pread(work.file, work.read_bytes, work.position(frame))
            self.answers += (work.head, data, work.tail)
        else:
            self.answers.append(work.append(frame))

    def answer(self) -> None:
        if self.answers:
            self.transport.writelines(self.answers)
            self.answers.clear()


class StreamConnection(TransportConnection, asyncio.Protocol):
    """`asyncio.Protocol`: the loop passes `bytes`."""

    pending = b""

    def data_received(self, data: bytes) -> None:
        if self.pending:
            data = self.pending + data
        view, start, end = memoryview(data), 0, len(data)
        while end - start >= 4:
            size = 4 + _LENGTH.unpack_from(data, start)[0]
            if end - start < size:
                break
            self.handle(view[start : start + size])
            start += size
        self.pending = data[start:]
        self.answer()


class BufferedConnection(TransportConnection, asyncio.BufferedProtocol):
    """`asyncio.BufferedProtocol`: the loop receives into our buffer."""

    def __init__(self, work: Workload) -> None:
        super().__init__(work)
        self.buffer = FrameBuffer()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.buffer.free()

    def buffer_updated(self, nbytes: int) -> None:
        self.buffer.received(nbytes, self.handle)
        self.answer()


async def serve(style: str, work: Workload, host: str, port: int) -> None:
    loop = asyncio.get_running_loop()
    listener = socket.create_server((host, port), backlog=128)
    listener.setblocking(False)
    print(f"listening on {host}:{listener.getsockname()[1]}", flush=True)
    if style == "raw":

        def accept() -> None:
            sock, _ = listener.accept()
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            RawConnection(loop, sock, work)

        loop.add_reader(listener, accept)
    else:
        kind = StreamConnection if style == "protocol" else BufferedConnection
        await loop.create_server(lambda: kind(work), sock=listener)
    await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bare_server", description=__doc__)
    parser.add_argument("--style", choices=("raw", "protocol", "buffered"), default="raw")
    parser.add_argument("--loop", choices=("uvloop", "asyncio"), default="uvloop")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--file", required=True, help="appended to by Produce, read by Fetch")
    parser.add_argument("--patch-at", type=int, required=True, help="where the records or the offset stand in a frame")
    parser.add_argument("--read-bytes", type=int, default=0, help="serve fetches of that size instead of produces")
    args = parser.parse_args()
    work = Workload(args.file, args.patch_at, args.read_bytes)
    main_task = serve(args.style, work, args.host, args.port)
    if args.loop == "uvloop":
        import uvloop

        uvloop.run(main_task)
    else:
        asyncio.run(main_task)


if __name__ == "__main__":
    main()
