"""Deadlines: items expire in their time, or are removed before."""

from __future__ import annotations

import asyncio

from skylog.broker.deadlines import Deadlines


class Item:
    def __init__(self, expired: list[str], name: str) -> None:
        self._expired = expired
        self._name = name

    def expire(self) -> None:
        self._expired.append(self._name)


def test_items_expire_in_the_order_of_their_deadlines_whatever_the_order_they_were_added_in() -> None:
    async def run() -> list[str]:
        deadlines, expired = Deadlines(), list[str]()
        for name, timeout_ms in [("late", 60), ("soon", 20), ("at once", 0), ("negative", -5), ("soon too", 20)]:
            deadlines.add(Item(expired, name), timeout_ms)
        assert expired == [], "never before the caller has returned"
        while len(deadlines):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        return expired

    expired = asyncio.run(run())
    assert set(expired[:2]) == {"at once", "negative"}
    assert expired[2:] == ["soon", "soon too", "late"]


def test_an_item_that_is_removed_does_not_expire() -> None:
    async def run() -> None:
        deadlines, expired = Deadlines(), list[str]()
        items = [Item(expired, str(number)) for number in range(3)]
        for item in items:
            deadlines.add(item, 10)
        deadlines.remove(items[0], 10)
        deadlines.remove(items[0], 10)
        deadlines.remove(items[1], 99)
        await asyncio.sleep(0.05)
        assert expired == ["1", "2"]
        assert len(deadlines) == 0
        deadlines.remove(items[2], 10)

    asyncio.run(run())


def test_many_items_use_one_timer() -> None:
    async def run() -> None:
        deadlines, timers = Deadlines(), list[float]()
        loop = asyncio.get_running_loop()
        call_at = loop.call_at
        loop.call_at = lambda when, *rest: timers.append(when) or call_at(when, *rest)  # type: ignore[func-returns-value,method-assign]
        items = [Item([], "") for _ in range(1000)]
        for item in items:
            deadlines.add(item, 30_000)
        for item in items:
            deadlines.remove(item, 30_000)
        assert len(timers) == 1

    asyncio.run(run())


def test_an_item_may_add_another_one_when_it_expires() -> None:
    async def run() -> None:
        deadlines, expired = Deadlines(), list[str]()

        class Repeating(Item):
            def expire(self) -> None:
                super().expire()
                if len(expired) < 3:
                    deadlines.add(self, 1)

        deadlines.add(Repeating(expired, "again"), 1)
        while len(deadlines):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        assert expired == ["again"] * 3

    asyncio.run(run())
