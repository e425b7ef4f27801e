"""flush.messages: an acknowledgement after the fsync, and one fsync for all waiting requests."""

from __future__ import annotations

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from skylog.errors import ErrorCode
from skylog.protocol.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from skylog.storage import Log
from skylog.storage.files import LogFile
from tests.patience import patience
from tests.present import present

from .conftest import create_topic
from .process import BrokerThread, until
from .raw import RawClient, batch_of, produce_request


class Disk:
    """Log files whose fsync waits at a gate, is counted, and can fail."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.began = self.finished = 0
        self.fails = False

    def open_file(self, path: Path, create: bool = False) -> LogFile:
        disk = self

        class WatchedFile(LogFile):
            __slots__ = ()

            def sync(self) -> None:
                disk.began += 1
                assert disk.gate.wait(30)
                if disk.fails:
                    raise OSError(5, "Input/output error")
                super().sync()
                disk.finished += 1

        return WatchedFile(path, create)


@pytest.fixture
def disk() -> Disk:
    return Disk()


def test_with_flush_messages_1_the_answer_comes_after_the_fsync(tmp_path: Path, disk: Disk) -> None:
    with BrokerThread(tmp_path / "data", open_file=disk.open_file) as thread, RawClient(thread.port) as client:
        create_topic(client, "t", 1, {"flush_messages": "1"})
        for n in range(3):
            disk.gate.clear()
            client.send(produce_request("t", batch_of(b"%d" % n)), 9)
            until(lambda: disk.began == n + 1, "the fsync to begin")  # noqa: B023  # called before the next turn
            assert not client.has_answer(0.05)
            disk.gate.set()
            assert client.receive().responses[0].partition_responses[0].base_offset == n
            assert disk.finished == n + 1


def test_requests_that_arrive_during_an_fsync_share_the_next(tmp_path: Path, disk: Disk) -> None:
    with BrokerThread(tmp_path / "data", open_file=disk.open_file) as thread:
        clients = [RawClient(thread.port) for _ in range(30)]
        create_topic(clients[0], "t", 1, {"flush_messages": "1"})
        disk.gate.clear()
        for n, client in enumerate(clients):
            client.send(produce_request("t", batch_of(b"%d" % n)), 9)

        def stored() -> int:
            found: int = thread.look(lambda broker: broker.replicas.leader("t", 0).log.log_end_offset)
            return found

        until(lambda: stored() == 30, "all batches to be in the log")
        assert not any(client.has_answer(0) for client in clients)
        disk.gate.set()
        offsets = {client.receive().responses[0].partition_responses[0].base_offset for client in clients}
        assert offsets == set(range(30))
        assert disk.finished == 2, "one that was running, one for all requests that arrived meanwhile"
        for client in clients:
            client.close()


def test_other_requests_do_not_wait_for_a_slow_disk(tmp_path: Path, disk: Disk) -> None:
    with BrokerThread(tmp_path / "data", open_file=disk.open_file) as thread, RawClient(thread.port) as client:
        create_topic(client, "durable", 1, {"flush_messages": "1"})
        create_topic(client, "plain")
        disk.gate.clear()
        with RawClient(thread.port) as patient:
            patient.send(produce_request("durable", batch_of(b"x")), 9)
            until(lambda: disk.began == 1, "the fsync to begin")
            began = time.monotonic()
            for n in range(50):
                assert client.produce("plain", batch_of(b"x")).base_offset == n
            assert client.fetch("durable", 0).records == b""  # nobody reads what a power cut may undo
            assert time.monotonic() - began < patience(5)
            disk.gate.set()
            patient.receive()
        assert len(present(client.fetch("durable", 0).records)) > 0


def test_a_request_that_waits_for_the_disk_is_still_answered_when_the_broker_stops(tmp_path: Path, disk: Disk) -> None:
    def let_the_disk_go_on(port: int) -> None:
        until(lambda: is_refused(port), "the broker to take no more connections")
        disk.gate.set()

    with ThreadPoolExecutor(1) as helper:
        with BrokerThread(tmp_path / "data", open_file=disk.open_file) as thread:
            client = RawClient(thread.port)
            create_topic(client, "t", 1, {"flush_messages": "1"})
            disk.gate.clear()
            client.send_bytes(b"".join(client.encode(produce_request("t", batch_of(b"x")), 9) for _ in range(20)))
            until(lambda: disk.began == 1, "the fsync to begin")
            opened = helper.submit(let_the_disk_go_on, thread.port)
        opened.result()
    with client:
        answers = [client.receive().responses[0].partition_responses[0] for _ in range(20)]
    assert [(answer.error_code, answer.base_offset) for answer in answers] == [(0, n) for n in range(20)]


def is_refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return True
    return False


def test_flush_messages_causes_one_fsync_per_that_many_messages(tmp_path: Path, disk: Disk) -> None:
    with BrokerThread(tmp_path / "data", open_file=disk.open_file) as thread, RawClient(thread.port) as client:
        create_topic(client, "t", 1, {"flush_messages": "10"})
        for _ in range(30):
            assert client.produce("t", batch_of(b"x")).error_code == 0
        assert disk.finished == 3
        client.produce("t", batch_of(*[b"x"] * 10))
        assert disk.finished == 4


def test_flush_messages_that_is_set_later_holds_for_a_producer_that_is_connected(tmp_path: Path, disk: Disk) -> None:
    with BrokerThread(tmp_path / "data", open_file=disk.open_file) as thread, RawClient(thread.port) as client:
        create_topic(client, "t")
        for _ in range(3):
            client.produce("t", batch_of(b"x"))
        config = AlterableConfig(name="flush.messages", config_operation=0, value="1")
        resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[config])
        assert client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses[0].error_code == 0
        assert client.produce("t", batch_of(b"x")).error_code == 0
        assert disk.finished == 1


def test_a_duplicate_is_only_acknowledged_when_its_first_copy_is_on_disk(tmp_path: Path, disk: Disk) -> None:
    batch = batch_of(b"x", producer_id=1, producer_epoch=0, base_sequence=0)
    with BrokerThread(tmp_path / "data", open_file=disk.open_file) as thread, RawClient(thread.port) as client:
        create_topic(client, "t", 1, {"flush_messages": "1"})
        disk.gate.clear()
        with RawClient(thread.port) as impatient:
            impatient.send(produce_request("t", batch), 9)
            until(lambda: disk.began == 1, "the fsync to begin")
        client.send(produce_request("t", batch), 9)
        assert not client.has_answer(0.1)
        disk.gate.set()
        assert client.receive().responses[0].partition_responses[0].base_offset == 0


def test_a_flush_whose_end_fails_does_not_hold_up_later_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end_flush, ends = Log.end_flush, 0

    def fail_first(log: Log, *result: Any) -> None:
        nonlocal ends
        end_flush(log, *result)
        ends += 1
        if ends == 1:
            raise ZeroDivisionError

    with BrokerThread(tmp_path / "data") as thread, RawClient(thread.port) as client:
        create_topic(client, "t", 1, {"flush_messages": "1"})
        monkeypatch.setattr(Log, "end_flush", fail_first)
        for offset in range(3):
            assert client.produce("t", batch_of(b"x")).base_offset == offset
    assert ends >= 3


def test_a_failed_fsync_is_an_error_and_the_log_takes_no_more(tmp_path: Path, disk: Disk) -> None:
    with BrokerThread(tmp_path / "data", open_file=disk.open_file) as thread, RawClient(thread.port) as client:
        create_topic(client, "t", 2, {"flush_messages": "1"})
        assert client.produce("t", batch_of(b"x")).error_code == 0
        disk.fails = True
        assert client.produce("t", batch_of(b"y")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        disk.fails = False
        assert client.produce("t", batch_of(b"z")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert client.produce("t", batch_of(b"z"), partition=1).error_code == 0
