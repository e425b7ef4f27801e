"""Mirrors between clusters of several brokers, whose brokers crash."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ..loop_cluster import soon, values_of
from .sites import Sites, any_broker, append, batches, leader, led, with_sites


def test_the_next_leader_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    async def scenario(sites: Sites) -> None:
        await sites.west.create("t", [1], [1], [1])
        for index in range(3):
            append(leader(sites.west, "t", index), b"a", b"b")
        await sites.mirror("t")
        for index in range(3):
            copy = await sites.copied("t", index)
            assert len(copy.image.replicas if copy.image else ()) == 3
        victim = sites.east.image("t", 0).leader
        await sites.east.crash(victim)
        for index in range(3):
            append(leader(sites.west, "t", index), b"c")
        for index in range(3):
            await soon(lambda i=index: sites.east.image("t", i).leader not in (victim, -1), "another leader")  # type: ignore[misc]
            copy = await sites.copied("t", index)
            assert batches(copy) == batches(leader(sites.west, "t", index))
        await sites.east.start(victim)
        await sites.east.until_in_sync(1, 2, 3)
        append(leader(sites.west), b"d")
        await sites.copied()
        for node in (1, 2, 3):
            await soon(lambda n=node: values_of(sites.east.partition(n)) == [b"a", b"b", b"c", b"d"], "the replica")  # type: ignore[misc]
        await sites.promoted()
        for node in (1, 2, 3):
            assert sites.east.partition(node).refusal is None

    with_sites(tmp_path, scenario, east=3, default_replication_factor="3", min_insync_replicas="2")


def test_a_leader_of_the_source_that_crashes_is_replaced(tmp_path: Path) -> None:
    async def scenario(sites: Sites) -> None:
        await sites.west.create("t", [1, 2])
        append(leader(sites.west), b"a")
        await sites.west.until_in_sync(1, 2)
        await sites.mirror("t")
        await sites.copied()
        await sites.west.crash(1)
        source = await led(sites.west)
        append(source, b"b")
        copy = await sites.copied()
        assert batches(copy) == batches(source)
        assert sites.status() == "mirroring"

    with_sites(tmp_path, scenario, west=2)


@pytest.mark.parametrize("more", [0, 5])
def test_an_unclean_election_at_the_source_ends_the_copying_and_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, more: int
) -> None:
    async def scenario(sites: Sites) -> None:
        await sites.west.create("t", [1, 2], unclean_leader_election_enable="true")
        append(leader(sites.west), b"a")
        await sites.west.until_in_sync(1, 2)
        await soon(lambda: leader(sites.west).high_watermark == 1, "the commit")
        await sites.west.crash(2)
        await sites.west.until_in_sync(1)
        append(leader(sites.west), b"b")
        append(leader(sites.west), b"c")
        await sites.mirror("t")
        copy = await sites.copied()
        await sites.west.crash(1)
        await sites.west.start(2)
        source = await led(sites.west)
        assert values_of(source) == [b"a"]  # the others are lost
        for number in range(more):
            append(source, b"%d" % number)
        await soon(lambda: sites.status() == "diverged", "the status")
        assert values_of(copy) == [b"a", b"b", b"c"]
        assert "offset" in sites.rows()["t", 0]["error"]
        assert "t-0 has diverged from t-0 of the source and is not mirrored any more" in caplog.text

    with_sites(tmp_path, scenario, west=3)  # through the third one the mirror finds the new address of the second


def test_a_promotion_is_finished_by_the_next_leader(tmp_path: Path) -> None:
    async def scenario(sites: Sites) -> None:
        await sites.west.create("t", [1])
        append(leader(sites.west), b"a")
        await sites.mirror("t")
        await sites.copied()
        await sites.east.until_in_sync(1, 2)
        first = sites.east.image().leader
        other = 3 - first
        task = sites.east.brokers[first].mirrors
        await task.stop()  # it does nothing any more, and refuses what clients send
        await sites.east.brokers[other].mirrors.promote("m", None)
        await asyncio.sleep(0)
        assert leader(sites.east).refusal is not None
        await sites.east.crash(first)
        copy = await led(sites.east)
        await soon(lambda: copy.refusal is None, "the promotion")
        assert any_broker(sites.east).mirrors.get("m").mirrored["t"].state == "promoted"

    with_sites(tmp_path, scenario, east=2, default_replication_factor="2")


def test_a_broker_that_starts_again_refuses_writes_before_it_serves(tmp_path: Path) -> None:
    async def scenario(sites: Sites) -> None:
        await sites.west.create("t", [1])
        append(leader(sites.west), b"a")
        await sites.mirror("t")
        await sites.copied()
        await sites.east.crash(1)
        await sites.east.start(1)
        copy = await led(sites.east)
        assert copy.refusal is not None
        append(leader(sites.west), b"b")
        assert values_of(await sites.copied()) == [b"a", b"b"]

    with_sites(tmp_path, scenario)
