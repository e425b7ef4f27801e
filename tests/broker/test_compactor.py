"""What the compactor does with the results of a job: the old segments disappear."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from skylog.broker.cleaner_process import CleanerProcess

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
