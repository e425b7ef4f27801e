"""ListOffsets and DeleteRecords where a partition has followers."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest

from skylog.errors import ErrorCode
from skylog.protocol.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)

from .members import Members, in_cluster
from .raw import batch_of

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3


async def fill(members: Members, count: int) -> None:
    """Commit messages with the timestamps 1000, 2000, …"""
    for number in range(count):
        row = await members.produce(1, "t", batch_of(b"x", timestamp=1000 * (number + 1)))
        assert row.error_code == ErrorCode.NONE
    await members.until(lambda: all(members.replica(each, "t").high_watermark == count for each in (1, 2, 3)))


async def elect_lagging_leader(members: Members) -> None:
    """Let broker 2 lead with two committed messages and two more, of which it does not know that they are committed.

    Brokers 1 and 3 do not follow it.
    """
    await members.create("t")
    await fill(members, 2)
    await members.stop_following(3)
    for timestamp in (3000, 4000):
        await members.produce(1, "t", batch_of(b"x", timestamp=timestamp), acks=1)
    await members.until(lambda: members.replica(2, "t").log.log_end_offset == 4)
    await members.stop_following(1)
    await members.elect("t", 2)
    assert members.replica(2, "t").high_watermark == 2


# -- ListOffsets


@pytest.mark.parametrize(
    ("version", "code"),
    [(4, ErrorCode.LEADER_NOT_AVAILABLE), (5, ErrorCode.OFFSET_NOT_AVAILABLE), (9, ErrorCode.OFFSET_NOT_AVAILABLE)],
)
def test_a_new_leader_has_no_latest_offset_until_its_watermark_is_current(
    tmp_path: Path, version: int, code: ErrorCode
) -> None:
    """It would be lower than the one that the former leader returned (KIP-207)."""

    async def scenario(members: Members) -> None:
        await elect_lagging_leader(members)
        for beyond in (LATEST, 3000, 9000):
            assert (await members.list_offset(2, "t", beyond, version)).error_code == code, beyond
        assert (await members.list_offset(2, "t", EARLIEST, version)).offset == 0
        assert (await members.list_offset(2, "t", 2000, version)).offset == 1
        members.follow(1, 3)
        await members.until(lambda: members.replica(2, "t").high_watermark == 4)
        assert (await members.list_offset(2, "t", LATEST, version)).offset == 4
        assert (await members.list_offset(2, "t", 3000, version)).offset == 2
        assert (await members.list_offset(2, "t", 9000, version)).offset == -1

    in_cluster(tmp_path, scenario)


def test_offsets_by_time_are_not_beyond_the_watermark(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        await fill(members, 2)
        await members.stop_following(3)
        await members.produce(1, "t", batch_of(b"x", timestamp=3000), acks=1)
        assert (await members.list_offset(1, "t", LATEST)).offset == 2
        assert (await members.list_offset(1, "t", 2000)).offset == 1
        for invisible in (2500, 3000, MAX_TIMESTAMP):
            found = await members.list_offset(1, "t", invisible)
            assert (found.error_code, found.timestamp, found.offset) == (ErrorCode.NONE, -1, -1), invisible
        members.follow(3)
        await members.until(lambda: members.replica(1, "t").high_watermark == 3)
        assert (await members.list_offset(1, "t", 2500)).offset == 2
        assert (await members.list_offset(1, "t", MAX_TIMESTAMP)).offset == 2

    in_cluster(tmp_path, scenario)


def test_only_the_leader_lists_offsets(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        assert (await members.list_offset(2, "t", LATEST)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    in_cluster(tmp_path, scenario)


@pytest.mark.parametrize("leads_again", [False, True])
def test_a_search_that_outlasts_the_leadership_finds_nothing(tmp_path: Path, leads_again: bool) -> None:
    """What it has found may have been cut off meanwhile, and replaced by something else."""

    async def scenario(members: Members) -> None:
        await members.create("t")
        await fill(members, 2)
        may_search = threading.Event()
        members.brokers[1].searcher.submit(may_search.wait, 20)
        asked = asyncio.create_task(members.list_offset(1, "t", 2000))
        await members.until(lambda: members.brokers[1].searcher._work_queue.qsize() > 0)
        await members.elect("t", 2)
        if leads_again:
            await members.elect("t", 1)
        may_search.set()
        assert (await asked).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    in_cluster(tmp_path, scenario)


# -- DeleteRecords


async def delete(members: Members, offset: int, timeout_ms: int = 10_000) -> DeleteRecordsPartitionResult:
    row = DeleteRecordsPartition(partition_index=0, offset=offset)
    topic = DeleteRecordsTopic(name="t", partitions=[row])
    peer = await members.connect(1)
    try:
        response = await peer.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=timeout_ms))
    finally:
        peer.close()
    found: DeleteRecordsPartitionResult = response.topics[0].partitions[0]
    return found


def starts(members: Members) -> list[int]:
    return [members.replica(node_id, "t").log.log_start_offset for node_id in members.brokers]


def test_records_are_deleted_on_all_replicas_before_the_response(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        await fill(members, 3)
        began = time.monotonic()
        result = await delete(members, 2)
        assert (result.error_code, result.low_watermark) == (ErrorCode.NONE, 2)
        assert starts(members) == [2, 2, 2]
        assert (await delete(members, -1)).low_watermark == 3
        assert starts(members) == [3, 3, 3]
        assert (await delete(members, 1)).low_watermark == 3, "they are deleted already"
        assert time.monotonic() - began < 5, "the followers do not wait for their next fetch"

    # A follower whose fetch is not woken would take longer than this test may.
    in_cluster(tmp_path, scenario, {"replica.fetch.wait.max.ms": "9000"})


def test_records_are_deleted_while_others_arrive(tmp_path: Path) -> None:
    """A follower reports its log start with a fetch of its own, which may cross the answer to the one before."""

    async def scenario(members: Members) -> None:
        await members.create("t")
        await members.create("u")
        is_over = False

        async def write() -> None:
            while not is_over:
                await members.produce(1, "t", batch_of(b"x"), acks=1)
                await asyncio.sleep(0.001)

        async def begin_epochs() -> None:
            """Let the followers send requests about another topic."""
            while not is_over:
                await members.elect("u", 1)
                await asyncio.sleep(0.002)

        others = [asyncio.create_task(write()), asyncio.create_task(begin_epochs())]
        for _ in range(40):
            assert (await delete(members, -1)).error_code == ErrorCode.NONE
        is_over = True
        await asyncio.gather(*others)
        assert [members.membership(node_id).fetchers.failures for node_id in (2, 3)] == [0, 0]

    in_cluster(tmp_path, scenario)


def test_a_follower_that_does_not_delete_in_time_makes_the_request_late(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        await fill(members, 3)
        await members.stop_following(3)
        late = await delete(members, 2, timeout_ms=50)
        assert (late.error_code, late.low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, 0)
        assert starts(members) == [2, 2, 0], "the others have deleted the records"
        members.follow(3)
        assert (await delete(members, 2)).low_watermark == 2

    in_cluster(tmp_path, scenario)


def test_a_follower_that_is_not_live_is_not_waited_for(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        await fill(members, 3)
        await members.stop_following(3)
        asked = asyncio.create_task(delete(members, 2))
        await members.until(lambda: starts(members)[:2] == [2, 2])
        assert not asked.done()
        await members.stop(3)
        assert ((await asked).error_code, (await asked).low_watermark) == (ErrorCode.NONE, 2)

    in_cluster(tmp_path, scenario)


def test_a_deletion_that_outlasts_the_leadership_is_not_acknowledged(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        await fill(members, 3)
        await members.stop_following(2, 3)
        asked = asyncio.create_task(delete(members, 2))
        await members.until(lambda: starts(members)[0] == 2)
        await members.elect("t", 2)
        result = await asked
        assert (result.error_code, result.low_watermark) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)

    in_cluster(tmp_path, scenario)


def test_uncommitted_records_cannot_be_deleted(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        await fill(members, 1)
        await members.stop_following(3)
        await members.produce(1, "t", batch_of(b"x"), acks=1)
        assert (await delete(members, 2)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    in_cluster(tmp_path, scenario)


def test_a_follower_that_is_not_live_is_waited_for_if_it_can_be_elected(tmp_path: Path) -> None:
    """Too few replicas are in sync, and the last one that left is complete: it would bring back what was deleted."""

    async def scenario(members: Members) -> None:
        await members.create("t")
        await fill(members, 3)
        await members.stop(3)
        await members.stop(2)
        await members.until(lambda: members.image("t").eligible_replicas == (2,))
        late = await delete(members, 2, timeout_ms=50)
        assert (late.error_code, late.low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, 0)
        await members.start(2)
        assert (await delete(members, 2)).low_watermark == 2

    in_cluster(tmp_path, scenario)
