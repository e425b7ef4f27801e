"""The controller decides while the cluster changes under its hands."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Sequence
from pathlib import Path

import pytest

from skylog.broker import controller
from skylog.broker.time_slice import TimeSlice
from skylog.cluster import EntryChange, VersionConflictError
from skylog.cluster.image import NO_CONTROLLER, NO_LEADER
from skylog.cluster.metadata import BROKERS, TOPICS
from skylog.cluster.store import Operation
from skylog.errors import ErrorCode, KafkaError

from .loop_cluster import GatedSession, LoopCluster, soon


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


def test_a_topic_that_the_store_refuses_stops_the_election_of_no_other_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its entry is too large, and so is every commit that has it."""
    commit = GatedSession.commit
    refused: list[str] = []

    async def commit_what_fits(session: GatedSession, operations: Sequence[Operation]) -> None:
        if any(operation.path.removeprefix(TOPICS) in refused for operation in operations):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the change is too large")
        await commit(session, operations)

    monkeypatch.setattr(GatedSession, "commit", commit_what_fits)
    monkeypatch.setattr(controller, "REFUSED_RETRY_S", 0.05)
    monkeypatch.setattr(controller, "PARTITIONS_AT_ONCE", 3)

    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster:
            await cluster.start(1)
            second = await cluster.by_hand(2, leader=1)
            names = ["a", "b", "large", "c", "d"]
            for name in names:
                await cluster.create(name, [2, 1])
            refused.append("large")
            await second.leave()
            await soon(lambda: [cluster.image(each).leader for each in names] == [1, 1, 2, 1, 1], "the other leaders")
            active = cluster.membership(1).controller
            assert active.failures >= 1
            await soon(lambda: active.failures >= 3, "other attempts")
            refused.clear()
            await soon(lambda: cluster.image("large").leader == 1, "the last leader")

    with caplog.at_level(logging.ERROR, "skylog.broker.controller"):
        asyncio.run(run())
    assert [record.getMessage() for record in caplog.records] == [
        "the leaders of topic large cannot be changed: the change is too large"
    ]


def test_a_broker_whose_process_ends_while_it_hands_over_is_removed(tmp_path: Path) -> None:
    """Its registration has changed since the controller began to watch it. That of another start stays."""

    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster:
            await cluster.start(1)
            second = await cluster.by_hand(2, leader=1)
            brokers, active = cluster.brokers[1].metadata, cluster.membership(1).controller
            await soon(lambda: active.is_active, "the controller")
            watched = brokers.image.brokers[2]
            stopping = dataclasses.replace(watched, is_stopping=True).to_value()
            await second._session.commit([EntryChange(f"{BROKERS}2", stopping, watched.version)])
            await soon(lambda: brokers.image.brokers[2].is_stopping, "the change")
            with pytest.raises(VersionConflictError):
                await active._process_ended(dataclasses.replace(watched, incarnation=watched.incarnation - 1))
            assert 2 in brokers.image.brokers
            await active._process_ended(watched)
            assert 2 not in brokers.image.brokers

    asyncio.run(run())
