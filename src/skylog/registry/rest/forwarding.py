"""Makes a change: here if this registry is elected to write, otherwise by the one that is.

While a new registry is being elected, a change waits. A change that may have reached the other registry is repeated
only if that does no harm.
"""

from __future__ import annotations

import asyncio
import http.client
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from skylog.errors import SkylogError
from skylog.limited_logger import LimitedLogger
from skylog.registry.changes import Change
from skylog.registry.errors import RegistryError, forwarding_failed, no_writer
from skylog.registry.registry import NotWriterError, Registry

logger = logging.getLogger(__name__)

FORWARDED: Final = "x-skylog-forwarded"
"""Header of a forwarded request. It is not forwarded again."""
POSITION: Final = "x-skylog-position"
"""Header of an answer to a change: the position in the topic that has it."""
PATIENCE_S: Final = 25.0
CONNECT_S: Final = 3.0
ANSWER_S: Final = 25.0
RETRY_S: Final = 0.1
_NO_WRITER: Final = 50004


class Request(NamedTuple):
    """A request as it was received."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_repeatable(self) -> bool:
        """Whether the change can be made twice. What is deleted already cannot be deleted again."""
        return self.method != "DELETE"


class Answer(NamedTuple):
    """The answer of the other registry. `position` is the position in the topic that has the change."""

    status: int
    body: bytes
    position: int | None


class UnreachableError(SkylogError):
    """The other registry cannot be reached; it has not received the request."""


class Forwarder:
    """One per registry. `forwarded` counts the changes that others made."""

    def __init__(self, registry: Registry) -> None:
        self.forwarded = 0
        self._registry = registry
        self._writer: str | None = None
        self._limited = LimitedLogger(logger)

    async def make(
        self, decide: Callable[[], Awaitable[Change]], request: Request, *, is_forwarded: bool
    ) -> Change | Answer:
        """Make a change. Raises RegistryError."""
        deadline = asyncio.get_running_loop().time() + PATIENCE_S
        problem = "no registry is elected"
        while True:
            if self._registry.is_writer:
                try:
                    return await self._registry.write(decide)
                except NotWriterError as error:
                    problem = str(error)
            if is_forwarded:
                raise no_writer("this registry is not elected to write")
            try:
                answer = await self._forward(request)
                if answer is not None:
                    return answer
            except RegistryError:
                raise
            except SkylogError as error:
                problem = str(error)
            self._writer = None
            if asyncio.get_running_loop().time() >= deadline:
                raise no_writer(f"no registry has made the change in {PATIENCE_S:.0f} s: {problem}")
            await asyncio.sleep(RETRY_S)

    async def _forward(self, request: Request) -> Answer | None:
        """Let the elected registry make a change. None if there is none, or if it no longer is elected."""
        writer = self._writer or await self._registry.find_writer()
        if writer is None or writer == self._registry.url:
            return None
        try:
            answer = await asyncio.to_thread(send, writer, request)
        except UnreachableError:
            raise
        except (OSError, http.client.HTTPException) as error:
            self._limited.warning("no answer from the registry at %s: %s", writer, error)
            self._writer = None
            if request.is_repeatable:
                return None
            raise forwarding_failed(f"{writer} has not answered ({error}); the change may be made") from error
        if answer.status == _NO_WRITER // 100 and b"%d" % _NO_WRITER in answer.body:
            return None
        self._writer = writer
        self.forwarded += 1
        return answer


def send(url: str, request: Request) -> Answer:
    """Send a request to another registry. Raises UnreachableError; OSError if it may have received the request."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.netloc, timeout=CONNECT_S)
    try:
        connection.connect()
    except OSError as error:
        raise UnreachableError(f"the registry at {url} cannot be reached: {error}") from error
    try:
        connection.sock.settimeout(ANSWER_S)
        headers = {**request.headers, FORWARDED: "1"}
        connection.request(request.method, parts.path.rstrip("/") + request.target, request.body or None, headers)
        response = connection.getresponse()
        position = response.getheader(POSITION)
        return Answer(response.status, response.read(), None if position is None else int(position))
    finally:
        connection.close()
