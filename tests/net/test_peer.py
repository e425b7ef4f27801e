"""The client of other brokers: against a real broker, and against servers that misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from skylog.net.peer import Peer, PeerError
from skylog.protocol.apis import ApiKey
from skylog.protocol.create_topics import CreatableTopic, CreateTopicsRequest
from skylog.protocol.metadata import MetadataRequest, MetadataRequestTopic
from skylog.testing import BrokerProcess

ALL = MetadataRequest(topics=None)


@pytest.fixture(scope="module")
def broker() -> Any:
    with BrokerProcess() as found:
        yield found


def with_peer(broker: BrokerProcess, work: Callable[[Peer], Awaitable[None]]) -> None:
    async def run() -> None:
        peer = await Peer.connect("127.0.0.1", broker.port, client_id="test", timeout_s=20)
        try:
            await work(peer)
        finally:
            peer.close()

    asyncio.run(run())


def test_requests_are_answered_in_the_newest_common_version(broker: BrokerProcess) -> None:
    async def work(peer: Peer) -> None:
        topic = CreatableTopic(name="t", num_partitions=3, replication_factor=1)
        created = await peer.ask(CreateTopicsRequest(topics=[topic]))
        assert [(row.name, row.error_code, row.num_partitions) for row in created.topics] == [("t", 0, 3)]
        found = await peer.ask(ALL)
        assert found.brokers[0].port == broker.port
        assert peer.version_of(ApiKey.METADATA) > 9

    with_peer(broker, work)


def test_pipelined_requests_are_answered_in_order(broker: BrokerProcess) -> None:
    async def work(peer: Peer) -> None:
        names = [f"not-there-{number}" for number in range(40)]
        requests = [
            MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False) for name in names
        ]
        sent = (peer.send(request, version) for request, version in zip(requests, (5, 9, 12, 10) * 10, strict=True))
        answers: list[Any] = await asyncio.gather(*sent)
        assert [topic.name for answer in answers for topic in answer.topics] == names

    with_peer(broker, work)


def test_a_killed_broker_fails_waiting_and_later_requests(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:

        async def work(peer: Peer) -> None:
            waiting = [peer.send(ALL) for _ in range(3)]
            broker.kill()
            results = await asyncio.gather(*waiting, return_exceptions=True)
            assert any(isinstance(each, PeerError) for each in results) or not peer.is_open or await closes(peer)
            with pytest.raises(PeerError):
                await peer.ask(ALL)

        with_peer(broker, work)


async def closes(peer: Peer) -> bool:
    for _ in range(500):
        if not peer.is_open:
            return True
        await asyncio.sleep(0.01)
    return False


def test_a_refused_connection_is_an_error_that_names_the_address() -> None:
    async def run() -> None:
        with pytest.raises(PeerError, match=r"cannot connect to the broker at 127\.0\.0\.1:1"):
            await Peer.connect("127.0.0.1", 1, client_id="test", timeout_s=5)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "did not respond|cannot connect"),
        (b"\xff\xff\xff\xff", "invalid response"),
        (b"\x7f\xff\xff\xff", "invalid response"),
        (b"\0\0\0\x08\0\0\0\x07\0\0\0\0", "correlation id 7, expected 0"),
        (b"\0\0\0\x05\0\0\0\0\0", "invalid response"),
    ],
    ids=["silence", "negative size", "huge size", "another id", "cut short"],
)
def test_a_server_that_is_no_broker_is_an_error(answer: bytes, reason: str) -> None:
    kept = []  # since Python 3.13, a writer without references closes its connection

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        kept.append(writer)
        await reader.read(100)
        writer.write(answer)
        await writer.drain()

    async def run() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(PeerError, match=reason):
            await Peer.connect("127.0.0.1", port, client_id="test", timeout_s=0.5)
        server.close()

    asyncio.run(run())
