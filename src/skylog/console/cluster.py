"""The console's way to the cluster: blocking clients in threads, so that a page that waits holds up no other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Final, TypeVar

from skylog.client import Admin, BrokerUnreachableError, Connection, ConsumerGroups
from skylog.errors import SkylogError

T = TypeVar("T")

THREADS: Final = 8
TIMEOUT_S: Final = 10.0
MAX_WAITING: Final = 64


class TooBusyError(SkylogError):
    """More is asked of the cluster than it answers."""


class Clients:
    """The clients of one thread at a time."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.admin = Admin(connection)
        self.groups = ConsumerGroups(connection)


class Cluster:
    """Runs questions to the cluster in a few threads, each with clients of its own, which are made when needed.

    `options` are librdkafka's settings on how to reach it.
    """

    def __init__(self, bootstrap: str, options: Mapping[str, str] | None = None) -> None:
        self.bootstrap = bootstrap
        self._options = dict(options or {})
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="skylog-console")
        self._looking = ThreadPoolExecutor(1, thread_name_prefix="skylog-look")
        self._idle: SimpleQueue[Clients] = SimpleQueue()
        self._asked = 0

    async def ask(self, question: Callable[[Clients], T]) -> T:
        """The answer of `question`, which may block. Raises SkylogError as the clients do, and TooBusyError."""
        if self._asked >= THREADS + MAX_WAITING:
            raise TooBusyError(f"{self._asked} questions to the cluster are not answered yet; try again in a moment")
        asked = self._threads.submit(self._ask, question)
        self._asked += 1
        loop = asyncio.get_running_loop()
        asked.add_done_callback(lambda _: _call(loop, self._answered))
        return await asyncio.wrap_future(asked)

    async def look(self, question: Callable[[Clients], T]) -> T:
        """The same in a thread that pages have no part in, however many wait; one question after the other."""
        return await asyncio.get_running_loop().run_in_executor(self._looking, self._ask, question)

    def connection(self) -> Connection:
        """For clients that somebody else looks after: readers and producers."""
        return Connection(self.bootstrap, self._options, TIMEOUT_S)

    def _answered(self) -> None:
        self._asked -= 1

    def _ask(self, question: Callable[[Clients], T]) -> T:
        try:
            clients = self._idle.get_nowait()
        except Empty:
            clients = Clients(self.connection())
        try:
            answer = question(clients)
        except BrokerUnreachableError:
            raise  # these clients may wait for something that never comes: they are not used again
        except BaseException:
            self._idle.put(clients)
            raise
        self._idle.put(clients)
        return answer

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._looking.shutdown(wait=False, cancel_futures=True)


def _call(loop: asyncio.AbstractEventLoop, what: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # the loop has ended, and the console with it
        loop.call_soon_threadsafe(what)
