"""The broker that a console was started beside: its metrics and its health, asked for over a socket pair.

A question is a line `TAG QUESTION`, with a tag that no other question has; questions are `metrics`, `metrics brief` and
`health`. An answer is any number of lines `TAG more JSON` and then one `TAG end JSON`; those of several questions may
come between each other. Each `more` is a piece of a metric. The end of the socket is the end of the broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

import orjson

from skylog.errors import SkylogError
from skylog.metric import Metric, Sample, from_document

HEALTH_PATIENCE_S: Final = 2.0
BRIEF_PATIENCE_S: Final = 5.0
METRICS_PATIENCE_S: Final = 15.0
_LONGEST_LINE_BYTES: Final = 16 << 20


class BrokerBesideError(SkylogError):
    """The broker does not answer, or says that it cannot."""


@dataclass(slots=True)
class _Answer:
    end: asyncio.Future[dict[str, Any]]
    pieces: list[Metric] = field(default_factory=list)


class BrokerBeside:
    """The other end of the descriptor `fd`, which it takes over. Lives on the event loop that it is first used on.

    Who asks what is being asked already shares the answer.
    """

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._connecting = asyncio.Lock()
        self._tags = count(1)
        self._expected: dict[str, _Answer] = {}
        self._asking: dict[str, asyncio.Task[_Answer]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._listening: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()

    async def metrics(self, *, brief: bool = False) -> list[Metric]:
        """`brief` leaves out what is by group and partition. Raises BrokerBesideError."""
        if brief:
            answer = await self._ask("metrics brief", BRIEF_PATIENCE_S)
        else:
            answer = await self._ask("metrics", METRICS_PATIENCE_S)
        return _merged(answer.pieces)

    async def health(self) -> dict[str, Any]:
        """Raises BrokerBesideError."""
        return (await self._ask("health", HEALTH_PATIENCE_S)).end.result()

    async def ended(self) -> None:
        """Returns when the broker has gone, however it went."""
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
        async with self._connecting:
            if self._writer is None:
                reader, self._writer = await asyncio.open_unix_connection(sock=self._socket, limit=_LONGEST_LINE_BYTES)
                self._listening = asyncio.create_task(self._listen(reader))
            return self._writer

    async def _ask(self, question: str, patience_s: float) -> _Answer:
        task = self._asking.get(question)
        if task is None:
            task = self._asking[question] = asyncio.create_task(self._ask_alone(question, patience_s))
            task.add_done_callback(lambda done: self._forget(question, done))
        return await asyncio.shield(task)  # others may wait for it as well

    def _forget(self, question: str, task: asyncio.Task[_Answer]) -> None:
        del self._asking[question]
        if not task.cancelled():
            task.exception()  # whoever asked may have gone without hearing of it

    async def _ask_alone(self, question: str, patience_s: float) -> _Answer:
        writer = await self._connect()
        if self._ended.is_set():
            raise BrokerBesideError("the broker that this console was started beside has gone")
        tag = str(next(self._tags))
        answer = self._expected[tag] = _Answer(asyncio.get_running_loop().create_future())
        writer.write(f"{tag} {question}\n".encode())
        try:
            document = await asyncio.wait_for(answer.end, patience_s)
        except TimeoutError:
            raise BrokerBesideError(f"the broker did not tell its {question} in {patience_s:g} s") from None
        finally:
            del self._expected[tag]
        if "error" in document:
            raise BrokerBesideError(f"the broker cannot tell its {question}: {document['error']}")
        return answer

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            with contextlib.suppress(ConnectionError):
                while line := await reader.readline():
                    self._take(line)
        finally:
            self._ended.set()
            for answer in self._expected.values():
                if not answer.end.done():
                    answer.end.set_exception(BrokerBesideError("the broker has gone without an answer"))

    def _take(self, line: bytes) -> None:
        tag, word, document = line.split(b" ", 2)
        answer = self._expected.get(tag.decode())
        if answer is None or answer.end.done():
            return  # nobody waits for it any longer
        if word == b"more":
            answer.pieces += from_document([orjson.loads(document)])
        else:
            answer.end.set_result(orjson.loads(document))


def _merged(pieces: list[Metric]) -> list[Metric]:
    """One metric for each name, in the order in which they came."""
    whole: dict[str, Metric] = {}
    samples: dict[str, list[Sample]] = {}
    for piece in pieces:
        whole.setdefault(piece.name, piece)
        samples.setdefault(piece.name, []).extend(piece.samples)
    return [Metric(name, each.kind, each.help, samples[name]) for name, each in whole.items()]
