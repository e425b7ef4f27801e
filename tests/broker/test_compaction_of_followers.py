"""A follower's log is truncated while it is compacted: what was cut off does not come back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from skylog.broker import compactor as compactor_module
from skylog.broker.compactor import Compactor
from skylog.storage import Log
from skylog.storage.clean_job import CleanedSegment, CleanJob, CleanResult
from skylog.storage.cleaner import clean
from skylog.storage.compaction import commit

from .loop_cluster import LoopCluster, a_batch_of, values_of

CONFIGS = {"cleanup_policy": "compact", "segment_bytes": "300", "min_cleanable_dirty_ratio": "0.01"}


async def fill(cluster: LoopCluster, count: int = 20) -> None:
    """Append batches of one key, which fill several segments, and make all of them durable."""
    for number in range(count):
        await cluster.append(1, b"%d" % number)
    broker = cluster.brokers[1]
    await broker.flusher.flushed(cluster.partition(1).log)


@pytest.mark.parametrize("moment", ["while the job runs", "before the swap"])
def test_a_job_has_no_effect_on_a_log_that_is_truncated_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """This takes an unclean election: otherwise nothing is truncated that may be compacted."""

    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster:
            await cluster.start(1)
            await cluster.create("t", [1], **CONFIGS)
            await fill(cluster)
            partition = cluster.partition(1)
            log = partition.log
            _truncate_at(moment, monkeypatch, lambda: _truncate(log))
            assert await cluster.brokers[1].compactor.clean_one()
            assert log.log_end_offset == 11
            assert log.first_dirty_offset <= 10
            assert values_of(partition) == [b"%d" % number for number in range(10)] + [b"another"]
            await cluster.append(1, b"more")
            assert values_of(partition)[-2:] == [b"another", b"more"]
            assert list(log.directory.glob("*.swap")) == []

    asyncio.run(run())


def _truncate(log: Log) -> None:
    log.truncate_to(10, 0)
    batch = a_batch_of(b"another", epoch=7, base_offset=10)
    log.append_as_follower(memoryview(batch), 7, 0)
    log.advance_high_watermark(11)


def _truncate_at(moment: str, monkeypatch: pytest.MonkeyPatch, truncate: Callable[[], None]) -> None:
    """Run jobs in this process, and truncate at some moment."""

    async def run_here(_: Compactor, job: CleanJob) -> CleanResult:
        result = clean(job)
        if moment == "while the job runs":
            truncate()
        return result

    has_truncated = False

    def commit_and_truncate(directory: Path, cleaned: CleanedSegment) -> None:
        nonlocal has_truncated
        commit(directory, cleaned)
        if moment == "before the swap" and not has_truncated:
            has_truncated = True
            truncate()

    monkeypatch.setattr(Compactor, "_run", run_here)
    monkeypatch.setattr(compactor_module, "commit", commit_and_truncate)
