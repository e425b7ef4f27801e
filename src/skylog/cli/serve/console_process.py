"""Runs the console beside a broker, and answers its requests.

They communicate over a socket pair, see `skylog.console.cluster.parent_broker`. Each request has its own task,
so a request for the health does not wait for the metrics of thousands of partitions.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import sys
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from skylog.cli.serve.companion_process import START_AFTER_S, CompanionProcess
from skylog.console.settings import PASSWORD_VARIABLE, TOKEN_VARIABLE, USER_VARIABLE, Settings
from skylog.metric import to_document

if TYPE_CHECKING:
    from skylog.broker import Broker
    from skylog.broker.metrics import Health

logger = logging.getLogger(__name__)


def console_command(settings: Settings, *, inherits_login: bool = False) -> list[str]:
    """Return the command line of `skylog console`: this interpreter, without the working directory in `sys.path`.

    `inherits_login`: it logs in to the registry as it does to the broker.
    """
    command = [sys.executable, "-P", "-m", "skylog", "console", "--bootstrap", settings.bootstrap]
    command += ["--host", settings.host]
    if inherits_login:
        command.append("--registry-inherits-login")
    return [*command, "--read-only"] if settings.read_only else command


def console_secrets(settings: Settings) -> dict[str, str]:
    """Credentials as environment variables: command lines are visible to all users (ps)."""
    secrets = {TOKEN_VARIABLE: settings.token, USER_VARIABLE: settings.user, PASSWORD_VARIABLE: settings.password}
    return {name: value for name, value in secrets.items() if value}


class ConsoleProcess(CompanionProcess):
    """Runs the console, and answers its requests."""

    parent_option = "--broker-fd"

    def __init__(
        self,
        broker: Broker,
        health: Health,
        sock: socket.socket,
        command: list[str],
        environment: Mapping[str, str],
        start_after_s: float = START_AFTER_S,
        *,
        client_settings: str = "",
    ) -> None:
        super().__init__("console", sock, command, environment, start_after_s, client_settings=client_settings)
        self._broker = broker
        self._health = health
        self._in_progress: set[str] = set()

    def start(self) -> None:
        self._health.start()
        super().start()

    async def stop(self) -> None:
        self._health.stop()
        await super().stop()

    async def attend(self, sock: socket.socket) -> None:
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
