"""The leader changes its in-sync sets: what counts while a change is in flight, and that each change ends."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from skylog.broker.partition import Partition
from skylog.broker.replication import in_sync_sets
from skylog.cluster import TopicImage
from skylog.cluster.elections import ElectionRules
from skylog.errors import KafkaError
from skylog.storage import UncheckedError, plan_scrub
from skylog.storage.segment import Segment
from tests.present import present

from .loop_cluster import FollowerByHand, LoopCluster, soon


def with_a_lone_leader(
    path: Path, test: Callable[[LoopCluster, FollowerByHand], Awaitable[None]], **settings: str
) -> None:
    """Broker 1 leads topic `t` and is alone in sync. Follower 2, which the test controls, is at the end of its log."""

    async def run() -> None:
        async with LoopCluster(path, {key.replace("_", "."): value for key, value in settings.items()}) as cluster:
            await cluster.start(1)
            follower = await cluster.by_hand(2, leader=1)
            await cluster.create("t", [1, 2])
            await cluster.change("t", in_sync_replicas=(1,))
            await cluster.append(1, b"first")
            await test(cluster, follower)

    asyncio.run(run())


def test_an_append_waits_for_a_follower_that_is_being_added(tmp_path: Path) -> None:
    async def test(cluster: LoopCluster, follower: FollowerByHand) -> None:
        cluster.gates[1].close()
        await follower.fetch(1, 0)
        await soon(lambda: cluster.gates[1].waiting, "the commit")
        second = asyncio.ensure_future(cluster.append(1, b"second"))
        await asyncio.sleep(0)
        assert not second.done(), "committed without the follower that is about to be in sync"
        cluster.gates[1].open()
        await cluster.until_in_sync(1, 2)
        assert not second.done()
        await follower.fetch(2, 0)
        await second

    with_a_lone_leader(tmp_path, test)


def test_another_change_of_the_topic_does_not_end_the_one_in_flight(tmp_path: Path) -> None:
    """The commit is tried again after the conflict. The follower counts until then."""

    async def test(cluster: LoopCluster, follower: FollowerByHand) -> None:
        await cluster.start(3)
        cluster.gates[1].close()
        await follower.fetch(1, 0)
        await soon(lambda: cluster.gates[1].waiting, "the commit")
        topics = cluster.brokers[3].topics
        await topics.configure(topics.get("t"), lambda configs: {**configs, "retention.ms": "5000"})
        leader = cluster.partition(1)
        assert leader.log.config.retention_ms == 5000
        second = asyncio.ensure_future(cluster.append(1, b"second"))
        await asyncio.sleep(0)
        assert not second.done(), "committed without the follower that is about to be in sync"
        cluster.gates[1].open()
        await cluster.until_in_sync(1, 2)
        assert not second.done()
        await follower.fetch(2, 0)
        await second

    with_a_lone_leader(tmp_path, test)


def test_a_follower_joins_too_few_replicas_although_the_log_grows_all_the_time(tmp_path: Path) -> None:
    """It never sees the end of the log, but always what was the end at its previous fetch."""

    async def test(cluster: LoopCluster, follower: FollowerByHand) -> None:
        topics = cluster.brokers[1].topics
        await topics.configure(topics.get("t"), lambda configs: {**configs, "min.insync.replicas": "2"})
        end_offset = 1
        for _ in range(3):
            await cluster.append(1, b"more", acks=1)
            await follower.fetch(end_offset, 0)
            end_offset += 1
        await cluster.until_in_sync(1, 2)

    with_a_lone_leader(tmp_path, test)


def test_a_session_that_expires_during_a_change_does_not_stop_later_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(cluster: LoopCluster, follower: FollowerByHand) -> None:
        monkeypatch.setattr(in_sync_sets, "COLLECT_S", 1000)
        await follower.fetch(1, 0)
        await cluster.expire(1)
        await soon(lambda: cluster.partition(1).is_leader)
        monkeypatch.setattr(in_sync_sets, "COLLECT_S", 0)
        await follower.join(1)

    with_a_lone_leader(tmp_path, test)


def test_a_change_of_a_deleted_topic_does_not_apply_to_its_successor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(cluster: LoopCluster, follower: FollowerByHand) -> None:
        await cluster.start(3)
        monkeypatch.setattr(in_sync_sets, "COLLECT_S", 0.2)
        await follower.fetch(1, 0)
        (change,) = cluster.membership(1).in_sync_sets._tasks
        topics = cluster.brokers[3].topics
        await topics.delete(topics.get("t"))
        await cluster.create("t", [3, 2])
        await cluster.change("t", in_sync_replicas=(3,))
        assert not change.done()
        await change
        assert cluster.image("t").in_sync_replicas == (3,)

    with_a_lone_leader(tmp_path, test)


def test_a_failed_check_is_not_the_last_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_sync_sets, "RECONSIDER_S", 0.2)

    async def test(cluster: LoopCluster, follower: FollowerByHand) -> None:
        await follower.join(1)
        sets = cluster.membership(1).in_sync_sets
        rules, calls = sets._rules, 0

        def failing(topic: TopicImage) -> ElectionRules:
            nonlocal calls
            calls += 1
            if calls == 1:
                raise ZeroDivisionError
            return rules(topic)

        sets._rules = failing
        await cluster.change("t", in_sync_replicas=(1,))
        await cluster.until_in_sync(1, 2)
        assert (calls > 1, sets.failures) == (True, 1)

    with_a_lone_leader(tmp_path, test, replica_lag_time_max_ms="10000")


def test_a_follower_that_was_removed_because_it_does_not_fetch_is_not_added_again_without_a_fetch(
    tmp_path: Path,
) -> None:
    """KAFKA-19996: it still has everything below the high watermark, and would be removed again at once."""

    async def test(cluster: LoopCluster, follower: FollowerByHand) -> None:
        await follower.join(1)
        await cluster.until_in_sync(1)
        replicas = cluster.brokers[1].replicas
        changes = replicas.in_sync_shrinks, replicas.in_sync_expands
        await asyncio.sleep(1)  # five checks
        assert (replicas.in_sync_shrinks, replicas.in_sync_expands) == changes
        await follower.join(1)

    with_a_lone_leader(tmp_path, test, replica_lag_time_max_ms="400")


def test_a_leader_whose_disk_fails_lets_another_replica_lead(tmp_path: Path) -> None:
    async def run() -> None:
        async with LoopCluster(tmp_path, {"replica.lag.time.max.ms": "500"}) as cluster:
            await cluster.start(1, 2)
            await cluster.create("t", [1, 2])
            await cluster.append(1, b"a")
            cluster.partition(1).log.failure = "broken"
            await soon(lambda: cluster.partition(2).is_leader, "the new leader")
            assert cluster.image().in_sync_replicas == (2,)
            await cluster.append(2, b"b")

    asyncio.run(run())


def test_a_leader_whose_log_cannot_be_opened_lets_another_replica_lead(tmp_path: Path) -> None:
    """It joins the in-sync set again when the log is open. A replica that is alone stays the leader."""

    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster:
            await cluster.start(1, 2)
            blocking = [cluster.data_dir(1) / f"t-{index}" for index in (0, 1)]
            for path in blocking:
                path.write_text("a file where the folder should be")
            await cluster.brokers[2].topics.create("t", [[1, 2], [1]])
            await soon(lambda: len(cluster.brokers[1].replicas.offline) == 2, "the offline logs")
            await soon(lambda: cluster.partition(2).is_leader, "the new leader")
            assert cluster.image().in_sync_replicas == (2,)
            await cluster.append(2, b"a")
            for path in blocking:
                path.unlink()
            await cluster.brokers[1].replicas.reopen_offline()
            await cluster.until_in_sync(1, 2)
            assert cluster.values(1) == [b"a"]
            assert cluster.partition(1, index=1).is_leader

    asyncio.run(run())


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> set[Path]:
    """The data directories whose disks are full, for half a second of patience."""
    append = Segment.append
    full: set[Path] = set()

    def fail(segment: Segment, *given: Any) -> None:
        if any(segment.path.is_relative_to(each) for each in full):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        append(segment, *given)

    monkeypatch.setattr(Segment, "append", fail)
    monkeypatch.setattr(in_sync_sets, "WRITE_PATIENCE_S", 0.5)
    return full


def test_a_leader_whose_disk_is_full_lets_another_replica_lead(tmp_path: Path, full: set[Path]) -> None:
    """Not at once: retention may make room. And not for a failure of a former leadership, or one that has passed."""

    async def run() -> None:
        async with LoopCluster(tmp_path, {"replica.lag.time.max.ms": "200"}) as cluster:
            await cluster.start(1, 2)
            await cluster.create("t", [1, 2])
            full.add(cluster.data_dir(1))
            with pytest.raises(KafkaError, match="No space left"):
                await cluster.append(1, b"a")
            full.clear()
            await cluster.append(1, b"a")
            await asyncio.sleep(0.8)
            assert cluster.partition(1).is_leader
            full.add(cluster.data_dir(1))
            with pytest.raises(KafkaError, match="No space left"):
                await cluster.append(1, b"b")
            assert cluster.partition(1).is_leader
            await soon(lambda: cluster.partition(2).is_leader, "the new leader")
            full.clear()
            await cluster.append(2, b"b")
            await cluster.until_in_sync(2, 1)
            await cluster.change("t", leader=1, leader_epoch=cluster.image().leader_epoch + 1)
            await soon(lambda: cluster.partition(1).is_leader, "the old leader")
            await asyncio.sleep(0.8)
            assert cluster.partition(1).is_leader

    asyncio.run(run())


def test_a_follower_whose_disk_is_full_leaves_the_in_sync_set(tmp_path: Path, full: set[Path]) -> None:
    """So producers do not wait until it lags. It joins again when there is room."""

    async def run() -> None:
        async with LoopCluster(tmp_path, {"min.insync.replicas": "2"}) as cluster:
            await cluster.start(1, 2, 3)
            await cluster.create("t", [1, 2, 3])
            full.add(cluster.data_dir(2))
            began_s = time.monotonic()
            await cluster.append(1, b"a")
            assert time.monotonic() - began_s < 10  # replica.lag.time.max.ms is 30 s
            assert cluster.image().in_sync_replicas == (1, 3)
            full.clear()
            await cluster.until_in_sync(1, 3, 2)
            assert cluster.values(2) == [b"a"]

    asyncio.run(run())


def test_a_follower_that_cannot_truncate_for_lack_of_room_leaves_the_in_sync_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A former leader whose disk is full may have an epoch to remove, which takes a write before it can append."""
    monkeypatch.setattr(in_sync_sets, "WRITE_PATIENCE_S", 0.5)
    append, is_full = Partition.append_from_leader, True

    def fail(partition: Partition, *given: Any) -> None:
        if is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        append(partition, *given)

    monkeypatch.setattr(Partition, "append_from_leader", fail)

    async def run() -> None:
        nonlocal is_full
        async with LoopCluster(tmp_path) as cluster:
            await cluster.start(1, 2)
            await cluster.create("t", [1, 2])
            await asyncio.wait_for(cluster.append(1, b"a"), 10)  # replica.lag.time.max.ms is 30 s
            assert cluster.image().in_sync_replicas == (1,)
            is_full = False
            await cluster.until_in_sync(1, 2)

    asyncio.run(run())


