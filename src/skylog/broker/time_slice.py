"""Cooperative multitasking: long work on the event loop yields every few milliseconds, so other clients are served."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from time import perf_counter
from typing import Final, TypeVar

T = TypeVar("T")

SLICE_SECONDS: Final = 0.005


class TimeSlice:
    """The time that a piece of work may hold the event loop.

        time_slice = TimeSlice()
        for row in rows:
            await time_slice.yield_if_over()
            ...

    Any shared state may have changed when `yield_if_over` returns.
    """

    __slots__ = ("_ends", "_seconds")

    def __init__(self, seconds: float = SLICE_SECONDS) -> None:
        self._seconds = seconds
        self._ends = perf_counter() + seconds

    async def yield_if_over(self) -> None:
        """Yield to the event loop if the slice is used up, and begin another."""
        if perf_counter() >= self._ends:
            await asyncio.sleep(0)
            self._ends = perf_counter() + self._seconds


async def cooperatively(items: Iterable[T]) -> AsyncIterator[T]:
    """Iterate over `items`, yielding to the event loop between them when a time slice is over."""
    time_slice = TimeSlice()
    for item in items:
        await time_slice.yield_if_over()
        yield item
