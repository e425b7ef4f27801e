"""The console beside a broker: a process of its own, so that drawing pages never takes time from the broker's loop.

`skylog serve` opens the console's socket itself, so that a port in use is known at once. The process that serves it is
started when the first visitor connects, or after ten seconds: a broker that lives for a few seconds, as in a test,
never pays its memory and CPU time. The visitor waits in the socket's backlog meanwhile.

The two talk over a socket pair, see `skylog.console.broker_beside`. Questions are answered as they come, each in a
task of its own: who asks for the health does not wait for the metrics of thousands of partitions. The socket's end is
the end of the console: the kernel closes it however the broker goes, by SIGKILL too. A console that dies is started
again, later and later while it does not last.
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
LASTING_S: Final = 60.0  # one that ran for so long is started again without much ado
STOP_GRACE_S: Final = 3.0
NICENESS: Final = 5


def console_command(settings: Settings) -> list[str]:
    """`skylog console`, run by this interpreter, without modules of the working directory."""
    command = [sys.executable, "-P", "-m", "skylog", "console", "--bootstrap", settings.bootstrap]
    command += ["--host", settings.host]
    return [*command, "--read-only"] if settings.read_only else command


def console_secrets(settings: Settings) -> dict[str, str]:
    """For the environment: a command line could be read by every user (ps)."""
    secrets = {TOKEN_VARIABLE: settings.token, USER_VARIABLE: settings.user, PASSWORD_VARIABLE: settings.password}
    return {name: value for name, value in secrets.items() if value}


class ConsoleProcess:
    """Starts the console, answers it, starts it again, ends it. Lives on the broker's event loop.

        console = ConsoleProcess(broker, health, sock, command, environment)
        console.start()          # after the broker
        await console.stop()     # before the broker

    `command` is what is run, to which the numbers of the two sockets are added. Each unexpected end of the process is
    logged and counted in `failures`.
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
        self._telling: set[str] = set()
        self.failures = 0

    @property
    def pid(self) -> int | None:
        """Of the console while it runs."""
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
        await self._first_visitor()
        loop = asyncio.get_running_loop()
        pause_s = SHORTEST_PAUSE_S
        while True:
            began = loop.time()
            try:
                reason = f"ended with code {await self._run_once()}"
            except OSError as error:
                reason = f"could not be started: {error}"
            if loop.time() - began > LASTING_S:
                pause_s = SHORTEST_PAUSE_S
            self.failures += 1
            logger.error("the console %s and is started again in %.0f s", reason, pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _first_visitor(self) -> None:
        """Returns when somebody connects, or when the broker has run for long enough to deserve a console."""
        loop = asyncio.get_running_loop()
        knocked = asyncio.Event()
        loop.add_reader(self._socket.fileno(), knocked.set)
        try:
            with contextlib.suppress(TimeoutError):
                # Not wait_for, which loses a cancellation that comes together with the visitor.
                async with asyncio.timeout(self._start_after_s):
                    await knocked.wait()
        finally:
            loop.remove_reader(self._socket.fileno())

    async def _run_once(self) -> int:
        """Run the console until it ends; its exit code. When this is cancelled, the console is ended first."""
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                numbers = {"--fd": self._socket.fileno(), "--broker-fd": theirs.fileno()}
                options = [text for name, number in numbers.items() for text in (name, str(number))]
                self._process = process = await asyncio.create_subprocess_exec(
                    *self._command,
                    *options,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=sys.stderr.fileno(),  # scripts read one line on our stdout, and wait for its end
                    pass_fds=tuple(numbers.values()),
                    env={**os.environ, **self._environment},
                    start_new_session=True,  # Ctrl-C is for the broker, which then ends the console
                )
            with contextlib.suppress(ProcessLookupError):
                os.setpriority(os.PRIO_PROCESS, process.pid, NICENESS)
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
        """Answer a console until it ends."""
        reader, writer = await asyncio.open_unix_connection(sock=sock)
        answers: set[asyncio.Task[None]] = set()
        try:
            while line := await reader.readline():
                tag, _, question = line.decode(errors="replace").strip().partition(" ")
                task = asyncio.create_task(self._answer_one(_Answer(writer, tag), question))
                answers.add(task)
                task.add_done_callback(answers.discard)
        except (OSError, ValueError) as error:
            logger.warning("the console's questions cannot be read any more: %s", error)
        finally:
            left = list(answers)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            writer.close()

    async def _answer_one(self, answer: _Answer, question: str) -> None:
        try:
            await answer.end(await self._tell(answer, question))
        except ConnectionError:
            return  # the console has ended, which is told where it is waited for
        except Exception as error:
            self.failures += 1
            logger.exception("the console's question for %s could not be answered", question)
            with contextlib.suppress(ConnectionError):
                await answer.end({"error": f"{type(error).__name__}: {error}"})

    async def _tell(self, answer: _Answer, question: str) -> dict[str, Any]:
        """Tell all but the last line of an answer, which is returned."""
        match question:
            case "metrics" | "metrics brief" if question in self._telling:
                return {"error": "an earlier question for the same is still being answered; ask again later"}
            case "metrics" | "metrics brief":
                self._telling.add(question)
                try:
                    await self._tell_metrics(answer, brief=question != "metrics")
                finally:
                    self._telling.discard(question)
                return {}
            case "health":
                return (await self._health.report()).to_document()
        return {"error": f"'{question}' is no question; ask for metrics, metrics brief or health"}

    async def _tell_metrics(self, answer: _Answer, *, brief: bool) -> None:
        from skylog.broker.metrics import stream

        async with aclosing(stream(self._broker, brief=brief)) as pieces:
            async for piece in pieces:
                await answer.add(to_document([piece])[0])


@dataclass(frozen=True, slots=True)
class _Answer:
    """Lines to the console, with the tag of its question. Waits while the console does not read."""

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
    """The socket pair is closed, which the console takes for the end; one that does not listen is killed."""
    if process.returncode is not None:
        return
    try:
        async with asyncio.timeout(STOP_GRACE_S):
            await process.wait()
    except TimeoutError:
        logger.warning("the console did not end in %.0f s and is killed", STOP_GRACE_S)
        process.kill()
        await process.wait()
