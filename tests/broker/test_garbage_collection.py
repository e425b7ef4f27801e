"""Requests create no reference cycles, so their objects are freed without a collection, which would block the loop."""

from __future__ import annotations

import gc
from pathlib import Path

from skylog.protocol.api_versions import ApiVersionsRequest
from skylog.protocol.find_coordinator import FindCoordinatorRequest
from skylog.protocol.heartbeat import HeartbeatRequest
from skylog.records import Codec, Record, build_batch

from .conftest import create_topic
from .process import BrokerThread, until
from .raw import RawClient, batch_of, fetch_request, produce_request

ROUNDS = 50


def test_requests_and_connections_leave_no_reference_cycles(tmp_path: Path) -> None:
    with BrokerThread(tmp_path / "data") as thread:
        with RawClient(thread.port) as client:
            client.metadata("t", create=True)
            client.ask(FindCoordinatorRequest(key="g"), 2)
            create_topic(client, "compacted", configs={"cleanup.policy": "compact"})
        _visit(thread.port)
        until(lambda: not thread.look(lambda broker: broker.listener.connections), "the connections to be closed")
        gc.collect()
        gc.disable()
        try:
            for _ in range(ROUNDS):
                _visit(thread.port)
            until(lambda: not thread.look(lambda broker: broker.listener.connections), "the connections to be closed")
            found = gc.collect()
        finally:
            gc.enable()
    assert found < ROUNDS, f"{found / ROUNDS:.1f} objects in cycles for each visit"


def _visit(port: int) -> None:
    """A producer, consumers that are woken, late or leave, a member, batches that are refused, something unreadable."""
    with RawClient(port) as client, RawClient(port) as waiting, RawClient(port) as leaving, RawClient(port) as bad:
        end = client.end_offset("t")
        waiting.send(fetch_request("t", end, max_wait_ms=20_000), 12)
        leaving.send(fetch_request("t", end + 1, max_wait_ms=20_000), 12)
        leaving.send(fetch_request("t", end, max_wait_ms=20_000, min_bytes=1 << 20), 12)
        client.ask(ApiVersionsRequest(), 0)
        for _ in range(3):
            client.ask(produce_request("t", batch_of(b"v")), 9)
        waiting.receive()
        waiting.ask(fetch_request("t", end + 3, max_wait_ms=1), 12)
        client.ask(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4)
        for refused in (batch_of(b"v") + b"\0", bytes(100), bytes(2 << 20)):
            assert client.produce("t", refused).error_code
        assert client.produce("missing", batch_of(b"v", producer_id=1, producer_epoch=0, base_sequence=5)).error_code
        keyless = build_batch([Record(b"v", None, 1)], codec=Codec.GZIP)  # opened in a thread
        assert client.produce("compacted", keyless).error_code
        bad.send_bytes(b"\0\0\0\x0a\0\x01\x7f\xff\0\0\0\1\xff\xff")
        bad.is_closed()
