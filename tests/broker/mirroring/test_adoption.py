"""A mirror continues a topic that the target has already, if the source has all of its records: failback in short."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from skylog.broker.mirroring.mirrored_partition import MirroredPartition
from skylog.broker.mirroring.mirrors import _owners
from skylog.errors import KafkaError
from skylog.replication.mirror import Mirror, MirrorTopic, TopicState

from ..loop_cluster import soon
from .sites import Sites, any_broker, append, batches, leader, with_sites


def count_copies(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note the size of everything that is copied from now on."""
    copied: list[int] = []
    copy = MirroredPartition.copy

    def noted(self: MirroredPartition, data: memoryview, *arguments: Any) -> None:
        copied.append(len(data))
        copy(self, data, *arguments)

    monkeypatch.setattr(MirroredPartition, "copy", noted)
    return copied


def problem(sites: Sites) -> str:
    broker = any_broker(sites.east)
    return str(broker.mirrors.describe(broker.mirrors.get("m"))["problems"].get("t", ""))


def test_a_failback_copies_only_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(sites: Sites) -> None:
        await sites.west.create("t", [1])
        west = leader(sites.west)
        append(west, b"a" * 1000)
        await sites.mirror("t")
        east = await sites.copied()
        await sites.promoted()
        append(east, b"b")
        copied = count_copies(monkeypatch)
        await sites.mirror("t", name="back", source=sites.east, target=sites.west, adopts=True)
        await soon(lambda: west.log.log_end_offset == 2, "the new record at west")
        assert batches(west) == batches(east)
        assert sum(copied) < 1000
        with pytest.raises(KafkaError, match="is a mirror of"):
            append(west, b"refused")
        back = any_broker(sites.west)
        await back.mirrors.promote("back", None)
        await soon(lambda: back.mirrors.owner("t") is None, "the promotion at west")
        append(west, b"c")
        await any_broker(sites.east).mirrors.promote("m", None, ends=True)
        await soon(lambda: not any_broker(sites.east).mirrors.all(), "the end of the first mirror")
        await sites.mirror("t", adopts=True)
        await sites.copied()
        assert batches(west) == batches(east)

    with_sites(tmp_path, scenario)


@pytest.mark.parametrize("own", [b"other", b"longer and other"])
def test_records_that_the_source_does_not_have_are_kept_and_reported(tmp_path: Path, own: bytes) -> None:
    async def scenario(sites: Sites) -> None:
        for cluster, value in ((sites.west, b"theirs"), (sites.east, own)):
            await cluster.create("t", [1])
            append(leader(cluster), b"common")
            append(leader(cluster), value)
        append(leader(sites.west), b"more")
        await sites.mirror("t", adopts=True)
        await soon(lambda: sites.status() == "diverged", "the status")
        assert "other records at the offsets 1-1" in sites.rows()["t", 0]["error"]
        assert len(batches(leader(sites.east))) == 2

    with_sites(tmp_path, scenario)


@pytest.mark.parametrize("deleted", [1, 2])
def test_a_log_that_cannot_be_compared_is_kept_and_reported(tmp_path: Path, deleted: int) -> None:
    """An ordinary mirror would begin again where the source begins."""

    async def scenario(sites: Sites) -> None:
        await sites.west.create("t", [1])
        for _ in range(3):
            append(leader(sites.west), b"theirs")
        leader(sites.west).delete_records(deleted)
        await sites.east.create("t", [1])
        append(leader(sites.east), b"own")
        await sites.mirror("t", adopts=True)
        await soon(lambda: sites.status() == "diverged", "the status")
        assert "nothing to compare" in sites.rows()["t", 0]["error"]
        assert len(batches(leader(sites.east))) == 1

    with_sites(tmp_path, scenario)


def test_a_topic_that_has_diverged_is_copied_again_when_it_is_deleted(tmp_path: Path) -> None:
    async def scenario(sites: Sites) -> None:
        await sites.west.create("t", [1])
        append(leader(sites.west), b"theirs")
        leader(sites.west).delete_records(1)
        append(leader(sites.west), b"more")
        await sites.east.create("t", [1])
        append(leader(sites.east), b"own")
        await sites.mirror("t", adopts=True)
        await soon(lambda: sites.status() == "diverged", "the status")
        east = any_broker(sites.east)
        await east.topics.delete(east.topics.get("t"))
        copy = await sites.copied()
        assert batches(copy) == batches(leader(sites.west))

    with_sites(tmp_path, scenario)


def test_compacted_topics_and_those_with_more_partitions_are_not_adopted(tmp_path: Path) -> None:
    async def scenario(sites: Sites) -> None:
        await sites.west.create("t", [1])
        await sites.east.create("t", [1], [1])
        await sites.mirror("t", adopts=True)
        assert "has 2 partitions here, and 1 at the source" in await soon(lambda: problem(sites), "the problem")
        append(leader(sites.east), b"still writable")
        east = any_broker(sites.east)
        await east.topics.delete(east.topics.get("t"))
        await sites.copied()

    with_sites(tmp_path, scenario)

    async def compacted(sites: Sites) -> None:
        await sites.west.create("t", [1], cleanup_policy="compact")
        await sites.east.create("t", [1])
        await sites.mirror("t", adopts=True)
        assert "is compacted" in await soon(lambda: problem(sites), "the problem")

    with_sites(tmp_path / "compacted", compacted)


def test_a_topic_of_one_mirror_is_taken_on_by_another_when_it_is_promoted(tmp_path: Path) -> None:
    async def scenario(sites: Sites) -> None:
        await sites.west.create("t", [1])
        append(leader(sites.west), b"a")
        await sites.mirror("t", name="first")
        copy = await sites.copied()
        await sites.mirror("t", adopts=True)
        assert "the mirror 'first' has the topic" in await soon(lambda: problem(sites), "the problem")
        await sites.promoted(name="first")
        await soon(lambda: sites.status() == "mirroring", "the second mirror")
        with pytest.raises(KafkaError, match="promote m"):
            append(copy, b"refused, although the first mirror has promoted it")

    with_sites(tmp_path, scenario)


def test_a_mirror_that_has_promoted_a_topic_does_not_own_it_beside_another() -> None:
    promoted = Mirror("a", "h:1", ("t",), mirrored={"t": MirrorTopic("t", state=TopicState.PROMOTED)})
    current = Mirror("b", "h:1", ("t",), mirrored={"t": MirrorTopic("t")})
    for mirrors in ((promoted, current), (current, promoted)):
        assert _owners(mirrors)["t"][0] is current
