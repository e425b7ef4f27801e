"""The sockets of a session."""

from __future__ import annotations

import socket
import threading

import pytest

from skylog.cluster.zookeeper.connection import _MAX_IN_FLIGHT
from skylog.cluster.zookeeper.handler import SessionHandler


@pytest.mark.timeout(30)
def test_waking_the_thread_never_blocks_and_leaves_a_byte_for_each_request() -> None:
    reader, writer = SessionHandler(1.0).create_socket_pair()
    for _ in range(10_000):
        writer.send(b"\0")
    assert len(reader.recv(10_000)) > _MAX_IN_FLIGHT
    writer.close()
    reader.close()


def test_no_connection_is_opened_after_the_end() -> None:
    handler = SessionHandler(1.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        handler.create_connection(server.getsockname()).close()
        handler.refuse()
        with pytest.raises(OSError, match="the session has ended"):
            handler.create_connection(server.getsockname())


def test_a_connection_that_is_being_opened_at_the_end_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    handler, is_open, has_ended = SessionHandler(1.0), threading.Event(), threading.Event()
    connect = socket.create_connection

    def connect_slowly(*arguments: object) -> socket.socket:
        connection = connect(*arguments)  # type: ignore[arg-type] # as given
        is_open.set()
        has_ended.wait(20)
        return connection

    def end() -> None:
        is_open.wait(20)
        handler.refuse()
        handler.drop_connection()
        has_ended.set()

    monkeypatch.setattr(socket, "create_connection", connect_slowly)
    ending = threading.Thread(target=end)
    ending.start()
    with socket.create_server(("127.0.0.1", 0)) as server:
        with pytest.raises(OSError, match="the session has ended"):
            handler.create_connection(server.getsockname())
        accepted, _ = server.accept()
        assert accepted.recv(1) == b""
        accepted.close()
    ending.join()


def test_a_connection_that_is_dropped_is_closed_for_both_sides() -> None:
    handler = SessionHandler(1.0)
    handler.drop_connection()
    with socket.create_server(("127.0.0.1", 0)) as server:
        with handler.create_connection(server.getsockname()) as connection:
            accepted, _ = server.accept()
            handler.drop_connection()
            assert connection.recv(1) == b""
            assert accepted.recv(1) == b""
            accepted.close()
        handler.drop_connection()
