"""Long work on the event loop, in turns: a few milliseconds at a time, with everybody else served in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from time import perf_counter
from typing import Final, TypeVar

T = TypeVar("T")

TURN_SECONDS: Final = 0.005


class Turn:
    """The time that one piece of work may take before others are served.

        turn = Turn()
        for row in rows:
            await turn.give_way()
            ...

    Whatever the work relies on may have changed when `give_way` returns.
    """

    __slots__ = ("_ends", "_seconds")

    def __init__(self, seconds: float = TURN_SECONDS) -> None:
        self._seconds = seconds
        self._ends = perf_counter() + seconds

    async def give_way(self) -> None:
        """Let the event loop go on if the turn is over."""
        if perf_counter() >= self._ends:
            await asyncio.sleep(0)
            self._ends = perf_counter() + self._seconds


async def in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """The items one by one, with others served in between."""
    turn = Turn()
    for item in items:
        await turn.give_way()
        yield item
