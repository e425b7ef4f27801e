"""What the compactor does with the results of a job: the old segments disappear."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from skylog.broker.cleaner_process import CleanerProcess
from skylog.storage.clean_job import FOLDER
from skylog.storage.compaction import swap_path

from .loop_cluster import LoopCluster, soon, values_of
from .test_compaction_of_followers import CONFIGS, fill


@pytest.mark.parametrize("dies", [False, True])
def test_the_process_deletes_the_old_segments_and_the_broker_if_it_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    discarded: list[Path] = []
    delete = CleanerProcess.delete

    async def delete_or_die(process: CleanerProcess, names: Sequence[str]) -> bool:
        assert names
        if dies:
            process.kill()
        return await delete(process, names)

    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster:
            await cluster.start(1)
            await cluster.create("t", [1], **CONFIGS)
            await fill(cluster)
            log = cluster.partition(1).log
            compactor = cluster.brokers[1].compactor
            discard = compactor._discard

            def note(path: Path) -> None:
                discarded.append(path)
                discard(path)

            monkeypatch.setattr(compactor, "_discard", note)
            assert await compactor.clean_one()
            assert compactor.runs == 1
            assert values_of(cluster.partition(1))[-1] == b"19"
            assert log.segments[0].base_offset == 0
            await soon(lambda: not list(log.directory.glob("*.deleted")), "the end of the old segments")
            assert bool(discarded) == dies

    monkeypatch.setattr(CleanerProcess, "delete", delete_or_die)
    asyncio.run(run())


def test_a_range_whose_result_was_discarded_is_still_dirty(tmp_path: Path) -> None:
    """Retention has dropped its first segment meanwhile."""

    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster:
            await cluster.start(1)
            await cluster.create("t", [1], **CONFIGS)
            await fill(cluster)
            log = cluster.partition(1).log
            log.replace = lambda cleaned: [swap_path(log.directory, cleaned)]  # type: ignore[method-assign]
            assert await cluster.brokers[1].compactor.clean_one()
            assert log.first_dirty_offset == 0

    asyncio.run(run())


def test_a_log_that_cannot_be_cleaned_leaves_no_files_and_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster:
            await cluster.start(1)
            await cluster.create("t", [1], **CONFIGS)
            await fill(cluster)
            compactor, log = cluster.brokers[1].compactor, cluster.partition(1).log

            async def fail(*_: object) -> None:
                assert list((log.directory / FOLDER).glob("*.log"))
                raise OSError("broken")

            with monkeypatch.context() as patch:
                patch.setattr(compactor, "_commit", fail)
                assert await compactor.clean_one()
            assert list(compactor.uncleanable) == [log]
            assert not (log.directory / FOLDER).exists()

            def unreadable(*_: object) -> None:
                raise OSError("no such file")

            compactor.uncleanable.clear()
            monkeypatch.setattr(log, "plan_cleaning", unreadable)
            assert not await compactor.clean_one()
            assert list(compactor.uncleanable) == [log]

    asyncio.run(run())
