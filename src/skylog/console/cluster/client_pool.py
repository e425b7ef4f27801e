"""Runs blocking clients in threads, so that a page that waits for the cluster does not delay others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Final, TypeVar

from skylog.client import Admin, BrokerUnreachableError, ClusterAdmin, Connection, ConsumerGroups
from skylog.client.brokers import Brokers
from skylog.client.mirrors import MirrorAdmin
from skylog.errors import SkylogError

T = TypeVar("T")

THREADS: Final = 8
MONITORS: Final = 2
TIMEOUT_S: Final = 10.0
MAX_WAITING: Final = 64


class TooBusyError(SkylogError):
    """Too many requests to the cluster are waiting."""


class Clients:
    """One set of clients, used by one thread at a time."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        client = connection.admin_client()
        self.admin = Admin(connection, client)
        self.cluster = ClusterAdmin(connection, client)
        self.brokers = Brokers(connection, client)
        self.groups = ConsumerGroups(connection)
        self.mirrors = MirrorAdmin(connection, client)


class ClientPool:
    """Runs functions with clients of the cluster in a few threads. Clients are created on demand and reused.

    `options` are librdkafka settings for the connection.
    """

    def __init__(self, bootstrap: str, options: Mapping[str, str] | None = None) -> None:
        self.bootstrap = bootstrap
        self._options = dict(options or {})
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="skylog-console")
        self._monitoring = ThreadPoolExecutor(MONITORS, thread_name_prefix="skylog-monitor")
        self._idle: SimpleQueue[Clients] = SimpleQueue()
        self._pending = 0

    async def run(self, work: Callable[[Clients], T]) -> T:
        """Run `work`, which may block, and return its result. Raises the clients' SkylogError, and TooBusyError."""
        if self._pending >= THREADS + MAX_WAITING:
            raise TooBusyError(f"{self._pending} requests to the cluster are pending; try again in a moment")
        submitted = self._threads.submit(self._run, work)
        self._pending += 1
        loop = asyncio.get_running_loop()
        submitted.add_done_callback(lambda _: _call(loop, self._finished))
        return await asyncio.wrap_future(submitted)

    async def run_monitoring(self, work: Callable[[Clients], T]) -> T:
        """Like `run`, in separate threads, so that monitoring never waits for pages. One call for each monitor."""
        return await asyncio.get_running_loop().run_in_executor(self._monitoring, self._run, work)

    def connection(self) -> Connection:
        """Return a new connection for readers and producers. The caller owns it."""
        return Connection(self.bootstrap, self._options, TIMEOUT_S)

    def _finished(self) -> None:
        self._pending -= 1

    def _run(self, work: Callable[[Clients], T]) -> T:
        try:
            clients = self._idle.get_nowait()
        except Empty:
            clients = Clients(self.connection())
        try:
            result = work(clients)
        except BrokerUnreachableError:
            raise  # these clients may wait forever for a response: they are not reused
        except BaseException:
            self._idle.put(clients)
            raise
        self._idle.put(clients)
        return result

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._monitoring.shutdown(wait=False, cancel_futures=True)


def _call(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # the loop is closed: the console has stopped
        loop.call_soon_threadsafe(callback)
