"""Changes of in-sync sets that are interrupted."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.broker.loop_cluster import LoopCluster, soon


def test_a_change_that_ends_with_the_session_does_not_keep_later_ones_from_being_made(tmp_path: Path) -> None:
    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster:
            await cluster.start(1, 2)
            await cluster.create("t", [1, 2])
            leading = cluster.partition(1).leading
            assert leading is not None
            await soon(lambda: leading.followers[2].end_offset == 0)
            await cluster.change("t", in_sync_replicas=(1,))
            in_sync_sets = cluster.membership(1).in_sync_sets
            in_sync_sets.consider(cluster.partition(1), 2)
            assert leading.has_change_in_flight
            await in_sync_sets.stop()
            assert not leading.has_change_in_flight
            in_sync_sets.start()
            await cluster.until_in_sync(1, 2)

    asyncio.run(run())
