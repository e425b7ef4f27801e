"""Metrics of mirrors: what was copied, what is missing, and since when."""

from __future__ import annotations

from pathlib import Path

from skylog.broker.metrics import collect
from tests.broker.loop_cluster import soon
from tests.broker.mirroring.sites import Sites, any_broker, append, batches, leader, with_sites

from .reading import value

PARTITION = {"mirror": "m", "topic": "t", "partition": "0"}


def test_what_a_mirror_has_copied_skipped_and_not_yet_got(tmp_path: Path) -> None:
    async def scenario(sites: Sites) -> None:
        await sites.west.create("t", [1])
        source, broker = leader(sites.west), any_broker(sites.east)
        append(source, b"a")
        await sites.mirror("t")
        await sites.copied()
        await broker.mirrors.set_paused("m", True)
        for each in (b"lost", b"lost", b"kept"):
            append(source, each)
        source.delete_records(3)
        await broker.mirrors.set_paused("m", False)
        copy = await sites.copied()
        await soon(
            lambda: sites.status() == "mirroring" and sites.rows()["t", 0]["lag_s"] == 0, "the end of the source"
        )

        found = await collect(broker)
        assert value(found, "skylog_mirror_status", **PARTITION, status="mirroring") == 1
        assert value(found, "skylog_mirror_lag", **PARTITION) == 0
        assert value(found, "skylog_mirror_lag_seconds", **PARTITION) == 0
        assert value(found, "skylog_mirror_skipped_total", **PARTITION) == 2
        assert value(found, "skylog_mirror_errors_total", **PARTITION) == 0
        assert value(found, "skylog_mirror_bytes_total", mirror="m") == len(b"".join(batches(copy)))  # since the pause

        await sites.west.stop(1)
        await soon(lambda: sites.status() == "failing", "a failure")
        (copier,) = broker.mirrors.copiers()
        copier.partitions[copy.name].progress.source_end += 5  # the last that the source has answered
        found = await collect(broker)
        assert value(found, "skylog_mirror_status", **PARTITION, status="failing") == 1
        assert value(found, "skylog_mirror_lag", **PARTITION) == 5
        assert value(found, "skylog_mirror_lag_seconds", **PARTITION) > 0
        assert value(found, "skylog_mirror_errors_total", **PARTITION) >= 1

    with_sites(tmp_path, scenario)
