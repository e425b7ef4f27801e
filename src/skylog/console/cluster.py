"""The console's way to the cluster: blocking clients in threads, so that a page that waits holds up no other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import Final, TypeVar

from skylog.client import Admin, BrokerUnreachableError, Connection, ConsumerGroups

T = TypeVar("T")

THREADS: Final = 8
TIMEOUT_S: Final = 10.0


class Clients:
    """The clients of one thread at a time."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.admin = Admin(connection)
        self.groups = ConsumerGroups(connection)


class Cluster:
    """Runs questions to the cluster in a few threads, each with clients of its own, which are made when needed."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="skylog-console")
        self._idle: SimpleQueue[Clients] = SimpleQueue()

    async def ask(self, question: Callable[[Clients], T]) -> T:
        """The answer of `question`, which may block. Raises SkylogError as the clients do."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._ask, question)

    def connection(self) -> Connection:
        """For clients that somebody else looks after: readers and producers."""
        return Connection(self.bootstrap, timeout_s=TIMEOUT_S)

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
