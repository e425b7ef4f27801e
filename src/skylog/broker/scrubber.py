"""Reads the replicas of a broker slowly in the background, to find damage before somebody needs the data.

One pass checks every batch below the high watermark, a few hundred kilobytes at a time and in a thread. Then the
scrubber rests, and begins the next one.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from skylog.broker.time_slice import TimeSlice
from skylog.errors import KafkaError
from skylog.storage import Log, UncheckedError, plan_scrub

if TYPE_CHECKING:
    from skylog.broker.broker import Broker

logger = logging.getLogger(__name__)

REST_S: Final = 60.0
PART_BYTES: Final = 256 * 1024


class Scrubber:
    """Scrubs all replicas, one after the other. Damage is reported by the broker's `LogChecker`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._task: asyncio.Task[None] | None = None
        self._suspected: dict[Log, asyncio.Task[None]] = {}
        self.scrubbed_bytes = 0
        self.failures = 0

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        tasks = [*self._suspected.values(), *([self._task] if self._task is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def suspect(self, log: Log) -> None:
        """Scrub a log now, because a batch of it could not be read. The next pass may be hours away."""
        if log not in self._suspected:
            task = self._suspected[log] = asyncio.create_task(self._scrub_logged(log))
            task.add_done_callback(lambda _: self._suspected.pop(log))

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(REST_S)
            try:
                await self.scrub_all()
            except Exception:
                self.failures += 1
                logger.exception("the scrub failed, retrying in %.0f s", REST_S)

    async def scrub_all(self) -> None:
        """Check all replicas once."""
        time_slice = TimeSlice()
        for partition in self._broker.replicas.all():
            await time_slice.yield_if_over()
            await self._scrub_logged(partition.log)

    async def _scrub_logged(self, log: Log) -> None:
        try:
            await self._scrub(log)
        except KafkaError as error:
            if not log.is_retired:
                self.failures += 1
                logger.error("%s cannot be scrubbed: %s", log.name, error)

    async def _scrub(self, log: Log) -> None:
        """Check one log, at the configured speed. Raises KafkaError if it cannot be read."""
        checks = self._broker.checks
        offset = log.log_start_offset
        while True:
            try:
                part = plan_scrub(log, offset, PART_BYTES)
            except UncheckedError as unchecked:
                await checks.run(log, unchecked)
                continue
            bytes_per_second = self._broker.config.broker.log_scrub_bytes_per_second
            if part is None or not bytes_per_second:
                return
            await asyncio.sleep(part.size_bytes / bytes_per_second)
            await checks.run(log, UncheckedError(part))
            offset = part.next_offset
            self.scrubbed_bytes += part.size_bytes
