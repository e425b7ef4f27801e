"""Jobs that the broker runs again and again, each at its own interval."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

logger = logging.getLogger(__name__)

Job = Callable[[], Awaitable[None] | None]


class PeriodicJobs:
    """A failure of a job is logged and counted in `failures`, and the job runs again when it is next due."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []
        self.failures = 0

    def start(self, seconds: float, job: Job) -> None:
        """Run a job at this interval. The first run is one interval from now."""
        self._tasks.append(asyncio.create_task(self._repeat(seconds, job)))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _repeat(self, seconds: float, job: Job) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                waiting = job()
                if waiting is not None:
                    await waiting
            except Exception:
                self.failures += 1
                logger.exception("%s failed, retrying in %g s", job.__name__, seconds)
