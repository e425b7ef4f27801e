"""What a broker does unasked: flush by time, drop old segments, write checkpoints, forget silent producers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from skylog.broker.config import BrokerConfig
from skylog.broker.flusher import Flusher
from skylog.broker.partitions import Partitions
from skylog.clock import Clock
from skylog.errors import KafkaError
from skylog.storage import Log, LogDir
from skylog.storage.log_dir import delete

logger = logging.getLogger(__name__)

REOPEN_INTERVAL_MS: Final = 10_000


class Housekeeping:
    """Periodic jobs. One that fails is logged, counted in `failures`, and tried again at its next turn."""

    def __init__(
        self,
        log_dir: LogDir,
        partitions: Callable[[], Partitions],
        flusher: Flusher,
        executor: ThreadPoolExecutor,
        clock: Clock,
        config: BrokerConfig,
    ) -> None:
        self._log_dir = log_dir
        self._partitions = partitions
        self._flusher = flusher
        self._executor = executor
        self._clock = clock
        self._config = config
        self._tasks: list[asyncio.Task[None]] = []
        self.failures = 0

    def reconfigure(self, config: BrokerConfig) -> None:
        """Use another configuration from the next turn on."""
        self._config = config

    def start(self) -> None:
        config = self._config
        for interval_ms, job in (
            (config.log_flush_scheduler_interval_ms, self.flush_due),
            (config.log_retention_check_interval_ms, self.drop_expired),
            (config.log_flush_offset_checkpoint_interval_ms, self.checkpoint),
            (config.log_retention_check_interval_ms, self.forget_producers),
            (REOPEN_INTERVAL_MS, self.reopen_offline),
        ):
            self._tasks.append(asyncio.create_task(self._repeat(interval_ms / 1000, job)))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _repeat(self, seconds: float, job: Callable[[], Awaitable[None] | None]) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                waiting = job()
                if waiting is not None:
                    await waiting
            except Exception:
                self.failures += 1
                logger.exception("%s failed and is tried again in %.0f s", job.__name__, seconds)

    def flush_due(self) -> None:
        """Start an fsync where flush.ms has passed, or a closed segment has not reached the disk yet."""
        now_ms = self._clock.now_ms()
        for log in self._logs():
            since_ms = log.unflushed_since_ms
            overdue = since_ms is not None and now_ms - since_ms >= log.config.flush_ms
            if (overdue or log.has_unflushed_segments) and log.failure is None:
                self._flusher.flush(log, self._flushed)

    def _flushed(self, error: KafkaError | None) -> None:
        if error is not None:
            self.failures += 1

    def drop_expired(self) -> None:
        now_ms = self._clock.now_ms()
        for log in self._logs():
            for path in log.drop_expired(now_ms):
                self.discard(path)

    def checkpoint(self) -> None:
        """Write the checkpoint files, off the event loop."""
        self._run(self._log_dir.checkpoint_writer())

    def forget_producers(self) -> None:
        before_ms = self._clock.now_ms() - self._config.producer_id_expiration_ms
        for log in self._logs():
            log.producers.expire(before_ms)

    async def reopen_offline(self) -> None:
        await self._partitions().reopen_offline()

    def discard(self, *paths: Path) -> None:
        """Remove files or folders that nothing refers to any more, off the event loop."""
        self._run(lambda: _delete_all(paths))

    def _run(self, work: Callable[[], None]) -> None:
        future = asyncio.get_running_loop().run_in_executor(self._executor, work)
        future.add_done_callback(self._note)

    def _note(self, future: asyncio.Future[None]) -> None:
        error = future.exception()
        if error is not None:
            self.failures += 1
            logger.error("a background job failed", exc_info=error)

    def _logs(self) -> list[Log]:
        return [partition.log for partition in self._partitions().all()]


def _delete_all(paths: Iterable[Path]) -> None:
    """Delete what can be deleted. Raises the first error, when all have been tried."""
    errors = []
    for path in paths:
        try:
            delete(path)
        except OSError as error:
            errors.append(error)
    if errors:
        raise errors[0]
