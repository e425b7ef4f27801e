"""Folders of replicas in a cluster: another broker deletes and creates topics while this one opens and removes logs."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from skylog.broker.endpoints import Endpoints
from skylog.cluster import TopicImage
from skylog.storage import Log, LogDir
from skylog.storage.partition_metadata import read_topic_id

from .loop_cluster import LoopCluster, soon


async def delete_and_create(cluster: LoopCluster) -> UUID:
    topics = cluster.brokers[1].topics
    await topics.delete(topics.get("t"))
    return (await topics.create("t", [[1, 2]])).topic_id


async def check_folder(cluster: LoopCluster, topic_id: UUID) -> None:
    """The replica of broker 2 has the folder, and what it stores is there after everything else is done."""
    await soon(lambda: cluster.find(2), "the replica")
    await cluster.append(1, b"a")
    await cluster.brokers[2].replicas.stop()
    folder = cluster.data_dir(2) / "t-0"
    assert read_topic_id(folder) == topic_id
    assert any(path.stat().st_size for path in folder.glob("*.log"))


def test_a_topic_that_is_created_again_while_its_predecessor_is_being_opened_keeps_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_open = threading.Event()
    make_log = LogDir.make_log

    def make_slowly(log_dir: LogDir, *arguments: Any) -> Log:
        if log_dir.path.name == "broker-2":
            may_open.wait()
        return make_log(log_dir, *arguments)

    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster:
            await cluster.start(1, 2)
            with monkeypatch.context() as patch:
                patch.setattr(LogDir, "make_log", make_slowly)
                await cluster.brokers[1].topics.create("t", [[1, 2]])
                await asyncio.sleep(0.01)  # broker 2 has begun to open its log
                topic_id = await delete_and_create(cluster)
                may_open.set()
                await check_folder(cluster, topic_id)

    asyncio.run(run())


def test_a_topic_that_is_created_again_after_its_predecessor_was_offline_keeps_its_folder(tmp_path: Path) -> None:
    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster:
            await cluster.start(1, 2)
            obstacle = cluster.data_dir(2) / "t-0"
            obstacle.write_text("a file in the way")
            await cluster.brokers[1].topics.create("t", [[1, 2]])
            await soon(lambda: cluster.brokers[2].replicas.offline, "the offline replica")
            obstacle.unlink()
            topic_id = await delete_and_create(cluster)
            topics = cluster.brokers[1].topics
            await check_folder(cluster, topic_id)
            await cluster.create("other", [1, 2])
            await topics.delete(topics.get("other"))
            await soon(lambda: not cluster.find(2, "other"))
            await check_folder(cluster, topic_id)

    asyncio.run(run())


def test_an_offline_replica_that_is_moved_to_another_broker_is_not_opened_any_more(tmp_path: Path) -> None:
    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster:
            await cluster.start(1, 2)
            obstacle = cluster.data_dir(2) / "t-0"
            obstacle.write_text("a file in the way")
            await cluster.brokers[1].topics.create("t", [[1, 2]])
            replicas = cluster.brokers[2].replicas
            await soon(lambda: replicas.offline, "the offline replica")
            await cluster.change("t", replicas=(1,), in_sync_replicas=(1,))
            await soon(lambda: len(cluster.image(seen_by=2).replicas) == 1)
            assert replicas.offline == {}
            obstacle.unlink()
            await replicas.reopen_offline()
            assert cluster.find(2) is None

    asyncio.run(run())


def test_a_topic_that_is_created_in_the_moment_in_which_its_predecessor_is_deleted_keeps_its_folder(
    tmp_path: Path,
) -> None:
    """One broker deletes it, another creates it before it has renamed the folder of the old log."""

    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster:
            await cluster.start(1, 2)
            old = await cluster.create("t", [2, 1])
            broker = cluster.brokers[2]
            turn = broker.topics._changing
            await turn.acquire()
            creating = asyncio.create_task(broker.topics.create("t", [[1, 2]]))
            turns = iter([turn.release])  # before the old log is removed
            broker.metadata._listeners.insert(0, lambda *_: next(turns, lambda: None)())
            await cluster.brokers[1].metadata.delete_topic(old)
            topic_id = (await creating).topic_id
            assert topic_id != old.topic_id
            await soon(lambda: cluster.find(1), "the leader")
            await check_folder(cluster, topic_id)

    asyncio.run(run())


def test_a_topic_whose_rival_was_deleted_keeps_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another broker creates a topic of the same name and deletes it again, before this one commits its own."""

    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster:
            await cluster.start(1, 2)
            first, second = cluster.brokers[1], cluster.brokers[2]
            create_topic = second.metadata.create_topic

            async def commit_late(topic: TopicImage) -> TopicImage:
                rival = await first.topics.create("t", [[1, 2]])
                await soon(lambda: "t" in second.metadata.image.topics)
                await first.topics.delete(rival)
                await soon(lambda: "t" not in second.metadata.image.topics)
                await soon(lambda: not second.replicas._removed_offline)
                async with second.replicas._folders.in_use:  # the folder of the rival would have been renamed
                    pass
                return await create_topic(topic)

            monkeypatch.setattr(second.metadata, "create_topic", commit_late)
            topic_id = (await second.topics.create("t", [[1, 2]])).topic_id
            await soon(lambda: cluster.find(1), "the leader")
            await check_folder(cluster, topic_id)

    asyncio.run(run())


def test_a_topic_that_is_deleted_while_a_broker_starts_loses_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_to_listen = Endpoints.start

    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster:
            await cluster.start(1, 2)
            await cluster.create("t", [1, 2])
            await cluster.crash(2)

            async def delete_first(*arguments: Any) -> int:
                topics = cluster.brokers[1].topics
                await topics.delete(topics.get("t"))
                return await begin_to_listen(*arguments)

            monkeypatch.setattr(Endpoints, "start", delete_first)
            folder = cluster.data_dir(2) / "t-0"
            assert folder.is_dir()
            await cluster.start(2)
            assert not folder.exists()

    asyncio.run(run())
