"""The output queue: sent in order, without copies, and a limited amount per turn."""

from __future__ import annotations

import socket
import struct
import threading
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from skylog.net.outbox import COPIED_BYTES, JOINED_BYTES, TURN_BYTES, Outbox
from skylog.net.transport import PlainTransport
from skylog.storage.files import Buffer, LogFile

MB = 1 << 20
Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Our end, which does not block, and the client's."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 128 * 1024)
    theirs.settimeout(20)
    yield ours, theirs
    ours.close()
    theirs.close()


class Range:
    def __init__(self, file: LogFile, position: int, length: int) -> None:
        self.file, self.position, self.length = file, position, length


def drain(outbox: Outbox, theirs: socket.socket, size_bytes: int) -> bytes:
    """Read everything bit by bit, as a slow client does."""
    received = bytearray(size_bytes)
    view, filled = memoryview(received), 0
    while filled < size_bytes:
        outbox.flush()
        filled += theirs.recv_into(view[filled : filled + 65536])
    assert not outbox.parts
    return bytes(received)


def test_bytes_views_and_ranges_of_files_arrive_in_their_order(pair: Pair, tmp_path: Path) -> None:
    content = bytes(range(256)) * 4096
    path = tmp_path / "file"
    path.write_bytes(content)
    file = LogFile(path)
    outbox = Outbox(PlainTransport(pair[0]))
    outbox.parts += [
        b"head",
        Range(file, 100, 500),
        bytearray(b"between"),
        Range(file, 1000, JOINED_BYTES * 3),
        b"small",
        Range(file, 2000, COPIED_BYTES + 1),
        Range(file, 3000, COPIED_BYTES),
        memoryview(b"view"),
        bytes(300_000),
        Range(file, 7, 9),
        b"tail",
    ]
    expected = b"".join(
        [
            b"head",
            content[100:600],
            b"between",
            content[1000 : 1000 + JOINED_BYTES * 3],
            b"small",
            content[2000 : 2001 + COPIED_BYTES],
            content[3000 : 3000 + COPIED_BYTES],
            b"view",
            bytes(300_000),
            content[7:16],
            b"tail",
        ]
    )
    assert outbox.size_bytes == len(expected)
    assert drain(outbox, pair[1], len(expected)) == expected


@pytest.mark.parametrize("around", [False, True], ids=["alone", "between small parts"])
def test_a_slow_reader_of_a_large_answer_costs_no_copies(pair: Pair, around: bool) -> None:
    """A copy of the rest at every partial send would be quadratic: the size, times the number of sends."""
    answer = bytes(32 * MB)
    outbox = Outbox(PlainTransport(pair[0]))
    outbox.parts += [b"head" * 100, answer, b"tail"] if around else [answer]
    size_bytes = outbox.size_bytes
    piece = bytearray(65536)
    tracemalloc.start()
    try:
        received = 0
        while received < size_bytes:
            outbox.flush()
            received += pair[1].recv_into(piece)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert not outbox.parts
    assert peak_bytes < 4 * MB


def test_unsent_bytes_of_joined_parts_are_not_joined_again(pair: Pair) -> None:
    pair[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 * 1024)
    outbox = Outbox(PlainTransport(pair[0]))
    parts = [struct.pack(">i", number) * 2000 for number in range(200)]
    outbox.parts += parts
    assert not outbox.flush()
    assert isinstance(outbox.parts[0], memoryview)
    kept = outbox.parts[0].obj
    taken = pair[1].recv(20_000)
    assert not outbox.flush()
    assert isinstance(outbox.parts[0], memoryview)
    assert outbox.parts[0].obj is kept
    whole = b"".join(parts)
    assert taken + drain(outbox, pair[1], len(whole) - len(taken)) == whole


def test_a_client_that_reads_as_fast_as_we_send_gets_a_bounded_part_in_one_turn(pair: Pair) -> None:
    ours, theirs = pair
    outbox = Outbox(PlainTransport(ours))
    size_bytes = 8 * TURN_BYTES
    outbox.parts += [bytes(size_bytes)]
    stopping = threading.Event()

    def read() -> None:
        piece, left = bytearray(4 * MB), size_bytes
        while left:
            left -= theirs.recv_into(piece)
        stopping.set()

    reader = threading.Thread(target=read)
    reader.start()
    most_bytes, left_bytes = 0, outbox.size_bytes
    while not outbox.flush():
        most_bytes = max(most_bytes, left_bytes - outbox.size_bytes)
        left_bytes = outbox.size_bytes
    reader.join()
    assert stopping.is_set()
    assert most_bytes < 2 * TURN_BYTES


@pytest.mark.parametrize("length", [100, JOINED_BYTES, COPIED_BYTES + 1])
def test_a_file_that_has_become_shorter_breaks_the_connection(pair: Pair, tmp_path: Path, length: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(JOINED_BYTES))
    file = LogFile(path)
    outbox = Outbox(PlainTransport(pair[0]))
    outbox.parts += [b"head", Range(file, JOINED_BYTES - 10, length)]
    with pytest.raises(OSError, match="ends before"):
        outbox.flush()


class CountingFile(LogFile):
    """A file that counts how many bytes were read from it."""

    bytes_read = 0

    def read(self, position: int, length: int) -> bytes:
        self.bytes_read += length
        return super().read(position, length)


def test_a_range_and_the_bytes_around_it_are_sent_in_one_call(pair: Pair, tmp_path: Path) -> None:
    pair[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * COPIED_BYTES)
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 300)
    sizes: list[list[int]] = []
    transport = PlainTransport(pair[0])
    send = transport.send_parts
    assert send is not None

    def counted(buffers: Sequence[Buffer], ancillary: tuple[()], flags: int) -> int:
        sizes.append([len(each) for each in buffers])
        return send(buffers, ancillary, flags)

    transport.send_parts = counted
    outbox = Outbox(transport)
    outbox.parts += [b"head", Range(LogFile(path), 256, JOINED_BYTES), b"tail"]
    assert outbox.flush()
    assert sizes == [[4, JOINED_BYTES, 4]]
    whole = b"head" + bytes(range(256)) * (JOINED_BYTES // 256) + b"tail"
    received = b""
    while len(received) < len(whole):
        received += pair[1].recv(len(whole))
    assert received == whole


def test_a_range_that_a_slow_client_does_not_accept_is_read_once(pair: Pair, tmp_path: Path) -> None:
    pair[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 * 1024)
    content = bytes(range(256)) * (COPIED_BYTES // 256)
    path = tmp_path / "file"
    path.write_bytes(content)
    file = CountingFile(path)
    before = 0
    with suppress(BlockingIOError):
        while True:
            before += pair[0].send(b"\0" * 1000)
    outbox = Outbox(PlainTransport(pair[0]))
    outbox.parts += [part for _ in range(4) for part in (b"head", Range(file, 0, COPIED_BYTES), b"tail")]
    for _ in range(10):
        assert not outbox.flush()
    whole = bytes(before) + (b"head" + content + b"tail") * 4
    assert drain(outbox, pair[1], len(whole)) == whole
    assert file.bytes_read < 4 * (COPIED_BYTES + JOINED_BYTES)


def test_a_client_that_has_left_raises(pair: Pair) -> None:
    pair[1].close()
    outbox = Outbox(PlainTransport(pair[0]))
    outbox.parts.append(b"x")
    with pytest.raises(ConnectionError):
        outbox.flush()
