"""Committed offsets of groups, and transactions, as they arrive at the other site."""

from __future__ import annotations

import asyncio
from pathlib import Path
from unittest import mock

import pytest
from confluent_kafka import Consumer

from skylog.broker.partition import ALL, Partition
from skylog.net.peer import PeerError

from ..loop_cluster import soon, values_of
from ..raw import batch_of
from .sites import Sites, any_broker, append, batches, commit, committed, leader, with_sites

IN_TRANSACTION = {"producer_id": 9, "producer_epoch": 1, "transactional": True}


def test_group_offsets_are_copied_as_far_as_the_topic_is_mirrored(tmp_path: Path) -> None:
    async def scenario(sites: Sites) -> None:
        await sites.west.create("t", [1])
        for _ in range(5):
            append(leader(sites.west), b"a")
        await commit(sites.west, "g", "t", 3)
        await commit(sites.west, "other", "t", 3)
        await sites.mirror("t", groups=("g",), prefix="west.")
        await sites.copied(to="west.t")
        await soon(lambda: committed(sites.east, "g", "west.t") == 3, "the offset")
        await commit(sites.west, "g", "t", 1000)  # beyond the end, as if the topic were not mirrored that far
        await soon(lambda: committed(sites.east, "g", "west.t") == 5, "the offset")
        await commit(sites.west, "g", "t", 2)
        append(leader(sites.west), b"a")
        await commit(sites.west, "g", "t", 6)
        await soon(lambda: committed(sites.east, "g", "west.t") == 6, "the offset")
        assert committed(sites.east, "other", "west.t") is None

    with_sites(tmp_path, scenario)


def test_offsets_that_a_group_commits_at_its_new_site_are_not_moved_back(tmp_path: Path) -> None:
    async def scenario(sites: Sites) -> None:
        await sites.west.create("t", [1])
        for _ in range(5):
            append(leader(sites.west), b"a")
        await commit(sites.west, "g", "t", 2)
        await commit(sites.west, "h", "t", 2)
        await sites.mirror("t", groups=("*",))
        await soon(lambda: committed(sites.east, "g", "t") == 2, "the offset")
        await commit(sites.east, "g", "t", 4)
        await commit(sites.west, "g", "t", 3)
        await commit(sites.west, "h", "t", 3)
        await soon(lambda: committed(sites.east, "h", "t") == 3, "a further round")
        assert committed(sites.east, "g", "t") == 4

    with_sites(tmp_path, scenario)


def test_the_offsets_of_a_group_with_members_here_are_its_own(tmp_path: Path) -> None:
    async def scenario(sites: Sites) -> None:
        await sites.west.create("t", [1])
        for _ in range(5):
            append(leader(sites.west), b"a")
        await sites.mirror("t", groups=("*",))
        await sites.copied()
        port = any_broker(sites.east).endpoints.port
        settings = {"bootstrap.servers": f"127.0.0.1:{port}", "group.id": "g", "enable.auto.commit": False}
        consumer = Consumer(settings)
        consumer.subscribe(["t"])
        while not await asyncio.to_thread(consumer.assignment):
            await asyncio.to_thread(consumer.poll, 0.1)
        await commit(sites.west, "g", "t", 3)
        await commit(sites.west, "h", "t", 3)
        await soon(lambda: committed(sites.east, "h", "t") == 3, "a whole round")
        await commit(sites.west, "h", "t", 4)
        await soon(lambda: committed(sites.east, "h", "t") == 4, "another round")
        assert committed(sites.east, "g", "t") is None
        copier = any_broker(sites.east).mirrors.copier("m")
        assert copier is not None
        assert copier.groups.error == ""
        await asyncio.to_thread(consumer.close)
        await soon(lambda: committed(sites.east, "g", "t") == 3, "the offset, without members")

    with_sites(tmp_path, scenario, group_initial_rebalance_delay_ms="0")


def test_groups_that_cannot_be_read_at_the_source_are_reported(tmp_path: Path) -> None:
    async def scenario(sites: Sites) -> None:
        await sites.west.create("t", [1])
        await commit(sites.west, "g", "t", 0)
        await sites.mirror("t", groups=("*",))
        await soon(lambda: committed(sites.east, "g", "t") == 0, "the offset")
        broker = any_broker(sites.east)
        copier = broker.mirrors.copier("m")
        assert copier is not None
        assert copier.groups.error == ""
        with mock.patch.object(copier.groups._source, "ask", side_effect=PeerError("no route to host")):
            await copier.groups.run(broker.mirrors.get("m"))
        assert copier.groups.error == "groups of broker 1 of the source are not copied: no route to host"
        await soon(lambda: copier.groups.error == "", "the next round")

    with_sites(tmp_path, scenario)


def test_transactions_come_with_their_markers(tmp_path: Path) -> None:
    async def scenario(sites: Sites) -> None:
        await sites.west.create("t", [1])
        source = leader(sites.west)
        _begin(source, b"aborted", 0)
        source.append_marker(9, 1, commits=False, coordinator_epoch=0, now_ms=1000)
        _begin(source, b"open", 1)
        await sites.mirror("t")
        copy = await sites.copied()
        assert copy.last_stable_offset == source.last_stable_offset == 2
        found = copy.log.read(0, 1 << 20)
        assert found is not None
        assert copy.log.aborted_in(found, 0) == [(9, 0)]
        source.append_marker(9, 1, commits=True, coordinator_epoch=0, now_ms=1000)
        await sites.copied()
        assert copy.last_stable_offset == 4
        assert batches(copy) == batches(source)

    with_sites(tmp_path, scenario)


@pytest.mark.parametrize("flush_messages", ["1", "1000000"])
def test_a_promotion_aborts_the_transactions_that_are_open(tmp_path: Path, flush_messages: str) -> None:
    async def scenario(sites: Sites) -> None:
        await sites.west.create("t", [1])
        source = leader(sites.west)
        append(source, b"before")
        _begin(source, b"open", 0)
        await any_broker(sites.west).flusher.flushed(source.log)
        await sites.mirror("t")
        copy = await sites.copied()
        assert copy.last_stable_offset == 1
        await sites.promoted()
        assert copy.log.log_end_offset == copy.last_stable_offset == 3
        found = copy.log.read(0, 1 << 20)
        assert found is not None
        assert copy.log.aborted_in(found, 0) == [(9, 1)]
        assert copy.high_watermark == 3
        append(copy, b"own")
        assert values_of(copy)[-1] == b"own"
        assert any_broker(sites.east).mirrors.failures == 0

    with_sites(tmp_path, scenario, log_flush_interval_messages=flush_messages)


def _begin(partition: Partition, value: bytes, sequence: int) -> None:
    batch = batch_of(value, base_sequence=sequence, **IN_TRANSACTION)
    partition.append(memoryview(batch), 1000, ALL, partition.verification_stamp(9))
