"""Runs compaction: picks the log that needs it most, has it cleaned in another process, swaps the result in."""

from __future__ import annotations

import asyncio
import logging
import pickle
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from skylog.broker.config import BrokerConfig
from skylog.broker.partitions import Partitions
from skylog.clock import Clock
from skylog.errors import SkylogError
from skylog.storage import Log
from skylog.storage.cleaner import KEY_BYTES, CleanJob, CleanResult
from skylog.storage.compaction import commit

logger = logging.getLogger(__name__)

_LAST_WORDS_BYTES: Final = 2000


class Compactor:
    """One job at a time. A job that fails is logged, counted in `failures`, and tried again later."""

    def __init__(
        self,
        partitions: Partitions,
        executor: ThreadPoolExecutor,
        clock: Clock,
        config: BrokerConfig,
        discard: Callable[[Path], None],
    ) -> None:
        self._partitions = partitions
        self._executor = executor
        self._clock = clock
        self._config = config
        self._discard = discard
        self._task: asyncio.Task[None] | None = None
        self._looked_at = clock.monotonic()
        self.failures = 0
        self.runs = self.read_bytes = self.written_bytes = self.dropped_records = 0  # since the start

    def start(self) -> None:
        if self._config.log_cleaner_enable:
            self._task = asyncio.create_task(self._repeat())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    @property
    def since_last_look_ms(self) -> int:
        return int((self._clock.monotonic() - self._looked_at) * 1000)

    async def _repeat(self) -> None:
        while True:
            await asyncio.sleep(self._config.log_cleaner_backoff_ms / 1000)
            try:
                while await self.clean_one():
                    pass
            except Exception:
                self.failures += 1
                logger.exception("compaction failed and is tried again")

    async def clean_one(self) -> bool:
        """Clean the dirtiest log that is due; whether there was one."""
        now_ms = self._clock.now_ms()
        self._looked_at = self._clock.monotonic()
        max_keys = self._config.log_cleaner_dedupe_buffer_size // KEY_BYTES
        logs = [partition.log for partition in self._partitions.all()]
        due = [(log, job) for log in logs if (job := log.plan_cleaning(now_ms, max_keys)) is not None]
        if not due:
            return False
        log, job = max(due, key=lambda pair: _dirty_bytes(pair[1]))
        await self._clean(log, job)
        return True

    async def _clean(self, log: Log, job: CleanJob) -> None:
        result = await _run(job)
        loop = asyncio.get_running_loop()
        for cleaned in result.segments:
            await loop.run_in_executor(self._executor, commit, job.directory, cleaned)
            for path in log.replace(cleaned):
                self._discard(path)
        log.first_dirty_offset = result.clean_to
        self.runs += 1
        self.read_bytes += result.read_bytes
        self.written_bytes += result.written_bytes
        self.dropped_records += result.dropped_records
        logger.info(
            "%s: compacted up to offset %d, %d MB to %d MB, %d records kept and %d dropped",
            log.name,
            result.clean_to,
            result.read_bytes >> 20,
            result.written_bytes >> 20,
            result.kept_records,
            result.dropped_records,
        )


def _dirty_bytes(job: CleanJob) -> int:
    return sum(source.size_bytes for source in job.sources if source.end_offset > job.first_dirty_offset)


async def _run(job: CleanJob) -> CleanResult:
    """Have another process do the job. Raises SkylogError with its last words where it fails."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "skylog.storage.clean_process",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, error = await process.communicate(pickle.dumps(job))
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    if process.returncode != 0:
        raise SkylogError(f"cleaning {job.directory} failed: {error[-_LAST_WORDS_BYTES:].decode(errors='replace')}")
    result = pickle.loads(out)
    assert isinstance(result, CleanResult)
    return result
