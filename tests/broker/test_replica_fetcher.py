"""What a follower makes of the answers of its leader."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from skylog.broker.housekeeping import Housekeeping
from skylog.broker.replication import fetcher
from skylog.protocol.replica_fetch_hot import ReplicaFetchResponse
from skylog.storage import truncation
from skylog.storage.checkpoint import RECOVERY_POINTS, read_checkpoint
from skylog.storage.files import LogFile
from skylog.storage.truncation import ProducerReplay
from tests.present import present

from .loop_cluster import LoopCluster, a_batch_of, soon
from .raw import batch_of


def test_a_new_replica_of_a_log_that_begins_inside_a_batch_gets_the_whole_batch(tmp_path: Path) -> None:
    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster:
            await cluster.start(1)
            await cluster.create("t", [1])
            await cluster.append(1, *(b"%d" % number for number in range(10)))
            cluster.partition(1).delete_records(5)
            await cluster.append(1, b"last")
            await cluster.start(2)
            await cluster.change("t", replicas=(1, 2))
            await cluster.until_in_sync(1, 2)
            replica = cluster.partition(2)
            assert (replica.log.log_start_offset, replica.log.log_end_offset) == (5, 11)
            await soon(lambda: replica.high_watermark == 11, "the high watermark")

    asyncio.run(run())


@pytest.mark.parametrize("then", ["it goes on", "the cut fails", "another fetcher takes over"])
def test_records_that_were_on_disk_are_replaced_only_after_the_checkpoint_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    """Otherwise a recovery would not check what came in their place."""
    monkeypatch.setattr(fetcher, "DAMAGE_RETRY_S", 0.1)

    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster:
            await cluster.start(1, 2)
            await cluster.create("t", [1, 2])
            await cluster.append(1, b"a")
            replica = cluster.partition(2)
            await soon(lambda: replica.high_watermark == 1)
            await cluster.membership(2).fetchers.stop()
            batch = a_batch_of(b"x", b"y", epoch=3, base_offset=1)  # of a leader that is gone
            replica.log.append_as_follower(memoryview(batch), 3, 0)
            await cluster.change("t", leader_epoch=5)
            await cluster.brokers[2].flusher.flushed(replica.log)
            await cluster.brokers[2].housekeeping.checkpoint()
            checkpoint = cluster.data_dir(2) / RECOVERY_POINTS
            assert read_checkpoint(checkpoint)[replica.name] == 3
            fetched: list[int] = []
            append = replica.log.append_as_follower

            def note(data: memoryview, leader_epoch: int, now_ms: int) -> int:
                fetched.append(read_checkpoint(checkpoint)[replica.name])
                return append(data, leader_epoch, now_ms)

            replica.log.append_as_follower = note  # type: ignore[method-assign]
            write_slowly(cluster.brokers[2].housekeeping)
            if then == "the cut fails":
                fail_once(replica.log, "_truncate_epochs")
            await cluster.append(1, b"b", b"c", b"d", acks=1)
            cluster.membership(2).fetchers.start()
            if then == "another fetcher takes over":
                await soon(lambda: replica.log.log_end_offset == 1, "the cut")
                await cluster.membership(2).fetchers.stop()
                cluster.membership(2).fetchers.start()
            await soon(lambda: cluster.values(2) == [b"a", b"b", b"c", b"d"])
            assert fetched == [1]
            assert cluster.membership(2).fetchers.failures == (then == "the cut fails")

    asyncio.run(run())


def write_slowly(housekeeping: Housekeeping) -> None:
    """Let checkpoints be written later than a follower retries."""
    checkpoint = housekeeping.checkpoint

    async def write() -> None:
        await asyncio.sleep(0.3)
        await checkpoint()

    housekeeping.checkpoint = lambda: asyncio.ensure_future(write())  # type: ignore[method-assign]


def fail_once(target: object, name: str) -> None:
    """Let the next call of a method raise OSError."""
    method = getattr(target, name)

    def fail(*_: object) -> None:
        setattr(target, name, method)
        raise OSError("broken")

    setattr(target, name, fail)


def test_a_truncation_that_cannot_be_prepared_is_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetcher, "DAMAGE_RETRY_S", 0.1)
    monkeypatch.setattr(truncation, "SHORT_BYTES", -1)
    run_replay, runs = ProducerReplay.run, 0

    def fail_first(replay: ProducerReplay) -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise OSError("broken")
        run_replay(replay)

    monkeypatch.setattr(ProducerReplay, "run", fail_first)

    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster:
            await cluster.start(1, 2)
            await cluster.create("t", [1, 2])
            leader, replica = cluster.partition(1), cluster.partition(2)
            leader.append(memoryview(batch_of(b"a", producer_id=7, producer_epoch=0, base_sequence=0)), 0, 1)
            await soon(lambda: replica.high_watermark == 1)
            await cluster.membership(2).fetchers.stop()
            replica.log.append_as_follower(memoryview(a_batch_of(b"x", b"y", epoch=3, base_offset=1)), 3, 0)
            await cluster.change("t", leader_epoch=5)
            await cluster.append(1, b"b", acks=1)
            cluster.membership(2).fetchers.start()
            await soon(lambda: cluster.values(2) == [b"a", b"b"])
            assert runs == 2

    asyncio.run(run())


def test_a_log_whose_fsync_has_failed_is_not_reported_as_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even if a second fsync succeeds: the kernel forgets what it could not write."""

    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster:
            await cluster.start(1, 2)
            await cluster.create("t", [1, 2], flush_messages="1")
            await cluster.append(1, b"a")
            replica, sync = cluster.partition(2), LogFile.sync
            failed: list[Path] = []

            def fail_once(file: LogFile) -> None:
                if not failed and "broker-2" in str(file.path):
                    failed.append(file.path)
                    raise OSError("broken")
                sync(file)

            monkeypatch.setattr(LogFile, "sync", fail_once)
            second = asyncio.ensure_future(cluster.append(1, b"b"))
            await soon(lambda: replica.log.failure, "the failure")
            await asyncio.sleep(1.3)  # the follower tries again after a second
            assert present(cluster.partition(1).leading).followers[2].end_offset == 1
            assert replica.log.recovery_point == 1
            await second  # the follower has left the in-sync set
            assert cluster.image().in_sync_replicas == (1,)

    asyncio.run(run())


