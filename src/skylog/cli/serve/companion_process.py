"""Runs a server beside a broker, in a separate process: it never blocks the broker's event loop.

`skylog serve` opens the server's socket itself, so that a port in use is an immediate error. It starts the process
when the first client connects, or after ten seconds: a short-lived broker, as in a test, does not pay for its memory
and CPU time. Meanwhile the client waits in the socket's backlog.

Broker and process share a socket pair. The process exits when it is closed; the kernel closes it even if the broker is
killed with SIGKILL. A process that exits is restarted, with exponential backoff while it keeps failing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from tempfile import TemporaryFile
from typing import Final

from skylog.cli.client_config import CONFIG_VARIABLE

logger = logging.getLogger(__name__)

START_AFTER_S: Final = 10.0
SHORTEST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 60.0
LASTING_S: Final = 60.0  # after this uptime the next restart uses the shortest pause
STOP_GRACE_S: Final = 3.0
NICENESS: Final = 5


class CompanionProcess:
    """Starts, restarts and stops a process. Runs on the broker's event loop.

        companion = CompanionProcess("registry", sock, command, environment)
        companion.start()          # after the broker
        await companion.stop()     # before the broker

    The descriptors of the two sockets are appended to `command`, as `--fd` and `parent_option`. Each unexpected exit is
    logged and counted in `failures`.

    SKYLOG_CONFIG of the process names a file with `client_settings`, in memory where the system can. They have
    passwords, and `ps e` shows the environment of a process.
    """

    parent_option = "--parent-fd"

    def __init__(
        self,
        name: str,
        sock: socket.socket,
        command: list[str],
        environment: Mapping[str, str],
        start_after_s: float = START_AFTER_S,
        *,
        client_settings: str = "",
    ) -> None:
        self._name = name
        self._socket = sock
        self._command = command
        self._environment = environment
        self._client_settings = client_settings
        self._start_after_s = start_after_s
        self._task: asyncio.Task[None] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self.failures = 0

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._socket.close()

    async def attend(self, sock: socket.socket) -> None:
        """Serve the process by the socket pair until it exits. It is cancelled then."""

    async def _run(self) -> None:
        await self._wait_for_client()
        loop = asyncio.get_running_loop()
        pause_s = SHORTEST_PAUSE_S
        while True:
            began = loop.time()
            try:
                reason = f"exited with code {await self._run_once()}"
            except OSError as error:
                reason = f"could not be started: {error}"
            if loop.time() - began > LASTING_S:
                pause_s = SHORTEST_PAUSE_S
            self.failures += 1
            logger.error("the %s %s; restarting it in %.0f s", self._name, reason, pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _wait_for_client(self) -> None:
        """Wait until a client connects, or the broker has run for `start_after_s`."""
        loop = asyncio.get_running_loop()
        connected = asyncio.Event()
        loop.add_reader(self._socket.fileno(), connected.set)
        try:
            with contextlib.suppress(TimeoutError):
                # Not wait_for, which loses a cancellation that arrives together with the client.
                async with asyncio.timeout(self._start_after_s):
                    await connected.wait()
        finally:
            loop.remove_reader(self._socket.fileno())

    async def _run_once(self) -> int:
        """Run the process until it exits, and return its exit code. Cancellation stops it first."""
        ours, theirs = socket.socketpair()
        with ours:
            with theirs, self._settings_file() as settings:
                numbers = {"--fd": self._socket.fileno(), self.parent_option: theirs.fileno()}
                options = [text for name, number in numbers.items() for text in (name, str(number))]
                self._process = process = await asyncio.create_subprocess_exec(
                    *self._command,
                    *options,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=sys.stderr.fileno(),  # scripts read one line of our stdout and wait until it is closed
                    pass_fds=(*numbers.values(), settings),
                    env={**os.environ, **self._environment, CONFIG_VARIABLE: f"/dev/fd/{settings}"},
                    start_new_session=True,  # Ctrl-C reaches only the broker, which then stops the process
                )
            with contextlib.suppress(ProcessLookupError):
                os.setpriority(os.PRIO_PROCESS, process.pid, os.getpriority(os.PRIO_PROCESS, 0) + NICENESS)
            answering = asyncio.create_task(self.attend(ours))
            try:
                return await process.wait()
            finally:
                answering.cancel()
                await asyncio.gather(answering, return_exceptions=True)
                ours.close()
                await self._end(process)
                self._process = None

    @contextlib.contextmanager
    def _settings_file(self) -> Iterator[int]:
        """Open the client settings as a file without a name, until the process has a copy of the descriptor."""
        with open(os.memfd_create("skylog"), "wb") if hasattr(os, "memfd_create") else TemporaryFile() as file:
            file.write(self._client_settings.encode())
            file.seek(0)  # outside Linux, opening /dev/fd/N shares the position
            yield file.fileno()

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        """Wait for the process to exit, now that the socket pair is closed. Kills it after `STOP_GRACE_S`."""
        if process.returncode is not None:
            return
        try:
            async with asyncio.timeout(STOP_GRACE_S):
                await process.wait()
        except TimeoutError:
            logger.warning("the %s did not exit within %.0f s; killing it", self._name, STOP_GRACE_S)
            process.kill()
            await process.wait()
