"""Checks parts of log files in a thread: before they are first read, and for the scrub."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from concurrent.futures import Executor

from skylog.storage import FileSlice, Log, UncheckedError


class LogChecker:
    """Runs the checks that reads require. Concurrent reads of the same part share one check.

    `on_damage` is called on the event loop with a log that has damage, after each check of it.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.on_damage: Callable[[Log], None] | None = None
        self._running: dict[Hashable, asyncio.Future[None]] = {}

    async def run(self, log: Log, unchecked: UncheckedError) -> None:
        """Run the check that `unchecked` requires; then the read can be retried. Raises KafkaError."""
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
        if self.on_damage is not None and log.damages:
            self.on_damage(log)

    async def read(self, log: Log, offset: int, max_bytes: int, end_offset: int | None = None) -> FileSlice | None:
        """Read from a log on the event loop, running checks in a thread where required. Raises KafkaError.

        `end_offset` is where to end, such as the high watermark; None reads to the end of the log.
        """
        while True:
            try:
                return log.read_checked(offset, max_bytes, end_offset=end_offset)
            except UncheckedError as unchecked:
                await self.run(log, unchecked)
