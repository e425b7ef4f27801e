"""Connections from the first to the last moment: limits, sweeps, and an orderly end."""

from __future__ import annotations

import struct
import threading
import time

import pytest

from skylog.net import Connection, PendingReply, Reply, listener
from skylog.testing import wait_until as until
from tests.patience import patience

from .server import Client, NetServer, framed
from .test_connection import Waiting, echo

MB = 1 << 20


@pytest.fixture(autouse=True)
def frequent_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "SWEEP_SECONDS", 0.05)


def test_idle_connections_are_closed_and_busy_ones_are_not() -> None:
    with NetServer(echo, connections_max_idle_ms=400) as server, Client(server) as idle, Client(server) as busy:
        idle.socket.sendall(b"\0\0")  # inside a length
        ends = time.monotonic() + 1.2
        while time.monotonic() < ends:
            assert busy.ask(b"x") == b"x"
            time.sleep(0.02)
        assert idle.is_closed()
        assert busy.ask(b"x") == b"x"


def test_large_frames_wait_for_memory_and_the_smallest_is_first() -> None:
    with NetServer(echo, queued_max_request_bytes=MB) as server:
        with Client(server) as holder, Client(server) as large, Client(server) as small:
            holder.socket.sendall(struct.pack(">i", 900_000) + b"begun")
            until(lambda: server.listener._budget.used_bytes == 900_000, "the grant")
            threading.Thread(target=large.send, args=(bytes(800_000),), daemon=True).start()
            until(lambda: server.listener._budget.has_waiters, "the large one to wait")
            assert small.ask(bytes(100_000)) == bytes(100_000)
            assert large.is_silent(0.1)
            holder.socket.sendall(bytes(900_000 - 5))
            assert len(holder.receive()) == 900_000
            assert large.receive() == bytes(800_000)
        until(lambda: server.listener._budget.used_bytes == 0, "the memory to be given back")


def test_a_client_that_stalls_a_request_others_wait_for_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "STALL_SECONDS", 0.2)
    with NetServer(echo, queued_max_request_bytes=MB) as server, Client(server) as stalling, Client(server) as large:
        stalling.socket.sendall(struct.pack(">i", 900_000) + b"begun")
        until(lambda: server.listener._budget.used_bytes == 900_000, "the grant")
        threading.Thread(target=large.send, args=(bytes(800_000),), daemon=True).start()
        assert large.receive() == bytes(800_000)
        assert stalling.is_closed()


def test_memory_of_a_frame_whose_client_has_left_is_given_back() -> None:
    with NetServer(echo) as server:
        with Client(server) as client:
            client.socket.sendall(struct.pack(">i", 900_000) + b"begun")
            until(lambda: server.listener._budget.used_bytes == 900_000, "the grant")
        until(lambda: server.listener._budget.used_bytes == 0, "the memory to be given back")


def test_a_stop_lets_replies_leave_and_takes_no_more_requests() -> None:
    """The reply that is under way comes, whole; the request behind it is not handled; the connection ends."""
    handler = Waiting()
    large = framed(bytes(20 * MB))

    def handle(connection: Connection, frame: memoryview) -> Reply | PendingReply | None:
        return [large] if bytes(frame) == b"large" else handler(connection, frame)

    with NetServer(handle) as server, Client(server) as reading, Client(server) as waiting:
        reading.send(b"large")
        waiting.send(b"w1", b"now2")
        until(lambda: b"w1" in handler.pending, "it to be handled")
        handler.pending[b"w1"].on_cancel = None  # it will be answered, so the stop waits for it
        stopping = threading.Thread(target=lambda: server.run(server.listener.stop(patience(10))))
        stopping.start()
        time.sleep(0.1)
        assert len(reading.receive()) == 20 * MB
        handler.answer(server, b"w1")
        assert waiting.receive() == b"w1"
        stopping.join()
        assert reading.is_closed()
        assert waiting.is_closed()
    assert b"now2" not in handler.pending


def test_a_stop_does_not_wait_for_pending_requests_forever() -> None:
    handler = Waiting()
    with NetServer(handler) as server, Client(server) as waiting:
        waiting.send(b"w1")
        until(lambda: b"w1" in handler.pending, "it to be handled")
        began = time.monotonic()
        server.run(server.listener.stop(60))
        assert time.monotonic() - began < patience(5)
        assert handler.cancelled == [b"w1"]
