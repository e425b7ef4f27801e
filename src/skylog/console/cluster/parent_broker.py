"""The broker that started the console: requests its metrics and health over a socket pair.

A request is a line `TAG REQUEST` with a unique tag. Requests are `metrics`, `metrics brief`, `health` and `clients`. A
response is any number of lines `TAG more JSON`, each a piece of a metric, and then one `TAG end JSON`. Lines of
different responses may interleave. When the broker ends, the socket is closed.
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

HEALTH_TIMEOUT_S: Final = 2.0
BRIEF_TIMEOUT_S: Final = 5.0
METRICS_TIMEOUT_S: Final = 15.0
_MAX_LINE_BYTES: Final = 16 << 20


class ParentBrokerError(SkylogError):
    """The broker does not respond, or responds with an error."""


@dataclass(slots=True)
class _BrokerResponse:
    end: asyncio.Future[dict[str, Any]]
    pieces: list[Metric] = field(default_factory=list)


class ParentBroker:
    """Talks to the broker at the other end of the descriptor `fd`, which it owns. Bound to the event loop of first use.

    Concurrent identical requests share one response.
    """

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._connecting = asyncio.Lock()
        self._tags = count(1)
        self._responses: dict[str, _BrokerResponse] = {}
        self._requests: dict[str, asyncio.Task[_BrokerResponse]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._receiving: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()

    async def metrics(self, *, brief: bool = False) -> list[Metric]:
        """Request the metrics; `brief` leaves out those per group and per partition. Raises ParentBrokerError."""
        if brief:
            response = await self._request("metrics brief", BRIEF_TIMEOUT_S)
        else:
            response = await self._request("metrics", METRICS_TIMEOUT_S)
        return _merged(response.pieces)

    async def health(self) -> dict[str, Any]:
        """Raises ParentBrokerError."""
        return (await self._request("health", HEALTH_TIMEOUT_S)).end.result()

    async def clients(self) -> dict[str, Any]:
        """Return the connected clients. Raises ParentBrokerError."""
        return (await self._request("clients", BRIEF_TIMEOUT_S)).end.result()

    async def ended(self) -> None:
        """Wait until the broker process has ended, for any reason."""
        await self._connect()
        await self._ended.wait()

    async def close(self) -> None:
        if self._receiving is not None and self._writer is not None:
            self._receiving.cancel()
            await asyncio.gather(self._receiving, return_exceptions=True)
            self._writer.close()
        else:
            self._socket.close()

    async def _connect(self) -> asyncio.StreamWriter:
        async with self._connecting:
            if self._writer is None:
                reader, self._writer = await asyncio.open_unix_connection(sock=self._socket, limit=_MAX_LINE_BYTES)
                self._receiving = asyncio.create_task(self._receive(reader))
            return self._writer

    async def _request(self, request: str, timeout_s: float) -> _BrokerResponse:
        task = self._requests.get(request)
        if task is None:
            task = self._requests[request] = asyncio.create_task(self._send_request(request, timeout_s))
            task.add_done_callback(lambda done: self._forget(request, done))
        return await asyncio.shield(task)  # other callers may wait for it too

    def _forget(self, request: str, task: asyncio.Task[_BrokerResponse]) -> None:
        del self._requests[request]
        if not task.cancelled():
            task.exception()  # marks it as retrieved: the caller may have been cancelled

    async def _send_request(self, request: str, timeout_s: float) -> _BrokerResponse:
        writer = await self._connect()
        if self._ended.is_set():
            raise ParentBrokerError("the broker that started this console has stopped")
        tag = str(next(self._tags))
        response = self._responses[tag] = _BrokerResponse(asyncio.get_running_loop().create_future())
        writer.write(f"{tag} {request}\n".encode())
        try:
            document = await asyncio.wait_for(response.end, timeout_s)
        except TimeoutError:
            raise ParentBrokerError(f"the broker did not send its {request} within {timeout_s:g} s") from None
        finally:
            del self._responses[tag]
        if "error" in document:
            raise ParentBrokerError(f"the broker cannot send its {request}: {document['error']}")
        return response

    async def _receive(self, reader: asyncio.StreamReader) -> None:
        try:
            with contextlib.suppress(ConnectionError):
                while line := await reader.readline():
                    self._handle(line)
        finally:
            self._ended.set()
            for response in self._responses.values():
                if not response.end.done():
                    response.end.set_exception(ParentBrokerError("the broker stopped without a response"))

    def _handle(self, line: bytes) -> None:
        tag, word, document = line.split(b" ", 2)
        response = self._responses.get(tag.decode())
        if response is None or response.end.done():
            return  # the request has timed out
        if word == b"more":
            response.pieces += from_document([orjson.loads(document)])
        else:
            response.end.set_result(orjson.loads(document))


def _merged(pieces: list[Metric]) -> list[Metric]:
    """Merge metrics to one per name, in the order of arrival."""
    whole: dict[str, Metric] = {}
    samples: dict[str, list[Sample]] = {}
    for piece in pieces:
        whole.setdefault(piece.name, piece)
        samples.setdefault(piece.name, []).extend(piece.samples)
    return [Metric(name, each.kind, each.help, samples[name]) for name, each in whole.items()]
