"""The controller decides while the cluster changes under its hands."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import pytest

from skylog.broker import controller
from skylog.broker.time_slice import TimeSlice
from skylog.cluster.image import NO_CONTROLLER, NO_LEADER

from .loop_cluster import LoopCluster, soon


def test_a_broker_that_leaves_after_it_was_elected_does_not_fail_the_controller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster:
            await cluster.start(1)
            second, third = [await cluster.by_hand(node_id, leader=1) for node_id in (2, 3)]
            await cluster.create("t", [3, 2])
            left = False

            class Interruption(TimeSlice):
                async def yield_if_over(self) -> None:
                    nonlocal left
                    if cluster.image().leader == 3 and 3 not in cluster.brokers[1].metadata.image.brokers and not left:
                        left = True
                        await second.leave()

            monkeypatch.setattr(controller, "TimeSlice", Interruption)
            await third.leave()
            await soon(lambda: cluster.image().leader == NO_LEADER, "the end of the election")
            assert left
            assert cluster.membership(1).controller.failures == 0

    asyncio.run(run())


def test_a_broker_that_finds_another_controller_when_it_tries_to_become_it_changes_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster:
            await cluster.start(1, 2)
            await cluster.create("t", [1, 2])
            await soon(lambda: cluster.brokers[2].metadata.image.controller_id == 1)
            metadata, controller = cluster.brokers[2].metadata, cluster.membership(2).controller
            # The image is late: broker 1 seems to have ended, and its successor is not known yet.
            late = {node_id: broker for node_id, broker in metadata.image.brokers.items() if node_id != 1}
            metadata.image = dataclasses.replace(metadata.image, controller_id=NO_CONTROLLER, brokers=late)
            await controller._work()
            assert not controller.is_active
            assert cluster.image().leader == 1

    asyncio.run(run())
