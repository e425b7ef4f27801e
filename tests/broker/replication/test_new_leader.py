"""What clients see of a leader that was just elected."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from skylog.broker.partition import Partition
from skylog.errors import ErrorCode
from skylog.net.peer import Peer
from skylog.protocol.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.broker.loop_cluster import LoopCluster, soon

LATEST, EARLIEST, SOME_TIME, LATER = -1, -2, 1000, 9000


async def elect_a_leader_that_is_behind(cluster: LoopCluster) -> Partition:
    """Both brokers have a batch of three. Broker 2 leads before it has heard that it is committed."""
    await cluster.start(1, 2)
    await cluster.create("t", [1, 2])
    new_leader = cluster.partition(2)
    await cluster.append(1, b"a", b"b", b"c")
    await soon(lambda: new_leader.high_watermark == 3)
    for node_id in (1, 2):
        await cluster.membership(node_id).fetchers.stop()
    new_leader.log.high_watermark = 0
    await cluster.change("t", leader=2, leader_epoch=1)
    await soon(lambda: new_leader.is_leader)
    return new_leader


async def ask(cluster: LoopCluster, timestamp: int, version: int) -> tuple[int, int]:
    row = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[row])])
    peer = await Peer.connect("127.0.0.1", cluster.brokers[2].metadata.image.brokers[2].port, client_id="test")
    (found,) = (await peer.ask(request, version)).topics[0].partitions
    peer.close()
    return found.error_code, found.offset


@pytest.mark.parametrize(
    ("version", "code"), [(4, ErrorCode.LEADER_NOT_AVAILABLE), (5, ErrorCode.OFFSET_NOT_AVAILABLE)]
)
def test_a_new_leader_has_no_latest_offset_until_its_followers_have_fetched(
    tmp_path: Path, version: int, code: ErrorCode
) -> None:
    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster:
            new_leader = await elect_a_leader_that_is_behind(cluster)
            assert await ask(cluster, LATEST, version) == (code, -1)
            assert await ask(cluster, SOME_TIME, version) == (code, -1)
            assert await ask(cluster, EARLIEST, version) == (0, 0)
            cluster.membership(1).fetchers.start()
            await soon(lambda: new_leader.high_watermark == 3)
            assert await ask(cluster, LATEST, version) == (0, 3)
            assert await ask(cluster, SOME_TIME, version) == (0, 0)
            assert await ask(cluster, LATER, version) == (0, -1)

    asyncio.run(run())
