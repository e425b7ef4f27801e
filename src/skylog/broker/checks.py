"""Checks of what was found in log files, off the event loop, before it is read for the first time."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from concurrent.futures import Executor

from skylog.storage import FileSlice, Log, UncheckedError


class Checks:
    """Runs checks that reads ask for. Readers that need the same one wait for it together."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._running: dict[Hashable, asyncio.Future[None]] = {}

    async def run(self, log: Log, unchecked: UncheckedError) -> None:
        """Return when the read that raised `unchecked` can be tried again. Raises KafkaError."""
        key = unchecked.check.key
        running = self._running.get(key)
        if running is None:
            running = self._running[key] = asyncio.ensure_future(self._run(log, unchecked))
            running.add_done_callback(lambda _: self._running.pop(key))
        await asyncio.shield(running)

    async def _run(self, log: Log, unchecked: UncheckedError) -> None:
        check = unchecked.check
        await asyncio.get_running_loop().run_in_executor(self._executor, log.run_check, check)
        check.finish()

    async def read(self, log: Log, offset: int, max_bytes: int) -> FileSlice | None:
        """`Log.read` for the event loop."""
        while True:
            try:
                return log.read_checked(offset, max_bytes)
            except UncheckedError as unchecked:
                await self.run(log, unchecked)
