"""The process that cleans a log: its result, its end, and the files that it deletes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from skylog.broker.cleaner_process import CleanerProcess
from skylog.errors import SkylogError
from skylog.records import Record, build_batch
from skylog.storage.clean_job import CleanJob
from tests.storage.logs import Home, flush

MAX_KEYS = 1000


@pytest.fixture
def job(tmp_path: Path) -> CleanJob:
    """A job for three segments with one key."""
    home = Home(tmp_path, cleanup_policy="compact", min_cleanable_dirty_ratio=0)
    log = home.open()
    for number in range(3):
        home.append(log, bytearray(build_batch([Record(b"%d" % number, b"key", 1000)])))
        log.roll(home.clock.now_ms())
    flush(log)
    job = log.plan_cleaning(home.clock.now_ms(), MAX_KEYS)
    assert job is not None
    return job


def in_process(job: CleanJob, use: Callable[[CleanerProcess], Awaitable[None]]) -> None:
    """Call `use` with a process for the job's folder. It must be dead and reaped afterwards."""

    async def run() -> None:
        async with CleanerProcess(descriptor) as process:
            await use(process)
        assert not process.is_running

    descriptor = os.open(job.directory, os.O_RDONLY)
    try:
        asyncio.run(run())
    finally:
        os.close(descriptor)


def pid_of(process: CleanerProcess) -> int:
    assert process._process is not None
    return process._process.pid


def test_a_process_returns_the_result_and_deletes_the_files_it_is_given(job: CleanJob) -> None:
    (job.directory / "old.log.deleted").write_bytes(b"old")
    (job.directory / "other").write_bytes(b"other")

    async def use(process: CleanerProcess) -> None:
        result = await process.clean(job)
        assert (result.clean_to, result.kept_records, result.dropped_records) == (3, 1, 2)
        assert process.is_running
        assert await process.delete(["old.log.deleted", "missing"])
        assert not process.is_running

    in_process(job, use)
    assert not (job.directory / "old.log.deleted").exists()
    assert (job.directory / "other").exists()


def test_a_process_is_started_by_a_thread_and_not_by_the_event_loop(
    job: CleanJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    def start(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        threads.append(threading.current_thread())
        return popen(*arguments, **options)

    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", start)

    async def use(process: CleanerProcess) -> None:
        await process.clean(job)

    in_process(job, use)
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()


def test_a_process_that_cannot_do_its_job_gives_its_reason(job: CleanJob) -> None:
    for path in job.directory.glob("*.log"):
        path.unlink()

    async def use(process: CleanerProcess) -> None:
        with pytest.raises(SkylogError, match=r"ended with 1: (?s:.*)FileNotFoundError"):
            await process.clean(job)
        assert not await process.delete([])

    in_process(job, use)


def test_a_process_that_is_killed_before_it_deletes_says_so(job: CleanJob) -> None:
    async def use(process: CleanerProcess) -> None:
        await process.clean(job)
        os.kill(pid_of(process), signal.SIGKILL)
        assert not await process.delete(["anything"])

    in_process(job, use)


def test_a_process_that_is_killed_before_it_is_started_does_nothing(job: CleanJob) -> None:
    async def use(process: CleanerProcess) -> None:
        process.kill()
        with pytest.raises(SkylogError, match="ended with -9"):
            await process.clean(job)

    in_process(job, use)
    assert not (job.directory / "cleaning").exists()


def test_a_process_that_was_not_started_deletes_nothing(job: CleanJob) -> None:
    async def use(process: CleanerProcess) -> None:
        assert not await process.delete(["anything"])

    in_process(job, use)


def test_a_job_that_is_cancelled_ends_its_process(job: CleanJob) -> None:
    async def use(process: CleanerProcess) -> None:
        task = asyncio.ensure_future(process.clean(job))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    in_process(job, use)
