"""Frames in, replies out in the order of the requests, and bounded memory whatever a client does."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections import Counter

import pytest

from skylog.errors import MalformedRequestError
from skylog.net import Connection, PendingReply, Reply
from skylog.net.connection import FRAMES_AT_ONCE, MAX_PIPELINED, MAX_UNSENT_BYTES
from skylog.testing import wait_until as until
from tests.patience import patience

from .server import Client, NetServer, framed

MB = 1 << 20


def echo(connection: Connection, frame: memoryview) -> Reply:
    return [framed(bytes(frame))]


class Waiting:
    """A handler whose replies the test gives: requests by body, those that begin with `p` are pipelined."""

    def __init__(self) -> None:
        self.pending: dict[bytes, PendingReply] = {}
        self.cancelled: list[bytes] = []

    def __call__(self, connection: Connection, frame: memoryview) -> Reply | PendingReply | None:
        body = bytes(frame)
        if body.startswith(b"now"):
            return [framed(body)]
        if body.startswith(b"none"):
            return None
        pending = PendingReply(
            connection, pipelined=body.startswith(b"p"), on_cancel=lambda: self.cancelled.append(body)
        )
        self.pending[body] = pending
        return pending

    def answer(self, server: NetServer, body: bytes) -> None:
        until(lambda: body in self.pending, f"{body!r} to be handled")
        server.do(lambda: self.pending[body].resolve([framed(body)]))


# -- frames


@pytest.mark.parametrize("size_bytes", [0, 1, 5, 20_000])
def test_a_frame_is_whole_however_it_was_cut(size_bytes: int) -> None:
    body = bytes(number % 251 for number in range(size_bytes))
    data = framed(body) + framed(b"next")
    cuts = range(1, len(data)) if len(data) < 50 else (1, 2, 3, 4, 5, 100, len(data) - 9, len(data) - 8, len(data) - 5)
    with NetServer(echo) as server, Client(server) as client:
        for cut in cuts:
            client.socket.sendall(data[:cut])
            time.sleep(0.002)
            client.socket.sendall(data[cut:])
            assert client.receive() == body
            assert client.receive() == b"next"


def test_a_frame_that_comes_byte_by_byte_is_whole() -> None:
    with NetServer(echo) as server, Client(server) as client:
        for byte in framed(b"slowly") * 3:
            client.socket.sendall(bytes([byte]))
            time.sleep(0.001)
        assert [client.receive() for _ in range(3)] == [b"slowly"] * 3


def test_a_frame_larger_than_the_shared_buffer_is_whole() -> None:
    body = bytes(range(256)) * 20_000
    with NetServer(echo) as server, Client(server) as client:
        threading.Thread(target=client.send, args=(b"before", body, b"behind")).start()
        assert [client.receive() for _ in range(3)] == [b"before", body, b"behind"]


def test_frames_of_two_clients_do_not_mix() -> None:
    """Both lie in one buffer while they are handled."""
    with NetServer(echo) as server, Client(server) as one, Client(server) as other:
        first, second = framed(b"a" * 3000), framed(b"b" * 3000)
        for cut in range(1, 3000, 177):
            one.socket.sendall(first[:cut])
            other.socket.sendall(second[:cut])
            one.socket.sendall(first[cut:])
            other.socket.sendall(second[cut:])
            assert one.receive() == b"a" * 3000
            assert other.receive() == b"b" * 3000


@pytest.mark.parametrize("length", [-1, 1001])
def test_a_frame_of_impossible_length_closes_the_connection_behind_earlier_replies(length: int) -> None:
    with NetServer(echo, socket_request_max_bytes=1000) as server, Client(server) as client:
        client.socket.sendall(framed(b"good") + struct.pack(">i", length))
        assert client.receive() == b"good"
        assert client.is_closed()


# -- the order of replies


def test_replies_leave_in_the_order_of_their_requests() -> None:
    handler = Waiting()
    with NetServer(handler) as server, Client(server) as client:
        client.send(b"p1", b"p2", b"now3", b"none", b"p4")
        for body in (b"p4", b"p2"):
            handler.answer(server, body)
        assert client.is_silent(0.1)
        handler.answer(server, b"p1")
        assert [client.receive() for _ in range(4)] == [b"p1", b"p2", b"now3", b"p4"]


def test_nothing_is_handled_behind_a_reply_that_is_not_pipelined() -> None:
    handler = Waiting()
    with NetServer(handler) as server, Client(server) as client:
        client.send(b"w1", b"p2")
        until(lambda: b"w1" in handler.pending, "the first to be handled")
        client.send(b"p3")
        time.sleep(0.05)
        assert list(handler.pending) == [b"w1"]
        handler.answer(server, b"w1")
        assert client.receive() == b"w1"
        for body in (b"p2", b"p3"):
            handler.answer(server, body)
            assert client.receive() == body


def test_no_more_requests_are_handled_than_may_be_pipelined() -> None:
    handler = Waiting()
    bodies = [b"p%d" % number for number in range(MAX_PIPELINED + 10)]
    with NetServer(handler) as server, Client(server) as client:
        client.send(*bodies)
        until(lambda: len(handler.pending) >= MAX_PIPELINED, "the first ones")
        time.sleep(0.05)
        assert len(handler.pending) == MAX_PIPELINED
        for body in bodies:
            handler.answer(server, body)
            assert client.receive() == body


def test_the_beginning_of_a_length_is_kept_while_the_connection_is_blocked() -> None:
    """Two bytes of a length are received, then a reply blocks, then the rest of the frame arrives."""
    handler = Waiting()
    with NetServer(handler) as server, Client(server) as client:
        data = framed(b"now2")
        client.socket.sendall(framed(b"p1") + data[:2])
        until(lambda: b"p1" in handler.pending, "the first to be handled")
        server.do(lambda: setattr(handler.pending[b"p1"], "pipelined", False))
        client.socket.sendall(data[2:])
        time.sleep(0.05)
        handler.answer(server, b"p1")
        assert client.receive() == b"p1"
        assert client.receive() == b"now2"


def test_a_request_that_turns_out_to_be_unreadable_closes_behind_earlier_replies() -> None:
    handler = Waiting()
    with NetServer(handler) as server, Client(server) as client:
        client.send(b"now1", b"w2", b"now3")
        assert client.receive() == b"now1"
        until(lambda: b"w2" in handler.pending, "it to be handled")
        server.do(lambda: handler.pending[b"w2"].refuse(MalformedRequestError("no such request")))
        assert client.is_closed()
    assert b"now3" not in handler.pending


def test_a_client_that_disconnects_cancels_its_waiting_requests() -> None:
    handler = Waiting()
    with NetServer(handler) as server:
        with Client(server) as client:
            client.send(b"p1", b"p2", b"w3")
            until(lambda: len(handler.pending) == 3, "all to be handled")
            server.do(lambda: handler.pending[b"p2"].resolve([framed(b"p2")]))
        until(lambda: handler.cancelled == [b"p1", b"w3"], "those without an answer to be cancelled")
        until(lambda: not server.listener.connections, "the connection to be forgotten")


# -- back-pressure and fairness


def test_a_client_that_does_not_read_is_not_read_from() -> None:
    handled: Counter[str] = Counter()
    answer = framed(bytes(MB))

    def handler(connection: Connection, frame: memoryview) -> Reply:
        handled["frames"] += 1
        return [answer]

    with NetServer(handler) as server, Client(server, receive_buffer_bytes=65536) as client:
        client.socket.settimeout(0.5)
        with pytest.raises(TimeoutError):
            client.socket.sendall(framed(bytes(100)) * 200_000)
        unsent = max(connection._outbox.size_bytes for connection in server.listener.connections)
        assert unsent < MAX_UNSENT_BYTES + 2 * FRAMES_AT_ONCE * MB
        assert handled["frames"] < 2 * FRAMES_AT_ONCE + 20
        client.socket.settimeout(patience(20))
        assert len(client.receive()) == MB


def test_a_slow_reader_gets_everything() -> None:
    body = bytes(range(256)) * 100_000
    with NetServer(lambda *_: [framed(body)]) as server, Client(server, receive_buffer_bytes=65536) as client:
        client.send(b"x", b"y")
        received = bytearray()
        while len(received) < 2 * (len(body) + 4):
            received += client.socket.recv(300_000)
            time.sleep(0.0005)
        assert received == framed(body) * 2


def test_costly_requests_of_one_client_do_not_hold_up_another() -> None:
    """While the first of many in one write is handled, another client asks: its turn comes long before the last."""
    handled: list[bytes] = []

    def handler(connection: Connection, frame: memoryview) -> Reply:
        body = bytes(frame)
        if body == b"costly":
            if body not in handled:
                other.send(b"mine")
            time.sleep(0.02)
        handled.append(body)
        return [framed(body)]

    with NetServer(handler) as server, Client(server) as greedy, Client(server) as other:
        other.ask(b"warm")
        greedy.send(*[b"costly"] * FRAMES_AT_ONCE)
        assert other.receive() == b"mine"
        assert handled[:4].count(b"mine") == 1
        assert [greedy.receive() for _ in range(FRAMES_AT_ONCE)] == [b"costly"] * FRAMES_AT_ONCE


def test_requests_behind_one_that_waits_count_against_the_budget() -> None:
    handler = Waiting()
    with NetServer(handler, queued_max_request_bytes=MB) as server, Client(server) as client:
        client.send(b"w1", bytes(1000))
        until(lambda: b"w1" in handler.pending, "it to be handled")
        until(lambda: server.listener._budget.used_bytes == 1004, "the next one to be kept")
        handler.answer(server, b"w1")
        until(lambda: server.listener._budget.used_bytes == 0, "the memory to be given back")


def test_a_reset_connection_is_noticed_while_its_request_waits() -> None:
    handler = Waiting()
    with NetServer(handler) as server:
        client = Client(server)
        client.send(b"w1")
        until(lambda: b"w1" in handler.pending, "it to be handled")
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.socket.close()
        until(lambda: handler.cancelled == [b"w1"], "the request to be cancelled")
