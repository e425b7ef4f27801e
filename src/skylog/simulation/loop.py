"""An event loop on virtual time. It never waits: when nothing is left to run, its clock jumps to the next timer.

Work for threads runs inline, after a delay drawn from the seed, and its result arrives after another one. An executor
with one thread keeps the order of its work; the others do not. Connections go to the simulated network.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import socket
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, Final

from skylog.simulation.process import Process, current_process, process_of

if TYPE_CHECKING:
    from skylog.simulation.network import Network

THREAD_DELAY_S: Final = 0.002
MAX_STEPS_AT_ONCE: Final = 200_000


class DeadlockError(Exception):
    """Nothing is left to run, or the same moment never ends."""


class WatchedError(Exception):
    """Somebody who watches the run has seen enough."""


class _NumberedTask(asyncio.Task[Any]):
    """A task with a hash that depends on the run alone, and so does the order of a set of tasks."""

    number = 0

    def __hash__(self) -> int:
        return self.number


class _NumberedFuture(asyncio.Future[Any]):
    """The same for futures."""

    number = 0

    def __hash__(self) -> int:
        return self.number


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs simulated processes. `network` has their connections."""

    network: Network

    def __init__(self, rng: Random, start_s: float = 1000.0) -> None:
        super().__init__()
        self._rng = rng
        self._now = start_s
        self._steps_now = 0
        self._numbers = itertools.count(1)
        self._free_at: dict[object, float] = {}
        self._all_tasks: list[asyncio.Task[Any]] = []  # a task that is collected would run its `finally` blocks
        self.set_task_factory(self._make_task)
        self.thread_delay_s = THREAD_DELAY_S
        self.steps = 0
        self.is_over = False
        """Set to end the run with a WatchedError."""

    def time(self) -> float:
        return self._now

    def _make_task(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        task = _NumberedTask(coroutine, loop=loop, **options)
        task.number = next(self._numbers)
        self._all_tasks.append(task)
        return task

    def create_future(self) -> asyncio.Future[Any]:
        future = _NumberedFuture(loop=self)
        future.number = next(self._numbers)
        return future

    def release(self) -> None:
        """Forget all tasks after the run, and close. What they do in their `finally` blocks has no effect any more."""
        self.set_exception_handler(lambda *_: None)
        for task in self._all_tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            with contextlib.suppress(BaseException):
                task.get_coro().close()
        self._all_tasks.clear()
        self._ready.clear()  # type: ignore[attr-defined]
        self._scheduled.clear()  # type: ignore[attr-defined]
        self.close()

    # -- running

    def _run_once(self) -> None:
        """Run what is ready. If nothing is, let time pass until the next timer. Called by the base class."""
        ready, timers = self._ready, self._scheduled  # type: ignore[attr-defined]
        while timers and timers[0]._cancelled:
            heapq.heappop(timers)._scheduled = False
        if not ready and not self._stopping:  # type: ignore[attr-defined]
            if not timers:
                raise DeadlockError("nothing is left to run")
            if timers[0]._when > self._now:
                self._now = timers[0]._when
                self._steps_now = 0
        while timers and timers[0]._when <= self._now:
            timer = heapq.heappop(timers)
            timer._scheduled = False
            ready.append(timer)
        count = len(ready)
        self.steps += count
        self._steps_now += count
        if self._steps_now > MAX_STEPS_AT_ONCE:
            raise DeadlockError(f"the moment {self._now:.6f} never ends")
        for _ in range(count):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            if self.is_over:
                raise WatchedError
            process = process_of(handle)
            if process is None or process.admits(handle):
                handle._run()

    def resume(self, process: Process) -> None:
        """Let a paused process go on, beginning with what it has missed."""
        self._ready.extend(process.resume())  # type: ignore[attr-defined]

    def _process_events(self, _: object) -> None:
        """Never called: there is no selector."""

    def _write_to_self(self) -> None:
        """Do nothing: no other thread has to wake this loop."""

    # -- threads

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        process = current_process()
        slowness_s = self.thread_delay_s + (process.disk_delay_s if process is not None else 0.0)
        begins_at = self._now + self._rng.random() * slowness_s
        ends_s = self._rng.random() * slowness_s
        if getattr(executor, "_max_workers", 0) == 1:
            begins_at = max(begins_at, self._free_at.get(executor, 0.0))
            self._free_at[executor] = begins_at + ends_s
        future: asyncio.Future[Any] = self.create_future()

        def run() -> None:
            try:
                deliver: Callable[[], None] = _delivery(future, func(*args))
            except Exception as error:
                deliver = _failure(future, error)
            self.call_later(ends_s, deliver)

        self.call_at(begins_at, run)
        return future

    # -- connections

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        return await self.network.open_stream(protocol_factory, host, port)

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        return self.network.serve_streams(protocol_factory, port)

    def add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> None:  # type: ignore[override]
        self.network.sockets[fd].watch_input(lambda: callback(*args))

    def remove_reader(self, fd: Any) -> bool:
        sock = self.network.sockets.get(fd)
        return sock is not None and sock.watch_input(None)

    def add_writer(self, fd: Any, callback: Callable[..., Any], *args: Any) -> None:  # type: ignore[override]
        self.network.sockets[fd].watch_output(lambda: callback(*args))

    def remove_writer(self, fd: Any) -> bool:
        sock = self.network.sockets.get(fd)
        return sock is not None and sock.watch_output(None)


def _delivery(future: asyncio.Future[Any], result: object) -> Callable[[], None]:
    return lambda: None if future.done() else future.set_result(result)


def _failure(future: asyncio.Future[Any], error: Exception) -> Callable[[], None]:
    return lambda: None if future.done() else future.set_exception(error)
