"""The broker that a console was started beside: its metrics and its health, asked for over a socket pair.

One question per line, `metrics` or `health`; one line of JSON for each answer, in order. The end of the socket is the
end of the broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from typing import Any, Final

import orjson

from skylog.errors import SkylogError
from skylog.metric import Metric, from_document

PATIENCE_S: Final = 2.0
_LONGEST_ANSWER_BYTES: Final = 256 << 20  # a broker with very many partitions has much to tell


class BrokerBesideError(SkylogError):
    """The broker does not answer, or says that it cannot."""


class BrokerBeside:
    """The other end of the descriptor `fd`, which it takes over. Lives on the event loop that it is first used on."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._asking = asyncio.Lock()
        self._expected: deque[asyncio.Future[bytes]] = deque()
        self._writer: asyncio.StreamWriter | None = None
        self._listening: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()

    async def metrics(self) -> list[Metric]:
        """Raises BrokerBesideError."""
        return from_document((await self._ask("metrics"))["metrics"])

    async def health(self) -> dict[str, Any]:
        """Raises BrokerBesideError."""
        return await self._ask("health")

    async def ended(self) -> None:
        """Returns when the broker has gone, however it went."""
        async with self._asking:
            await self._connect()
        await self._ended.wait()

    async def close(self) -> None:
        if self._listening is not None and self._writer is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
            self._writer.close()
        else:
            self._socket.close()

    async def _connect(self) -> asyncio.StreamWriter:
        if self._writer is None:
            reader, self._writer = await asyncio.open_unix_connection(sock=self._socket, limit=_LONGEST_ANSWER_BYTES)
            self._listening = asyncio.create_task(self._listen(reader))
        return self._writer

    async def _ask(self, question: str) -> dict[str, Any]:
        async with self._asking:
            writer = await self._connect()
            if self._ended.is_set():
                raise BrokerBesideError("the broker that this console was started beside has gone")
            answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
            self._expected.append(answer)  # stays where nobody waits any longer: its answer may still come
            writer.write(question.encode() + b"\n")
            try:
                line = await asyncio.wait_for(answer, PATIENCE_S)
            except TimeoutError:
                raise BrokerBesideError(f"the broker did not tell its {question} in {PATIENCE_S:.0f} s") from None
        document: dict[str, Any] = orjson.loads(line)
        if "error" in document:
            raise BrokerBesideError(f"the broker cannot tell its {question}: {document['error']}")
        return document

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            with contextlib.suppress(ConnectionError):
                while line := await reader.readline():
                    answer = self._expected.popleft()
                    if not answer.done():
                        answer.set_result(line)
        finally:
            self._ended.set()
            for answer in self._expected:
                if not answer.done():
                    answer.set_exception(BrokerBesideError("the broker has gone without an answer"))
