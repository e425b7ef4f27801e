"""A mirror copies topics with their offsets, follows them, and refuses writes until it is promoted."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from skylog.errors import ErrorCode, KafkaError
from skylog.records import Codec
from skylog.replication.mirror import Mirror

from ..loop_cluster import soon, values_of
from ..raw import RawClient, batch_of
from .sites import Sites, any_broker, append, batches, headers, leader, leader_or_none, led, with_sites


def test_batches_are_copied_byte_for_byte_at_their_offsets(tmp_path: Path) -> None:
    async def scenario(sites: Sites) -> None:
        await sites.west.create("t", [1], [1])
        for index in (0, 1):
            append(leader(sites.west, "t", index), b"a", b"b", b"c")
            append(leader(sites.west, "t", index), *[b"compress me" * 20] * 50, codec=Codec.GZIP)
        await sites.mirror("t")
        for index in (0, 1):
            copy = await sites.copied("t", index)
            assert copy.high_watermark == 53
            assert batches(copy) == batches(leader(sites.west, "t", index))
        append(leader(sites.west), b"later")
        assert values_of(await sites.copied())[-1] == b"later"
        row = sites.rows()["t", 0]
        assert (row["status"], row["lag"], row["lag_s"], row["source_offset"]) == ("mirroring", 0, 0.0, 54)

    with_sites(tmp_path, scenario)


def test_a_mirror_refuses_writes_until_it_is_promoted(tmp_path: Path) -> None:
    async def scenario(sites: Sites) -> None:
        await sites.west.create("t", [1])
        append(leader(sites.west), b"a", producer_id=5, producer_epoch=0, base_sequence=0)
        await sites.mirror("t")
        copy = await sites.copied()
        broker = any_broker(sites.east)
        with pytest.raises(KafkaError, match=r"topic 't' is a mirror of .*skylog mirror promote m") as refused:
            append(copy, b"own")
        assert refused.value.code is ErrorCode.POLICY_VIOLATION
        with pytest.raises(KafkaError):
            broker.mirrors.check_may_write("t")
        await sites.promoted()
        append(copy, b"own")
        append(leader(sites.west), b"not copied any more")
        assert values_of(copy) == [b"a", b"own"]
        assert await broker.metadata.next_producer_id() >= 1 << 32  # no producer has an id of the source
        broker.mirrors.check_may_write("t")

    with_sites(tmp_path, scenario)


def test_a_client_is_told_why_it_cannot_write(tmp_path: Path) -> None:
    async def scenario(sites: Sites) -> None:
        await sites.west.create("t", [1])
        await sites.mirror("t")
        copy = await led(sites.east)
        port = any_broker(sites.east).endpoints.port

        def produce() -> tuple[int, str | None]:
            with RawClient(port) as client:
                answer = client.produce("t", batch_of(b"x"))
                return answer.error_code, answer.error_message

        code, message = await asyncio.to_thread(produce)
        assert code == ErrorCode.POLICY_VIOLATION
        assert "is a mirror of" in (message or "")
        assert copy.log.log_end_offset == 0

    with_sites(tmp_path, scenario)


def test_settings_and_partitions_follow_the_source(tmp_path: Path) -> None:
    async def scenario(sites: Sites) -> None:
        await sites.west.create("t", [1], retention_ms="12345", min_insync_replicas="1")
        await sites.mirror("t*")
        await sites.copied()
        west, east = any_broker(sites.west), any_broker(sites.east)
        assert east.metadata.image.topics["t"].configs == {"retention.ms": "12345"}  # what is the target's own is not
        await west.topics.configure(west.topics.get("t"), lambda _: {"cleanup.policy": "compact"})
        await west.topics.grow(west.topics.get("t"), [[1]])
        await sites.west.create("topic2", [1])
        append(leader(sites.west, "t", 1), b"x")
        await sites.copied("t", 1)
        await soon(lambda: east.metadata.image.topics["t"].configs == {"cleanup.policy": "compact"}, "the settings")
        await sites.copied("topic2")

    with_sites(tmp_path, scenario)


def test_gaps_of_a_compacted_source_keep_their_offsets(tmp_path: Path) -> None:
    async def scenario(sites: Sites) -> None:
        await sites.west.create("t", [1], cleanup_policy="compact")
        source = leader(sites.west)
        append(source, b"a")
        gap = bytearray(batch_of(b"z"))
        gap[:8] = (1000).to_bytes(8, "big")
        source.append_from_source(memoryview(gap), 1000)
        await sites.mirror("t")
        copy = await sites.copied()
        assert [each.base_offset for each in headers(copy)] == [0, 1000]
        append(source, b"more")
        assert (await sites.copied()).log.log_end_offset == 1002

    with_sites(tmp_path, scenario)


def test_the_start_of_the_log_follows_the_source(tmp_path: Path) -> None:
    async def scenario(sites: Sites) -> None:
        await sites.west.create("t", [1])
        source = leader(sites.west)
        append(source, b"a")
        append(source, b"b")
        append(source, b"c")
        source.delete_records(1)
        await sites.mirror("t")
        copy = await sites.copied()
        assert (copy.log.log_start_offset, values_of(copy)) == (1, [b"b", b"c"])
        source.delete_records(2)
        append(source, b"d")
        await soon(lambda: copy.log.log_start_offset == 2, "the start")

    with_sites(tmp_path, scenario)


def test_retention_that_passes_the_mirror_is_reported(tmp_path: Path) -> None:
    async def scenario(sites: Sites) -> None:
        await sites.west.create("t", [1])
        source = leader(sites.west)
        append(source, b"a")
        await sites.mirror("t")
        copy = await sites.copied()
        broker = any_broker(sites.east)
        await broker.mirrors.set_paused("m", True)
        append(source, b"lost")
        append(source, b"lost")
        append(source, b"kept")
        source.delete_records(3)
        assert sites.status() == "paused"
        await broker.mirrors.set_paused("m", False)
        await sites.copied()
        assert (copy.log.log_start_offset, values_of(copy)) == (3, [b"kept"])
        assert sites.rows()["t", 0]["skipped"] == 2

    with_sites(tmp_path, scenario)


@pytest.mark.parametrize("longer", [False, True])
def test_a_source_that_has_lost_records_is_not_followed(tmp_path: Path, longer: bool) -> None:
    async def scenario(sites: Sites) -> None:
        await sites.west.create("t", [1])
        source = leader(sites.west)
        append(source, b"a")
        append(source, b"b")
        await sites.mirror("t")
        copy = await sites.copied()
        broker = any_broker(sites.east)
        await broker.mirrors.set_paused("m", True)
        source.truncate_to(1, 1000)  # as an unclean election does
        if longer:
            append(source, b"other")
            append(source, b"records")
        await broker.mirrors.set_paused("m", False)
        await soon(lambda: sites.status() == "diverged", "the status")
        assert values_of(copy) == [b"a", b"b"]
        assert sites.rows()["t", 0]["error"]
        assert any(row["status"] == "diverged" for row in sites.rows().values())

    with_sites(tmp_path, scenario)


def test_a_topic_that_is_created_again_at_the_source_is_not_followed(tmp_path: Path) -> None:
    async def scenario(sites: Sites) -> None:
        await sites.west.create("t", [1])
        append(leader(sites.west), b"a")
        await sites.mirror("t")
        copy = await sites.copied()
        west = any_broker(sites.west)
        await west.topics.delete(west.topics.get("t"))
        await sites.west.create("t", [1])
        append(leader(sites.west), b"another")
        append(leader(sites.west), b"topic")
        await soon(lambda: sites.status() == "diverged", "the status")
        assert values_of(copy) == [b"a"]

    with_sites(tmp_path, scenario)


def test_a_topic_of_the_target_is_not_overwritten(tmp_path: Path) -> None:
    async def scenario(sites: Sites) -> None:
        await sites.west.create("t", [1])
        append(leader(sites.west), b"a")
        await sites.east.create("t", [1])
        append(leader(sites.east), b"own")
        await sites.mirror("t")
        broker = any_broker(sites.east)

        def problem() -> str:
            return str(broker.mirrors.describe(broker.mirrors.get("m"))["problems"].get("t", ""))

        assert "has a topic 't' of its own" in await soon(problem, "the problem")
        assert values_of(leader(sites.east)) == [b"own"]
        append(leader(sites.east), b"still writable")

    with_sites(tmp_path, scenario)


def test_two_sites_that_mirror_each_other_do_not_loop(tmp_path: Path) -> None:
    async def scenario(sites: Sites) -> None:
        await sites.west.create("clicks", [1])
        await sites.east.create("clicks", [1])
        append(leader(sites.west, "clicks"), b"from west")
        append(leader(sites.east, "clicks"), b"from east")
        await sites.mirror("*", prefix="west.")
        await sites.mirror("*", prefix="east.", source=sites.east, target=sites.west)
        await sites.copied("clicks", to="west.clicks")
        await soon(lambda: leader_or_none(sites.west, "east.clicks"), "the topic at west")
        await sites.west.create("more", [1])
        await soon(lambda: leader_or_none(sites.east, "west.more"), "another round")
        await sites.east.create("more", [1])
        await soon(lambda: leader_or_none(sites.west, "east.more"), "another round")
        own = {name for name in any_broker(sites.east).metadata.image.topics if not name.startswith("_")}
        assert own == {"clicks", "more", "west.clicks", "west.more"}
        assert values_of(leader(sites.west, "clicks")) == [b"from west"]

    with_sites(tmp_path, scenario)


def test_a_mirror_that_is_deleted_leaves_ordinary_topics(tmp_path: Path) -> None:
    async def scenario(sites: Sites) -> None:
        await sites.west.create("t", [1])
        append(leader(sites.west), b"a")
        await sites.mirror("t")
        copy = await sites.copied()
        broker = any_broker(sites.east)
        await broker.mirrors.promote("m", None, ends=True)
        await soon(lambda: not broker.mirrors.all(), "the end")
        append(copy, b"own")
        assert values_of(copy) == [b"a", b"own"]

    with_sites(tmp_path, scenario)


def test_a_source_that_cannot_be_reached_is_refused(tmp_path: Path) -> None:
    async def scenario(sites: Sites) -> None:
        address = sites.west.brokers[1].endpoints.port
        await sites.west.crash(1)
        with pytest.raises(KafkaError, match="cannot reach the source"):
            await any_broker(sites.east).mirrors.create(Mirror("m", f"127.0.0.1:{address}", ("t",)))
        own = any_broker(sites.east).endpoints.port
        with pytest.raises(KafkaError, match="is this cluster itself"):
            await any_broker(sites.east).mirrors.create(Mirror("m", f"127.0.0.1:{own}", ("t",)))

    with_sites(tmp_path, scenario)
