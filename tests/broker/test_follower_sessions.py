"""What a leader answers to the fetches of followers: nothing is forgotten, and nothing is kept for too long."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import UUID

import pytest

from skylog.broker.replication import follower_sessions
from skylog.errors import ErrorCode
from skylog.protocol.fetch import FetchPartition, FetchResponse

from .loop_cluster import FollowerByHand, LoopCluster, soon


def with_a_follower(
    path: Path, test: Callable[[LoopCluster, FollowerByHand], Awaitable[None]], **settings: str
) -> None:
    """Broker 1 leads; the test sends the fetches of broker 2."""

    async def run() -> None:
        async with LoopCluster(path, {key.replace("_", "."): value for key, value in settings.items()}) as cluster:
            await cluster.start(1)
            await test(cluster, await cluster.by_hand(2, leader=1))

    asyncio.run(run())


def row(offset: int, max_bytes: int = 1 << 20, epoch: int = 0) -> FetchPartition:
    return FetchPartition(
        partition=0,
        current_leader_epoch=0,
        fetch_offset=offset,
        last_fetched_epoch=epoch if offset else -1,
        log_start_offset=0,
        partition_max_bytes=max_bytes,
    )


def sizes(response: FetchResponse) -> dict[UUID, int]:
    return {topic.topic_id: len(topic.partitions[0].records or b"") for topic in response.responses}


def test_a_batch_that_does_not_fit_is_sent_with_the_next_response(tmp_path: Path) -> None:
    """Nothing else may remind the leader of it: there may be no further append."""

    async def test(cluster: LoopCluster, follower: FollowerByHand) -> None:
        small, large = [(await cluster.create(name, [1, 2])).topic_id for name in ("small", "large")]
        await follower.ask([(small, [row(0)]), (large, [row(0)])])
        await cluster_append(cluster, "small", b"x" * 100)
        await cluster_append(cluster, "large", b"x" * 50_000)
        first = await follower.ask(max_bytes=1000)
        assert set(sizes(first)) == {small}
        second = await follower.ask(max_bytes=1000)
        assert sizes(second)[large] > 50_000

    with_a_follower(tmp_path, test)


def test_a_batch_above_the_limit_is_sent_after_a_watermark_of_another_partition(tmp_path: Path) -> None:
    async def test(cluster: LoopCluster, follower: FollowerByHand) -> None:
        other, large = [(await cluster.create(name, [1, 2])).topic_id for name in ("other", "large")]
        await cluster_append(cluster, "other", b"x")
        await follower.ask([(other, [row(0)])])
        await cluster_append(cluster, "large", b"x" * 50_000)
        response = await follower.ask([(other, [row(1)]), (large, [row(0, max_bytes=1000)])])
        assert list(sizes(response)) == [other, large]
        assert sizes(response)[large] > 50_000

    with_a_follower(tmp_path, test)


def test_a_watermark_alone_waits_for_records_to_go_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The follower's own position has raised it. Otherwise each append would take two fetches."""

    async def test(cluster: LoopCluster, follower: FollowerByHand) -> None:
        topic_id = (await cluster.create("t", [1, 2])).topic_id
        await cluster_append(cluster, "t", b"a")
        await follower.ask([(topic_id, [row(0)])])
        waiting = asyncio.create_task(follower.ask([(topic_id, [row(1)])], max_wait_ms=20_000))
        await soon(lambda: cluster.partition(1).high_watermark == 1)
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await cluster_append(cluster, "t", b"b")
        answer = (await waiting).responses[0].partitions[0]
        assert (answer.high_watermark, len(answer.records or b"") > 0) == (1, True)
        monkeypatch.setattr(follower_sessions, "WATERMARK_DELAY_S", 0.01)
        late = await follower.ask([(topic_id, [row(2)])], max_wait_ms=20_000)
        assert (late.responses[0].partitions[0].high_watermark, sizes(late)) == (2, {topic_id: 0})

    monkeypatch.setattr(follower_sessions, "WATERMARK_DELAY_S", 10.0)
    with_a_follower(tmp_path, test)


async def cluster_append(cluster: LoopCluster, topic: str, value: bytes) -> None:
    await cluster.append(1, value, acks=1, topic=topic)


def test_a_former_incarnation_of_a_follower_is_not_heard(tmp_path: Path) -> None:
    """It would report what its successor does not have, and that would be committed."""

    async def test(cluster: LoopCluster, follower: FollowerByHand) -> None:
        await cluster.create("t", [1, 2])
        await cluster.append(1, b"a", acks=1)
        former = follower.incarnation
        await follower.register()
        await soon(lambda: cluster.brokers[1].metadata.image.brokers[2].incarnation > former)
        topic_id = cluster.brokers[1].metadata.image.topics["t"].topic_id
        response = await follower.ask([(topic_id, [row(1)])], incarnation=former)
        assert response.error_code == ErrorCode.STALE_BROKER_EPOCH
        assert cluster.partition(1).high_watermark == 0
        await follower.ask([(topic_id, [row(1)])])
        assert cluster.partition(1).high_watermark == 1

    with_a_follower(tmp_path, test)


def test_a_broker_that_is_not_registered_is_not_served(tmp_path: Path) -> None:
    async def test(cluster: LoopCluster, follower: FollowerByHand) -> None:
        topic_id = (await cluster.create("t", [1, 2])).topic_id
        await follower.leave()
        await soon(lambda: 2 not in cluster.brokers[1].metadata.image.brokers)
        refused = await follower.ask([(topic_id, [row(0)])])
        assert refused.error_code == ErrorCode.STALE_BROKER_EPOCH
        assert cluster.membership(1).followers._sessions == {}

    with_a_follower(tmp_path, test)


def test_the_session_of_a_broker_that_left_keeps_nothing(tmp_path: Path) -> None:
    async def test(cluster: LoopCluster, follower: FollowerByHand) -> None:
        topic_id = (await cluster.create("t", [1, 2])).topic_id
        await follower.ask([(topic_id, [row(0)])])
        partition = cluster.partition(1)
        assert len(partition._listeners.followers) == 1
        await follower.leave()
        await soon(lambda: 2 not in cluster.brokers[1].metadata.image.brokers)
        assert (partition._listeners.followers, partition._listeners.consumers) == ({}, {})
        log = weakref.ref(partition.log)
        del partition
        topics = cluster.brokers[1].topics
        await topics.delete(topics.get("t"))
        gc.collect()
        assert log() is None

    with_a_follower(tmp_path, test)
