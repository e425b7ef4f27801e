"""Offsets of transactions in a shard of the group coordinator: while it is loaded, and in the order of the log."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from skylog.broker.config import ServerConfig
from skylog.broker.group_shard import GroupShard, MemberId
from skylog.errors import ErrorCode, KafkaError
from skylog.groups import CommittedOffset, GroupConfig, Groups
from skylog.model import TopicPartition

NAME = TopicPartition("topic", 0)
OUTSIDE = MemberId("", None, -1)


def at(offset: int) -> CommittedOffset:
    return CommittedOffset(offset, -1, "", 0)


class Log:
    """A leadership whose appends are committed when the test says so."""

    def __init__(self, *, is_served: bool = True) -> None:
        self.is_served, self.is_over = is_served, False
        self.waiting: list[asyncio.Future[None]] = []

    def append(self, records: Any, producer: Any = None) -> asyncio.Future[None]:
        self.waiting.append(asyncio.get_running_loop().create_future())
        return self.waiting[-1]


def shard_of(log: Log) -> GroupShard:
    topics: dict[str, Any] = {}
    broker: Any = SimpleNamespace(
        clock=SimpleNamespace(now_ms=lambda: 0),
        config=ServerConfig(),
        coordinator=SimpleNamespace(racks={}),
        metadata=SimpleNamespace(image=SimpleNamespace(topics=topics)),
    )
    leadership: Any = log
    return GroupShard(broker, GroupConfig(), leadership, lambda: 0, lambda: None)


def offset_in(shard: GroupShard) -> int | None:
    committed = shard.offsets_of("g").get(NAME)
    return None if committed is None else committed.offset


@pytest.mark.parametrize("commits", [True, False])
def test_a_marker_that_arrives_while_the_shard_is_loaded_counts_after_the_replay(commits: bool) -> None:
    """It is behind the part of the log that is replayed."""

    async def scenario() -> None:
        shard = shard_of(Log(is_served=False))
        await shard.end_transaction(7, commits)
        key, value = Groups(GroupConfig()).offset_record("g", NAME, at(5))
        shard.replay(key, value, 7)
        assert shard.unstable_offsets("g") == {NAME}
        await shard.loaded()
        assert shard.unstable_offsets("g") == set()
        assert offset_in(shard) == (5 if commits else None)

    asyncio.run(scenario())


def test_an_older_commit_that_is_applied_late_does_not_replace_that_of_a_transaction() -> None:
    async def scenario() -> None:
        log = Log()
        shard = shard_of(log)
        older = asyncio.create_task(shard.commit_offsets("g", OUTSIDE, {NAME: at(3)}))
        await asyncio.sleep(0)
        inside = asyncio.create_task(shard.commit_in_transaction("g", OUTSIDE, (7, 0), {NAME: at(5)}))
        await asyncio.sleep(0)
        ended = asyncio.create_task(shard.end_transaction(7, True))
        await asyncio.sleep(0)
        for future in log.waiting:
            future.set_result(None)
        await asyncio.gather(older, inside, ended)
        assert offset_in(shard) == 5

    asyncio.run(scenario())


@pytest.mark.parametrize("commits", [True, False])
def test_offsets_that_are_appended_but_not_committed_in_time_are_pending_as_after_a_replay(commits: bool) -> None:
    """The earlier ones of the same transaction were dropped with them, so that its commit moved nothing."""

    async def scenario() -> None:
        log = Log()
        shard = shard_of(log)
        first = asyncio.create_task(shard.commit_in_transaction("g", OUTSIDE, (7, 0), {NAME: at(5)}))
        await asyncio.sleep(0)
        log.waiting[0].set_result(None)
        await first
        second = asyncio.create_task(shard.commit_in_transaction("g", OUTSIDE, (7, 0), {NAME: at(8)}))
        await asyncio.sleep(0)
        log.waiting[1].set_exception(KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
        with pytest.raises(KafkaError):
            await second
        assert shard.unstable_offsets("g") == {NAME}
        await shard.end_transaction(7, commits)
        assert offset_in(shard) == (8 if commits else None)

    asyncio.run(scenario())


def test_deleting_a_group_drops_the_offsets_of_its_open_transactions() -> None:
    async def scenario() -> None:
        log = Log()
        shard = shard_of(log)
        for commit in (
            shard.commit_offsets("g", OUTSIDE, {TopicPartition("other", 0): at(1)}),
            shard.commit_in_transaction("g", OUTSIDE, (7, 0), {NAME: at(5)}),
        ):
            task = asyncio.create_task(commit)
            await asyncio.sleep(0)
            log.waiting[-1].set_result(None)
            await task
        deletion = asyncio.create_task(shard.delete("g"))
        await asyncio.sleep(0)
        log.waiting[-1].set_result(None)
        await deletion
        await shard.end_transaction(7, True)
        assert offset_in(shard) is None

    asyncio.run(scenario())