def test_a_follower_whose_log_cannot_be_opened_leaves_the_in_sync_set(tmp_path: Path) -> None:
    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster:
            await cluster.start(1, 2)
            blocking = cluster.data_dir(2) / "t-0"
            blocking.write_text("a file where the folder should be")
            await cluster.brokers[1].topics.create("t", [[1, 2]])
            await soon(lambda: cluster.image().in_sync_replicas == (1,), "the follower to leave")
            blocking.unlink()
            await cluster.brokers[2].replicas.reopen_offline()
            await cluster.until_in_sync(1, 2)

    asyncio.run(run())


def test_a_leader_whose_disk_fails_stays_if_there_is_no_other(tmp_path: Path) -> None:
    async def test(cluster: LoopCluster, _: FollowerByHand) -> None:
        cluster.partition(1).log.failure = "broken"
        epoch = cluster.image().leader_epoch
        await asyncio.sleep(0.3)
        assert (cluster.image().leader, cluster.image().leader_epoch) == (1, epoch)

    with_a_lone_leader(tmp_path, test, replica_lag_time_max_ms="200")


def test_a_leader_whose_uncommitted_batch_is_damaged_stays_if_there_is_no_other(tmp_path: Path) -> None:
    async def test(cluster: LoopCluster, _: FollowerByHand) -> None:
        broker, log = cluster.brokers[1], cluster.partition(1).log
        await broker.topics.configure(broker.topics.get("t"), lambda now: {**now, "min.insync.replicas": "2"})
        await cluster.append(1, b"second", acks=1)
        damage_the_end(log.segments[-1].path)
        part = plan_scrub(log, 1, 1, log.log_end_offset)
        await broker.checks.run(log, UncheckedError(present(part)))
        assert present(log.uncommitted_damage).due_offset == log.high_watermark == 1
        epoch = cluster.image().leader_epoch
        await cluster.membership(1).in_sync_sets._check_all()
        await asyncio.sleep(0.1)
        assert (cluster.image().leader, cluster.image().leader_epoch) == (1, epoch)
        assert cluster.membership(1).in_sync_sets.failures == 0

    with_a_lone_leader(tmp_path, test)


def damage_the_end(path: Path) -> None:
    with open(path, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"!")
