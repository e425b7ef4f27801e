"""Clients that stall: half-open, idle, slow to read, or announcing much and sending nothing. Nobody else waits."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from pathlib import Path

import pytest

from skylog.net import listener
from skylog.protocol.api_versions import ApiVersionsRequest
from skylog.protocol.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from skylog.protocol.metadata import MetadataRequest
from tests.patience import patience

from ..broker.conftest import create_topic
from ..broker.process import BrokerProcess, BrokerThread, until
from ..broker.raw import ClosedByBrokerError, RawClient, batch_of, fetch_request, produce_request, values_in
from .neighbour import Neighbour

pytestmark = pytest.mark.usefixtures("undisturbed")

IDLE_MS = 6000
BROKER_SETTINGS = {"connections.max.idle.ms": str(IDLE_MS)}
MIB = 1024 * 1024
HUNDRED_MIB = 100 * MIB


def test_idle_connections_are_closed_and_busy_ones_are_not(broker: BrokerProcess) -> None:
    """Silent from the start, silent inside a length, inside a frame, and behind an answer; one that goes on."""
    starts = [b"", b"\0\0", struct.pack(">i", 50) + b"\0\x12", struct.pack(">i", 50_000) + b"\0\x12"]
    idle = [RawClient(broker.port) for _ in range(5)]
    for client, start in zip(idle, starts, strict=False):
        client.send_bytes(start)
    idle[4].ask(ApiVersionsRequest(), 0)
    with RawClient(broker.port) as busy:
        began = time.monotonic()
        for client in idle:
            client.socket.settimeout(0.2)
        left = list(idle)
        while left:
            assert busy.ask(ApiVersionsRequest(), 0).error_code == 0
            left = [client for client in left if not client.is_closed(0.05)]
            assert time.monotonic() - began < patience(IDLE_MS / 1000 + 10)
        assert time.monotonic() - began > IDLE_MS / 1000 - 1
        assert busy.ask(ApiVersionsRequest(), 0).error_code == 0


def test_connections_that_are_reset_leave_nothing_behind(broker: BrokerProcess) -> None:
    before = broker.open_files
    for _ in range(200):
        client = RawClient(broker.port)
        client.send_bytes(struct.pack(">i", 500_000) + bytes(1000))
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
    until(lambda: broker.open_files <= before + 5, "the descriptors to be closed")


@pytest.fixture(scope="module")
def large_topic(broker: BrokerProcess) -> str:
    """A hundred megabytes to ask for, half of it in small batches."""
    with RawClient(broker.port) as client:
        topic = create_topic(client, "large", 1, {"segment_bytes": str(20 * MIB)})
        big, small = batch_of(bytes(1_000_000)), batch_of(bytes(9_000))
        client.send_bytes(b"".join(client.encode(produce_request(topic, big), 9) for _ in range(50)))
        client.send_bytes(b"".join(client.encode(produce_request(topic, small), 9) for _ in range(3000)))
        for _ in range(3050):
            assert client.receive().responses[0].partition_responses[0].error_code == 0
    return topic


def test_clients_that_never_read_what_they_ask_for_cost_little(broker: BrokerProcess, large_topic: str) -> None:
    """Fifty clients ask for a hundred gigabytes altogether, in large pieces and in small ones."""
    before = broker.rss_bytes
    broker.reset_peak()
    greedy = [RawClient(broker.port, timeout_seconds=0.2, receive_buffer_bytes=4096) for _ in range(50)]
    for number, client in enumerate(greedy):
        size = 50 * MIB if number % 2 else 10_000
        requests = [
            client.encode(fetch_request(large_topic, offset, partition_max_bytes=size), 12)
            for offset in range(0, 3000, 2)
        ]
        with contextlib.suppress(TimeoutError):
            client.send_bytes(b"".join(requests))
    with RawClient(broker.port) as good:
        began = time.monotonic()
        assert len(values_in(good.fetch(large_topic, 0, partition_max_bytes=5 * MIB).records)) == 5
        assert time.monotonic() - began < patience(3)
    assert broker.peak_rss_bytes - before < 100 * MIB
    for client in greedy:
        client.close()


def test_answers_that_are_made_in_memory_do_not_pile_up(broker: BrokerProcess) -> None:
    """Thousands of requests in one write, each with an answer of many kilobytes that nobody reads."""
    before = broker.rss_bytes
    broker.reset_peak()
    resource = DescribeConfigsResource(resource_type=4, resource_name="1")
    requests = [
        (DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True), 4),
        (MetadataRequest(topics=None), 9),
    ]
    lazy = [RawClient(broker.port, timeout_seconds=0.5, receive_buffer_bytes=4096) for _ in range(10)]
    for number, client in enumerate(lazy):
        request, version = requests[number % 2]
        with contextlib.suppress(TimeoutError):
            client.send_bytes(b"".join(client.encode(request, version) for _ in range(4000)))
    with RawClient(broker.port) as good:
        assert good.ask(ApiVersionsRequest(), 0).error_code == 0
    assert broker.peak_rss_bytes - before < 120 * MIB
    for client in lazy:
        client.close()


def test_a_client_that_reads_slowly_gets_everything(broker: BrokerProcess, large_topic: str) -> None:
    with RawClient(broker.port, receive_buffer_bytes=4096) as slow:
        for _ in range(3):
            slow.send(fetch_request(large_topic, 0, partition_max_bytes=3 * MIB), 12)
        slow.send_bytes(b"".join(slow.encode(ApiVersionsRequest(), 0) for _ in range(3000)))
        for _ in range(3):
            assert len(values_in(slow.receive().responses[0].partitions[0].records)) == 3
        for _ in range(3000):
            assert slow.receive().error_code == 0


@pytest.mark.parametrize("sent_bytes", [0, 70_000])
def test_many_that_announce_a_hundred_megabytes_and_stall_hold_up_nobody(
    broker: BrokerProcess, neighbour: Neighbour, sent_bytes: int
) -> None:
    before = broker.rss_bytes
    broker.reset_peak()
    stalled = [RawClient(broker.port) for _ in range(100)]
    for client in stalled:
        client.send_bytes(struct.pack(">i", HUNDRED_MIB) + bytes(sent_bytes))
    neighbour.wait_for_messages(100)
    with RawClient(broker.port) as good:
        good.metadata("beside", create=True)
        for _ in range(20):
            began = time.monotonic()
            assert good.produce("beside", batch_of(bytes(1_000_000))).error_code == 0
            assert time.monotonic() - began < patience(2)
    assert broker.peak_rss_bytes - before < 50 * MIB
    for client in stalled:
        client.close()


def test_who_holds_all_memory_without_filling_it_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small budget that is all taken by clients which send a byte now and then: the good one waits, but not long."""
    monkeypatch.setattr(listener, "STALL_SECONDS", 1.0)
    monkeypatch.setattr(listener, "SWEEP_SECONDS", 0.2)
    settings = {"queued.max.request.bytes": str(4 * MIB)}
    with BrokerThread(tmp_path / "data", settings) as thread, RawClient(thread.port, timeout_seconds=40) as good:
        create_topic(good, "t")
        holders = [RawClient(thread.port) for _ in range(8)]
        for holder in holders:
            holder.send_bytes(struct.pack(">i", MIB) + bytes(100_000))
        budget = "_budget"
        until(
            lambda: thread.look(lambda broker: getattr(broker.listener, budget).used_bytes) == 4 * MIB, "all is taken"
        )
        began = time.monotonic()
        good.send(produce_request("t", batch_of(bytes(900_000))), 9)
        assert not good.has_answer(0.5)
        while not good.has_answer(0.5):
            for holder in holders:
                with contextlib.suppress(ClosedByBrokerError):
                    holder.send_bytes(b"\0")
            assert time.monotonic() - began < patience(30)
        assert good.receive().responses[0].partition_responses[0].error_code == 0
        for holder in holders:
            holder.close()


def test_more_connections_than_allowed_wait_until_others_leave(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", {"max.connections": "20"}) as broker:
        clients = [RawClient(broker.port) for _ in range(20)]
        assert clients[-1].ask(ApiVersionsRequest(), 0).error_code == 0
        with RawClient(broker.port) as one_too_many:
            one_too_many.send(ApiVersionsRequest(), 0)
            assert not one_too_many.has_answer(0.3)
            clients.pop().close()
            assert one_too_many.receive().error_code == 0
        for client in clients:
            client.close()
