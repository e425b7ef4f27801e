"""Periodic jobs: flush by time, delete old segments, write checkpoints, expire producers, reopen offline logs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from skylog.broker.config import BrokerConfig
from skylog.broker.flusher import Flusher
from skylog.broker.periodic_jobs import PeriodicJobs
from skylog.broker.replicas import Replicas
from skylog.clock import Clock
from skylog.errors import KafkaError
from skylog.storage import Log, LogDir
from skylog.storage.log_dir import delete

logger = logging.getLogger(__name__)

REOPEN_INTERVAL_MS: Final = 10_000


class Housekeeping:
    """Runs the periodic jobs. A failure is logged and counted in `failures`, and the job is retried when next due."""

    def __init__(
        self,
        log_dir: LogDir,
        replicas: Callable[[], Replicas],
        flusher: Flusher,
        executor: ThreadPoolExecutor,
        clock: Clock,
        config: BrokerConfig,
    ) -> None:
        self._log_dir = log_dir
        self._replicas = replicas
        self._flusher = flusher
        self._executor = executor
        self._clock = clock
        self._config = config
        self._jobs = PeriodicJobs()
        self._failures = 0

    @property
    def failures(self) -> int:
        return self._failures + self._jobs.failures

    def reconfigure(self, config: BrokerConfig) -> None:
        """Use another configuration from the next run on. The intervals stay."""
        self._config = config

    def start(self) -> None:
        config = self._config
        for interval_ms, job in (
            (config.log_flush_scheduler_interval_ms, self.flush_due),
            (config.log_retention_check_interval_ms, self.drop_expired),
            (config.log_flush_offset_checkpoint_interval_ms, self._checkpoint),
            (config.log_retention_check_interval_ms, self.expire_producers),
            (REOPEN_INTERVAL_MS, self.reopen_offline),
        ):
            self._jobs.start(interval_ms / 1000, job)

    async def stop(self) -> None:
        await self._jobs.stop()

    def flush_due(self) -> None:
        """Start an fsync of each log whose flush.ms has passed or that has a closed segment to flush."""
        now_ms = self._clock.now_ms()
        for log in self._logs():
            since_ms = log.unflushed_since_ms
            overdue = since_ms is not None and now_ms - since_ms >= log.config.flush_ms
            if (overdue or log.has_unflushed_segments) and log.failure is None:
                self._flusher.flush(log, self._flushed)

    def _flushed(self, error: KafkaError | None) -> None:
        if error is not None:
            self._failures += 1

    def drop_expired(self) -> None:
        now_ms = self._clock.now_ms()
        for log in self._logs():
            for path in log.drop_expired(now_ms):
                self.discard(path)

    def checkpoint(self) -> asyncio.Future[None]:
        """Write the checkpoint files in a thread."""
        return self.run(self._log_dir.checkpoint_writer())

    def _checkpoint(self) -> None:
        self.checkpoint()

    def expire_producers(self) -> None:
        before_ms = self._clock.now_ms() - self._config.producer_id_expiration_ms
        for log in self._logs():
            log.producers.expire(before_ms)

    async def reopen_offline(self) -> None:
        await self._replicas().reopen_offline()

    def discard(self, *paths: Path) -> None:
        """Delete unreferenced files or directories in a thread."""
        self.run(lambda: _delete_all(paths))

    def run(self, work: Callable[[], None]) -> asyncio.Future[None]:
        """Run work in a thread. If it fails, that is logged and counted."""
        future = asyncio.get_running_loop().run_in_executor(self._executor, work)
        future.add_done_callback(self._note)
        return future

    def _note(self, future: asyncio.Future[None]) -> None:
        error = future.exception()
        if error is not None:
            self._failures += 1
            logger.error("a background job failed", exc_info=error)

    def _logs(self) -> list[Log]:
        return [partition.log for partition in self._replicas().all()]


def _delete_all(paths: Iterable[Path]) -> None:
    """Delete as many of the paths as possible, then raise the first error."""
    errors = []
    for path in paths:
        try:
            delete(path)
        except OSError as error:
            errors.append(error)
    if errors:
        raise errors[0]