def test_a_log_that_could_not_be_truncated_is_left_alone_until_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row is not sent any more. The leader goes on answering the last one, with every new high watermark."""

    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster:
            await cluster.start(1, 2)
            await cluster.create("t", [1, 2])
            await cluster.append(1, b"a")
            replica = cluster.partition(2)
            await soon(lambda: replica.high_watermark == 1)
            await cluster.membership(2).fetchers.stop()
            replica.log.append_as_follower(memoryview(a_batch_of(b"x", epoch=3, base_offset=1)), 3, 0)
            await cluster.change("t", leader_epoch=5, in_sync_replicas=(1,))
            answered: list[int] = []
            cuts: list[int] = []
            store = fetcher.ReplicaFetcher._store

            async def note(self: fetcher.ReplicaFetcher, response: ReplicaFetchResponse, request: int) -> None:
                answered.append(sum(answer.diverging is not None for answer in response.answers))
                await store(self, response, request)

            def fail(_: object, offset: int, *__: object) -> list[Path]:
                cuts.append(offset)
                raise OSError("broken")

            def has_answers(count: int) -> bool:
                return sum(answered) >= count

            monkeypatch.setattr(fetcher.ReplicaFetcher, "_store", note)
            monkeypatch.setattr(type(replica.log._segments), "truncate_to", fail)
            cluster.membership(2).fetchers.start()
            await soon(lambda: replica.log.failure, "the failure")
            for count in range(2, 5):
                await cluster.append(1, b"b")
                await soon(partial(has_answers, count), "an answer with the new high watermark")
            assert cuts == [1]

    asyncio.run(run())
