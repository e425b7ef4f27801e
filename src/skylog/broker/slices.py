"""Long work on the event loop, done in slices."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Final

SLICE_SECONDS: Final = 0.01


class Slices:
    """Call `await pause()` between steps: it lets others run when the present slice has lasted long enough."""

    __slots__ = ("_began",)

    def __init__(self) -> None:
        self._began = perf_counter()

    async def pause(self) -> None:
        if perf_counter() - self._began > SLICE_SECONDS:
            await asyncio.sleep(0)
            self._began = perf_counter()
