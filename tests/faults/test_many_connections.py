"""Five thousand connections at once: four thousand that are idle, a thousand that produce."""

from __future__ import annotations

import resource
import select
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..broker.conftest import create_topic
from ..broker.process import BrokerProcess
from ..broker.raw import RawClient, batch_of, produce_request
from .neighbour import Neighbour

IDLE, PRODUCING, ROUNDS = 4000, 1000, 10
NEEDED_FILES = IDLE + PRODUCING + 500
MAX_RSS_BYTES = 150 * 1024 * 1024


@pytest.fixture(autouse=True)
def enough_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < NEEDED_FILES:
        pytest.skip(f"needs {NEEDED_FILES} open files, the hard limit is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, NEEDED_FILES), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connect(port: int, count: int) -> list[socket.socket]:
    connections = []
    for _ in range(count):
        connection = socket.create_connection(("127.0.0.1", port), timeout=20)
        connection.setblocking(False)
        connections.append(connection)
    return connections


def ask_all(connections: list[socket.socket], frame: bytes, answer_bytes: int) -> list[bytes]:
    """Send `frame` on every connection and collect an answer of that many bytes from each."""
    poll = select.epoll()
    answers = {connection.fileno(): b"" for connection in connections}
    by_fd = {connection.fileno(): connection for connection in connections}
    for connection in connections:
        connection.sendall(frame)
        poll.register(connection.fileno(), select.EPOLLIN)
    missing = len(connections)
    deadline = time.monotonic() + 30
    while missing:
        assert time.monotonic() < deadline, f"{missing} of {len(connections)} were not answered"
        for fd, _ in poll.poll(1):
            data = by_fd[fd].recv(65536)
            assert data, "the broker has closed a connection"
            answers[fd] += data
            missing -= len(answers[fd]) == answer_bytes
    poll.close()
    return list(answers.values())


def test_four_thousand_idle_and_a_thousand_producing_connections_are_all_served(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        with RawClient(broker.port) as client:
            create_topic(client, "t", 10)
            client.produce("t", batch_of(b"warm"), partition=0)
            produce = client.encode(produce_request("t", batch_of(b"x" * 200), acks=1), 7)
            client.send_bytes(produce)
            answer_bytes = len(client.read_frame()) + 4
            before = broker.rss_bytes
            api_versions = b"\0\0\0\x0a\0\x12\0\0\0\0\0\x01\xff\xff"
            client.send_bytes(api_versions)
            versions_bytes = len(client.read_frame()) + 4
        idle = connect(broker.port, IDLE)
        producing = connect(broker.port, PRODUCING)
        with Neighbour(broker.bootstrap, patience_seconds=3) as neighbour:
            answers = ask_all(idle, api_versions, versions_bytes)
            assert len(set(answers)) == 1, "every idle one was served once"
            offsets = set()
            for _ in range(ROUNDS):
                for answer in ask_all(producing, produce, answer_bytes):
                    error_code = int.from_bytes(answer[-30:-28], "big")
                    assert error_code == 0
                    offsets.add(int.from_bytes(answer[-28:-20], "big"))
            neighbour.wait_for_messages(20)
        with RawClient(broker.port) as client:
            stored = client.end_offset("t")
        assert stored == PRODUCING * ROUNDS + 2
        assert offsets == set(range(2, stored)), "every produce was acknowledged at its own offset"
        grown = broker.rss_bytes - before
        print(f"{IDLE + PRODUCING} connections: {broker.rss_bytes >> 20} MiB, {grown // (IDLE + PRODUCING)} bytes each")
        assert broker.rss_bytes < MAX_RSS_BYTES
        ask_all(idle, api_versions, versions_bytes)
        for connection in idle + producing:
            connection.close()
    assert not broker.tracebacks()
