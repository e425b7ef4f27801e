"""Runs compaction: selects the log with the most dirty bytes, cleans it in another process, and swaps the result in.

A job uses a descriptor of the folder, not its name. A topic that is deleted and created again under the same name has
another folder, which the job cannot touch.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from skylog.broker.cleaner_process import CleanerProcess
from skylog.broker.config import BrokerConfig
from skylog.broker.replicas import Replicas
from skylog.clock import Clock
from skylog.storage import Log
from skylog.storage.clean_job import FOLDER, KEY_BYTES, CleanedSegment, CleanJob, CleanResult
from skylog.storage.compaction import commit, swap_path

logger = logging.getLogger(__name__)

FIRST_RETRY_SECONDS: Final = 60.0
LAST_RETRY_SECONDS: Final = 3600.0


class Uncleanable(NamedTuple):
    """A log that is set aside: the last error, the number of failures, and the time of the next attempt."""

    reason: str
    failures: int
    retry_at: float


class Compactor:
    """Runs one job at a time.

    A failed job is logged and counted in `failures`. Its log is set aside in `uncleanable`, for longer after each
    failure, and the other logs continue.
    """

    def __init__(
        self,
        replicas: Replicas,
        executor: ThreadPoolExecutor,
        clock: Clock,
        config: BrokerConfig,
        discard: Callable[[Path], None],
    ) -> None:
        self._replicas = replicas
        self._executor = executor
        self._clock = clock
        self._config = config
        self._discard = discard
        self._task: asyncio.Task[None] | None = None
        self._checked_at = clock.monotonic()
        self._cleaning: Log | None = None
        self._process: CleanerProcess | None = None
        self.uncleanable: dict[Log, Uncleanable] = {}
        self.failures = 0
        replicas.on_removal(self._abandon)
        self.runs = self.read_bytes = self.written_bytes = self.dropped_records = 0  # since startup

    def reconfigure(self, config: BrokerConfig) -> None:
        """Use another configuration from the next run on."""
        self._config = config

    def start(self) -> None:
        if self._config.log_cleaner_enable:
            self._task = asyncio.create_task(self._repeat())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    @property
    def is_running(self) -> bool:
        """Whether a cleaning process is running."""
        return self._process is not None and self._process.is_running

    @property
    def since_last_check_ms(self) -> int:
        return int((self._clock.monotonic() - self._checked_at) * 1000)

    async def _repeat(self) -> None:
        while True:
            await asyncio.sleep(self._config.log_cleaner_backoff_ms / 1000)
            try:
                while await self.clean_one():
                    pass
            except Exception:
                self.failures += 1
                logger.exception("compaction failed, retrying")

    async def clean_one(self) -> bool:
        """Clean the due log with the most dirty bytes. Return False if no log is due."""
        now_ms = self._clock.now_ms()
        self._checked_at = now = self._clock.monotonic()
        max_keys = self._config.log_cleaner_dedupe_buffer_size // KEY_BYTES
        logs = [partition.log for partition in self._replicas.all() if self._may_clean(partition.log, now)]
        due = []
        for log in logs:
            try:
                job = log.plan_cleaning(now_ms, max_keys)
            except OSError as error:
                self._set_aside(log, error)
            else:
                due += [(log, job)] if job is not None else []
        if not due:
            return False
        log, job = max(due, key=lambda pair: _dirty_bytes(pair[1]))
        self._cleaning = log
        try:
            await self._clean(log, job)
            self.uncleanable.pop(log, None)
        except Exception as error:  # whatever the error, the other logs must be cleaned
            if not log.is_retired:
                self._set_aside(log, error)
        finally:
            self._cleaning = None
        return True

    def _may_clean(self, log: Log, now: float) -> bool:
        aside = self.uncleanable.get(log)
        return aside is None or aside.retry_at <= now

    def _set_aside(self, log: Log, error: Exception) -> None:
        self.failures += 1
        before = self.uncleanable.get(log)
        failures = before.failures + 1 if before is not None else 1
        seconds = min(FIRST_RETRY_SECONDS * 2 ** (failures - 1), LAST_RETRY_SECONDS)
        self.uncleanable[log] = Uncleanable(str(error), failures, self._clock.monotonic() + seconds)
        logger.error("cannot compact %s, retrying in %.0f s: %s", log.name, seconds, error)

    def _abandon(self, log: Log) -> None:
        """Stop cleaning the log of a deleted topic."""
        self.uncleanable.pop(log, None)
        if log is self._cleaning and self._process is not None:
            self._process.kill()

    async def _clean(self, log: Log, job: CleanJob) -> None:
        """Run a job, and swap its results in unless the log is truncated meanwhile, as a follower's may be."""
        truncations = log.truncations
        with _open_folder(job.directory) as (folder, descriptor):
            try:
                async with CleanerProcess(descriptor) as self._process:
                    result = await self._run(dataclasses.replace(job, directory=folder))
                    clean_to = await self._swap_in(log, job, folder, result, truncations)
            finally:  # what a failed job has written would keep a full disk full
                await asyncio.get_running_loop().run_in_executor(
                    self._executor, partial(shutil.rmtree, folder / FOLDER, ignore_errors=True)
                )
        if log.is_retired or log.truncations != truncations:
            return
        log.first_dirty_offset = clean_to
        self.runs += 1
        self.read_bytes += result.read_bytes
        self.written_bytes += result.written_bytes
        self.dropped_records += result.dropped_records
        logger.info(
            "%s: compacted up to offset %d, %d MB to %d MB, %d records kept and %d dropped",
            log.name,
            clean_to,
            result.read_bytes >> 20,
            result.written_bytes >> 20,
            result.kept_records,
            result.dropped_records,
        )

    async def _swap_in(self, log: Log, job: CleanJob, folder: Path, result: CleanResult, truncations: int) -> int:
        """Swap the results of a job in, unless the log was truncated. Return the offset up to which it is clean."""
        assert self._process is not None
        clean_to = result.clean_to
        removed: list[Path] = []
        try:
            for cleaned in result.segments:
                await self._commit(folder, cleaned)
                if log.truncations != truncations:
                    swap_path(folder, cleaned).unlink()
                    break
                replaced = log.replace(cleaned)
                if replaced == [swap_path(log.directory, cleaned)]:  # discarded: its range is as it was
                    clean_to = min(clean_to, max(job.first_dirty_offset, cleaned.base_offset))
                removed += replaced
            if await self._process.delete([path.name for path in removed]):
                removed.clear()
        finally:
            for path in removed:
                self._discard(path)
        return clean_to

    async def _run(self, job: CleanJob) -> CleanResult:
        assert self._process is not None
        return await self._process.clean(job)

    async def _commit(self, folder: Path, cleaned: CleanedSegment) -> None:
        await asyncio.get_running_loop().run_in_executor(self._executor, commit, folder, cleaned)


def _dirty_bytes(job: CleanJob) -> int:
    return sum(source.size_bytes for source in job.sources if source.end_offset > job.first_dirty_offset)


@contextmanager
def _open_folder(directory: Path) -> Iterator[tuple[Path, int]]:
    """Open the folder at `directory`. Yield a path that stays valid if it is renamed, and the descriptor behind it."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # Only Linux has such a path. Elsewhere a topic must not be deleted and created again while it is compacted.
        stable = Path(f"/proc/self/fd/{descriptor}")
        yield (stable if stable.exists() else directory), descriptor
    finally:
        os.close(descriptor)
