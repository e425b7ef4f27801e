"""Runs the console beside a broker, in a separate process: rendering pages never blocks the broker's event loop.

`skylog serve` opens the console's socket itself, so that a port in use is an immediate error. It starts the process
when the first visitor connects, or after ten seconds: a short-lived broker, as in a test, does not pay for its memory
and CPU time. Meanwhile the visitor waits in the socket's backlog.

Broker and console communicate over a socket pair, see `skylog.console.cluster.parent_broker`. Each request is handled
in its own task, so a request for the health does not wait for the metrics of thousands of partitions. The console exits
when the socket is closed; the kernel closes it even if the broker is killed with SIGKILL. A console that exits is
restarted, with exponential backoff while it keeps failing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

from skylog.console.settings import PASSWORD_VARIABLE, TOKEN_VARIABLE, USER_VARIABLE, Settings
from skylog.metric import to_document

if TYPE_CHECKING:
    from skylog.broker import Broker
    from skylog.broker.metrics import Health

logger = logging.getLogger(__name__)

START_AFTER_S: Final = 10.0
SHORTEST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 60.0
LASTING_S: Final = 60.0  # after this uptime the next restart uses the shortest pause
STOP_GRACE_S: Final = 3.0
NICENESS: Final = 5


def console_command(settings: Settings) -> list[str]:
    """Return the command line of `skylog console`: this interpreter, without the working directory in `sys.path`."""
    command = [sys.executable, "-P", "-m", "skylog", "console", "--bootstrap", settings.bootstrap]
    command += ["--host", settings.host]
    return [*command, "--read-only"] if settings.read_only else command


def console_secrets(settings: Settings) -> dict[str, str]:
    """Credentials as environment variables: command lines are visible to all users (ps)."""
    secrets = {TOKEN_VARIABLE: settings.token, USER_VARIABLE: settings.user, PASSWORD_VARIABLE: settings.password}
    return {name: value for name, value in secrets.items() if value}


class ConsoleProcess:
    """Starts, restarts and stops the console, and answers its requests. Runs on the broker's event loop.

        console = ConsoleProcess(broker, health, sock, command, environment)
        console.start()          # after the broker
        await console.stop()     # before the broker

    The descriptors of the two sockets are appended to `command`. Each unexpected exit is logged and counted in
    `failures`.
    """

    def __init__(
        self,
        broker: Broker,
        health: Health,
        sock: socket.socket,
        command: list[str],
        environment: Mapping[str, str],
        start_after_s: float = START_AFTER_S,
    ) -> None:
        self._broker = broker
        self._health = health
        self._socket = sock
        self._command = command
        self._environment = environment
        self._start_after_s = start_after_s
        self._task: asyncio.Task[None] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._in_progress: set[str] = set()
        self.failures = 0

    @property
    def pid(self) -> int | None:
        """The process id of the console while it runs."""
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        self._health.start()
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        self._health.stop()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._socket.close()

    async def _run(self) -> None:
        await self._wait_for_visitor()
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
            logger.error("the console %s; restarting it in %.0f s", reason, pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _wait_for_visitor(self) -> None:
        """Wait until a visitor connects, or the broker has run for `start_after_s`."""
        loop = asyncio.get_running_loop()
        connected = asyncio.Event()
        loop.add_reader(self._socket.fileno(), connected.set)
        try:
            with contextlib.suppress(TimeoutError):
                # Not wait_for, which loses a cancellation that arrives together with the visitor.
                async with asyncio.timeout(self._start_after_s):
                    await connected.wait()
        finally:
            loop.remove_reader(self._socket.fileno())

    async def _run_once(self) -> int:
        """Run the console until it exits, and return its exit code. Cancellation stops the console first."""
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                numbers = {"--fd": self._socket.fileno(), "--broker-fd": theirs.fileno()}
                options = [text for name, number in numbers.items() for text in (name, str(number))]
                self._process = process = await asyncio.create_subprocess_exec(
                    *self._command,
                    *options,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=sys.stderr.fileno(),  # scripts read one line of our stdout and wait until it is closed
                    pass_fds=tuple(numbers.values()),
                    env={**os.environ, **self._environment},
                    start_new_session=True,  # Ctrl-C reaches only the broker, which then stops the console
                )
            with contextlib.suppress(ProcessLookupError):
                os.setpriority(os.PRIO_PROCESS, process.pid, os.getpriority(os.PRIO_PROCESS, 0) + NICENESS)
            answering = asyncio.create_task(self._answer(ours))
            try:
                return await process.wait()
            finally:
                answering.cancel()
                await asyncio.gather(answering, return_exceptions=True)
                ours.close()
                await _end(process)
                self._process = None

    async def _answer(self, sock: socket.socket) -> None:
        """Answer the requests of a console until it exits."""
        reader, writer = await asyncio.open_unix_connection(sock=sock)
        answers: set[asyncio.Task[None]] = set()
        try:
            while line := await reader.readline():
                tag, _, request = line.decode(errors="replace").strip().partition(" ")
                task = asyncio.create_task(self._answer_one(_ConsoleResponse(writer, tag), request))
                answers.add(task)
                task.add_done_callback(answers.discard)
        except (OSError, ValueError) as error:
            logger.warning("cannot read the console's requests: %s", error)
        finally:
            left = list(answers)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            writer.close()

    async def _answer_one(self, response: _ConsoleResponse, request: str) -> None:
        try:
            await response.end(await self._respond(response, request))
        except ConnectionError:
            return  # the console has exited; `_run` logs that
        except Exception as error:
            self.failures += 1
            logger.exception("cannot answer the console's request for %s", request)
            with contextlib.suppress(ConnectionError):
                await response.end({"error": f"{type(error).__name__}: {error}"})

    async def _respond(self, response: _ConsoleResponse, request: str) -> dict[str, Any]:
        """Send all lines of the response except the last, which is returned."""
        match request:
            case "metrics" | "metrics brief" if request in self._in_progress:
                return {"error": "the previous request for the same metrics is still in progress; retry later"}
            case "metrics" | "metrics brief":
                self._in_progress.add(request)
                try:
                    await self._send_metrics(response, brief=request != "metrics")
                finally:
                    self._in_progress.discard(request)
                return {}
            case "health":
                return (await self._health.report()).to_document()
            case "clients":
                from skylog.broker.metrics.clients import client_documents

                return await client_documents(self._broker, asyncio.get_running_loop().time())
        return {"error": f"unknown request '{request}'; expected metrics, metrics brief, health or clients"}

    async def _send_metrics(self, response: _ConsoleResponse, *, brief: bool) -> None:
        from skylog.broker.metrics import stream

        async with aclosing(stream(self._broker, brief=brief)) as pieces:
            async for piece in pieces:
                await response.add(to_document([piece])[0])


@dataclass(frozen=True, slots=True)
class _ConsoleResponse:
    """Lines to the console, with the tag of its request. Writing waits while the console does not read."""

    writer: asyncio.StreamWriter
    tag: str

    async def add(self, document: dict[str, Any]) -> None:
        await self._write("more", document)

    async def end(self, document: dict[str, Any]) -> None:
        await self._write("end", document)

    async def _write(self, word: str, document: dict[str, Any]) -> None:
        self.writer.write(b"%b %b %b\n" % (self.tag.encode(), word.encode(), orjson.dumps(document)))
        await self.writer.drain()


async def _end(process: asyncio.subprocess.Process) -> None:
    """Wait for the console to exit, now that the socket pair is closed. Kills it after `STOP_GRACE_S`."""
    if process.returncode is not None:
        return
    try:
        async with asyncio.timeout(STOP_GRACE_S):
            await process.wait()
    except TimeoutError:
        logger.warning("the console did not exit within %.0f s; killing it", STOP_GRACE_S)
        process.kill()
        await process.wait()
