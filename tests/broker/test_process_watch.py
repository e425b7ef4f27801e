"""Processes that end are noticed by refused connections; and a broker that was removed by mistake joins again."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from skylog.broker import Broker, ServerConfig, process_watch
from skylog.broker.clustered import clustered_broker
from skylog.broker.process_watch import ProcessWatch
from skylog.cluster import BrokerImage, EmbeddedStore, MetadataStore
from skylog.errors import SkylogError
from skylog.model import TopicPartition

PATIENCE_S = 20.0


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110  # nothing sets an event here
            await asyncio.sleep(0.01)


def watching(test: Callable[[ProcessWatch, list[int]], Awaitable[None]]) -> None:
    async def run() -> None:
        ended: list[int] = []

        async def report(broker: BrokerImage) -> None:
            ended.append(broker.node_id)

        watch = ProcessWatch(report)
        try:
            await test(watch, ended)
        finally:
            await watch.stop()

    asyncio.run(run())


def test_a_broker_whose_port_is_closed_has_ended() -> None:
    async def test(watch: ProcessWatch, ended: list[int]) -> None:
        writers: list[asyncio.StreamWriter] = []
        server = await asyncio.start_server(lambda _, writer: writers.append(writer), "127.0.0.1", 0)
        watch.watch([BrokerImage(1, *server.sockets[0].getsockname())])
        await until(lambda: len(writers) == 1)
        await asyncio.sleep(0.3)
        assert ended == []
        server.close()
        for writer in writers:
            writer.close()
        await until(lambda: ended == [1])

    watching(test)


def test_a_broker_that_is_there_although_its_connections_are_refused_is_reported_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A firewall between the two may reset every connection. Otherwise the broker would be removed every second."""
    monkeypatch.setattr(process_watch, "REFUSED_RETRY_S", 0.02)
    monkeypatch.setattr(process_watch, "RETRY_S", 0.05)

    async def test(watch: ProcessWatch, ended: list[int]) -> None:
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        host, port = address = server.sockets[0].getsockname()
        server.close()
        watch.watch([BrokerImage(1, host, port)])
        await until(lambda: ended == [1])
        await asyncio.sleep(0.3)
        watch.watch([BrokerImage(1, host, port, incarnation=1)])  # it has joined again
        await asyncio.sleep(0.3)
        assert ended == [1]
        writers: list[asyncio.StreamWriter] = []
        server = await asyncio.start_server(lambda _, writer: writers.append(writer), *address)
        await until(lambda: len(writers) == 1)
        server.close()
        writers[0].close()
        await until(lambda: ended == [1, 1])

    watching(test)


def test_a_broker_is_reported_once_though_it_is_not_watched_any_more_before_the_report_returns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The store may report the removal first. Otherwise a broker with a wrong address would be removed for ever."""
    monkeypatch.setattr(process_watch, "REFUSED_RETRY_S", 0.02)
    monkeypatch.setattr(process_watch, "RETRY_S", 0.05)

    async def run() -> None:
        ended: list[int] = []

        async def remove(broker: BrokerImage) -> None:
            ended.append(broker.incarnation)
            watch.watch([])
            await asyncio.sleep(0)

        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        server.close()
        watch = ProcessWatch(remove)
        watch.watch([BrokerImage(1, *address)])
        await until(lambda: ended == [0])
        watch.watch([BrokerImage(1, address[0], address[1], incarnation=1)])
        await asyncio.sleep(0.3)
        assert ended == [0]
        await watch.stop()

    asyncio.run(run())


def test_a_report_that_fails_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_watch, "REFUSED_RETRY_S", 0.02)
    monkeypatch.setattr(process_watch, "RETRY_S", 0.05)

    async def run() -> None:
        reports = 0

        async def unable(_: BrokerImage) -> None:
            nonlocal reports
            reports += 1
            raise SkylogError("no session")

        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        server.close()
        watch = ProcessWatch(unable)
        watch.watch([BrokerImage(1, *address)])
        await until(lambda: reports == 3)
        await watch.stop()

    asyncio.run(run())


def test_a_broker_that_accepts_and_says_nothing_is_left_to_its_session() -> None:
    async def test(watch: ProcessWatch, ended: list[int]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:  # the kernel accepts, the process does not
            watch.watch([BrokerImage(1, *silent.getsockname())])
            await asyncio.sleep(1)
            assert ended == []

    watching(test)


def test_a_broker_that_closes_the_connection_is_still_there() -> None:
    async def test(watch: ProcessWatch, ended: list[int]) -> None:
        connections = 0

        def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal connections
            connections += 1
            writer.close()

        server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
        watch.watch([BrokerImage(1, *server.sockets[0].getsockname())])
        await until(lambda: connections >= 3)
        assert ended == []
        server.close()

    watching(test)


def test_a_broker_that_was_removed_by_mistake_joins_again_and_leads(tmp_path: Path) -> None:
    async def run() -> None:
        store = EmbeddedStore(None)

        async def open_session() -> MetadataStore:
            return store.open_session()

        async def start(node_id: int) -> Broker:
            config = ServerConfig.parse({"node.id": str(node_id), "default.replication.factor": "2"})
            broker = await clustered_broker(tmp_path / str(node_id), open_session, config)
            await broker.start("127.0.0.1", 0)
            return broker

        first, second = await start(1), await start(2)
        await until(lambda: first.metadata.image.controller_id == 1)
        topic = await first.topics.create("t", [[2, 1]])
        await until(lambda: second.replicas.find(TopicPartition(topic.name, 0)) is not None)
        before = first.metadata.image.brokers[2]
        await first.metadata.remove_broker(before)
        await until(lambda: first.metadata.image.brokers.get(2, before).incarnation > before.incarnation)
        await until(lambda: set(first.metadata.image.topics["t"].partitions[0].in_sync_replicas) == {1, 2})
        assert first.metadata.image.topics["t"].partitions[0].leader == 1
        assert first.replicas.leader("t", 0).is_leader
        await second.stop()
        await first.stop()

    asyncio.run(run())
