"""Which ports a development cluster uses, in the first run and in later ones."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from skylog.development.ports import ANY_PORT, ClusterPorts, choose_ports
from skylog.errors import SkylogError


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_port_that_was_asked_for_and_is_in_use_is_an_error_with_the_fix(taken: int) -> None:
    with pytest.raises(SkylogError, match=f"port {taken} is in use; .* choose another --port, or use --port 0"):
        choose_ports(1, taken, [])


def test_the_ports_after_the_first_one_are_checked_too(taken: int) -> None:
    """If the port before it is in use as well, that one is reported."""
    with pytest.raises(SkylogError, match=f"port ({taken}|{taken - 1}) is in use"):
        choose_ports(2, taken - 1, [])


def test_there_is_no_port_after_the_last() -> None:
    with pytest.raises(SkylogError, match="there is no port 65536; choose a lower --port"):
        choose_ports(2, 65535, [])


def test_zero_picks_free_ports_in_the_first_run() -> None:
    assert choose_ports(3, 0, []) == [ANY_PORT] * 3


@pytest.mark.parametrize("port", [None, 0])
def test_a_later_run_keeps_the_ports_that_are_free(port: int | None, taken: int) -> None:
    kept = free_port()
    assert choose_ports(2, port, [kept, taken]) == [kept, ANY_PORT]
    assert choose_ports(3, port, [kept]) == [kept, ANY_PORT, ANY_PORT]
    assert choose_ports(1, port, [kept, taken]) == [kept]


def test_a_port_that_is_asked_for_replaces_those_of_the_last_run() -> None:
    wanted = free_port()
    assert choose_ports(1, wanted, [free_port()]) == [wanted]


def test_ports_are_remembered(tmp_path: Path) -> None:
    assert ClusterPorts.read(tmp_path) == ClusterPorts()
    ports = ClusterPorts(2181, None, (9092, 9093))
    ports.write(tmp_path)
    assert ClusterPorts.read(tmp_path) == ports


@pytest.mark.parametrize("content", [b"", b"[]", b'{"zookeeper":1}', b'{"zookeeper":1,"console":2,"brokers":5}'])
def test_a_damaged_file_is_no_reason_not_to_start(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "cluster.json").write_bytes(content)
    assert ClusterPorts.read(tmp_path) == ClusterPorts()
