"""The order in which the changes of a group are applied, while its records are being stored."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any, cast

import pytest

from skylog.broker.group_log import GroupLog
from skylog.broker.leadership import Leadership
from skylog.errors import ErrorCode, KafkaError


class FakeLeadership:
    """Each append waits for a future of its own in `appends`."""

    def __init__(self) -> None:
        self.is_over = False
        self.appends: list[asyncio.Future[None]] = []

    def append(self, *_: object) -> asyncio.Future[None]:
        self.appends.append(asyncio.get_running_loop().create_future())
        return self.appends[-1]


class Stage:
    def __init__(self) -> None:
        self.leadership = FakeLeadership()
        self.log = GroupLog(cast(Leadership, self.leadership))
        self.applied: list[int] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def begin(self, count: int) -> None:
        """Begin stores of a group."""
        for _ in range(count):
            self.tasks.append(asyncio.create_task(self._store(len(self.tasks))))
        await self.turn()

    async def _store(self, number: int) -> None:
        await self.log.store("g", [(b"k", b"v")])
        self.applied.append(number)

    def commit(self, *numbers: int) -> None:
        for number in numbers:
            self.leadership.appends[number].set_result(None)

    async def turn(self) -> None:
        """Let everything run that can."""
        for _ in range(20 + 4 * len(self.tasks)):
            await asyncio.sleep(0)


def test_changes_are_applied_in_the_order_of_the_log() -> None:
    async def run() -> None:
        stage = Stage()
        await stage.begin(4)
        stage.commit(3, 1)
        await stage.turn()
        assert stage.applied == []
        stage.commit(0)
        await stage.turn()
        assert stage.applied == [0, 1]
        stage.commit(2)
        await stage.log.wait_for_earlier("g")
        assert stage.applied == [0, 1, 2, 3]
        assert not stage.log.has_in_flight("g")

    asyncio.run(run())


def test_a_store_waits_for_the_one_before_it_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """It used to wait for all before it: with n commits in flight that are n² waits."""

    async def run() -> None:
        wait, waited = asyncio.wait, []

        async def counting(futures: Collection[asyncio.Future[None]]) -> Any:
            waited.append(len(futures))
            return await wait(futures)

        monkeypatch.setattr(asyncio, "wait", counting)
        stage = Stage()
        await stage.begin(100)
        stage.commit(*range(1, 100))
        await stage.turn()
        stage.commit(0)
        await stage.log.wait_for_earlier("g")
        assert stage.applied == list(range(100))
        assert set(waited) == {1}

    asyncio.run(run())


def test_a_store_that_fails_ends_in_its_turn() -> None:
    async def run() -> None:
        stage = Stage()
        await stage.begin(3)
        stage.leadership.appends[1].set_exception(KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
        stage.commit(2)
        await stage.turn()
        assert not any(task.done() for task in stage.tasks)
        stage.commit(0)
        results = await asyncio.gather(*stage.tasks, return_exceptions=True)
        assert isinstance(results[1], KafkaError)
        assert results[1].code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert stage.applied == [0, 2]
        assert not stage.log.has_in_flight("g")

    asyncio.run(run())


@pytest.mark.parametrize("times", [1, 2])
def test_a_store_that_is_cancelled_neither_lets_later_ones_pass_nor_blocks_them(times: int) -> None:
    """Cancelled once it still waits for the one before it, cancelled twice it does not."""

    async def run() -> None:
        stage = Stage()
        await stage.begin(3)
        stage.commit(2)
        for _ in range(times):
            stage.tasks[1].cancel()
            await stage.turn()
        assert stage.tasks[1].done() == (times == 2)
        assert stage.applied == []
        stage.commit(0)
        async with asyncio.timeout(5):
            await stage.log.wait_for_earlier("g")
        assert stage.applied == [0, 2]
        assert stage.tasks[1].cancelled()
        assert not stage.log.has_in_flight("g")

    asyncio.run(run())
