"""The broker's side of a cleaning process: starts it, passes it the job, and lets it delete the old segments."""

from __future__ import annotations

import asyncio
import os
import pickle
import selectors
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import IO, Final, TypeVar

from skylog.errors import SkylogError
from skylog.storage.clean_job import CleanJob, CleanResult

_COMMAND: Final = (sys.executable, "-m", "skylog.long_slice", "skylog.storage.clean_process")
_READ_BYTES: Final = 65536
_MAX_STDERR_BYTES: Final = 2000
_ALLOCATOR: Final = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}
"""A cleaning process keeps the memory of its arrays and uses it again: a tenth less CPU time, and no more memory."""

T = TypeVar("T")


class CleanerProcess:
    """A process for one job, which inherits the descriptor `folder`. Killed at the end of the `async with` block.

    Used from the event loop. A thread starts the process and waits for it: the loop's own way to start one copies the
    page tables of the broker and waits until the program runs, and afterwards every write to memory copies a page. The
    thread lives as long as the process, because the kernel kills the process with it (see `bound_process`).
    """

    def __init__(self, folder: int) -> None:
        self._folder = folder
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="skylog-cleaner")
        self._process: subprocess.Popen[bytes] | None = None
        self._is_started = self._is_killed = False

    async def __aenter__(self) -> CleanerProcess:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._is_started:
            self.kill()
            await self._run(self._end)
        self._thread.shutdown(wait=False)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def kill(self) -> None:
        """Kill the process, or let it die as soon as it is started."""
        self._is_killed = True
        if self._process is not None:
            self._process.kill()

    async def clean(self, job: CleanJob) -> CleanResult:
        """Start the process and run a job. Raises SkylogError with the end of its stderr if it fails; OSError."""
        self._is_started = True
        return await self._run(lambda: self._clean(job))

    async def delete(self, names: Sequence[str]) -> bool:
        """Delete files of the job's folder. Return False if the process has failed to, or has not been started.

        The process ends with that.
        """
        return self._is_started and await self._run(lambda: self._delete(names))

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    # -- in the thread

    def _clean(self, job: CleanJob) -> CleanResult:
        process = self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        with suppress(BrokenPipeError):  # it has died: stderr says why
            pickle.dump(job, process.stdin)
            process.stdin.flush()
        out, error = _read_until_closed(process.stdout, process.stderr)
        try:
            result = pickle.loads(out)
        except (EOFError, pickle.UnpicklingError):
            error += process.stderr.read()
            reason = error[-_MAX_STDERR_BYTES:].decode(errors="replace")
            raise SkylogError(f"the cleaning process ended with {process.wait()}: {reason}") from None
        assert isinstance(result, CleanResult)
        return result

    def _start(self) -> subprocess.Popen[bytes]:
        self._process = process = subprocess.Popen(
            [*_COMMAND, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(self._folder,),
            env=os.environ | _ALLOCATOR,
        )
        if self._is_killed:
            process.kill()
        return process

    def _delete(self, names: Sequence[str]) -> bool:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        try:
            pickle.dump(names, process.stdin)
            process.stdin.close()
        except BrokenPipeError:
            return False
        return process.wait() == 0

    def _end(self) -> None:
        process = self._process
        if process is None:
            return  # it could not be started
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()


def _read_until_closed(stdout: IO[bytes], stderr: IO[bytes]) -> tuple[bytes, bytes]:
    """Read stdout until it is closed, and stderr meanwhile, so that neither fills up."""
    parts: dict[IO[bytes], list[bytes]] = {stdout: [], stderr: []}
    with selectors.DefaultSelector() as selector:
        for pipe, found in parts.items():
            selector.register(pipe, selectors.EVENT_READ, found)
        while stdout in selector.get_map():
            for key, _ in selector.select():
                data = os.read(key.fd, _READ_BYTES)
                key.data.append(data)
                if not data:
                    selector.unregister(key.fd)
    return b"".join(parts[stdout]), b"".join(parts[stderr])
