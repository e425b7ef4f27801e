"""Runs fsyncs in threads. Requests that wait for the same log share one fsync."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

from skylog.broker.metrics.latency import Latency
from skylog.errors import KafkaError
from skylog.storage import FlushTask, Log

logger = logging.getLogger(__name__)

Done = Callable[[KafkaError | None], None]


class Flusher:
    """Runs at most one fsync per log at a time. Requests that arrive meanwhile share the next one."""

    def __init__(self, executor: ThreadPoolExecutor) -> None:
        self._executor = executor
        self.times = Latency()
        self._running: dict[Log, list[Done]] = {}
        self._next: dict[Log, list[Done]] = {}

    def flush(self, log: Log, done: Done) -> None:
        """Call `done` on the event loop when the present content of `log` is on disk, or with the error."""
        if log in self._running:
            self._next.setdefault(log, []).append(done)
        else:
            self._start(log, [done])

    def flushed(self, log: Log) -> asyncio.Future[None]:
        """Like `flush`, but return a future, which raises KafkaError."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(error: KafkaError | None) -> None:
            if not future.done():
                future.set_exception(error) if error else future.set_result(None)

        self.flush(log, done)
        return future

    def _start(self, log: Log, waiting: list[Done]) -> None:
        self._running[log] = waiting
        task = log.begin_flush()
        began = perf_counter()
        future = asyncio.get_running_loop().run_in_executor(self._executor, task.run)
        future.add_done_callback(lambda future: self._finish(log, task, began, future))

    def _finish(self, log: Log, task: FlushTask, began: float, future: asyncio.Future[None]) -> None:
        self.times.record(perf_counter() - began)
        error = future.exception()
        if error is not None and not isinstance(error, OSError):
            logger.error("%s: flush failed", log.name, exc_info=error)
            error = OSError(str(error))
        try:
            log.end_flush(task, error)
        finally:  # later flushes must not wait for this one for ever
            waiting = self._running.pop(log)
            queued = self._next.pop(log, None)
            if queued:
                self._start(log, queued)
            for done in waiting:
                done(log.failed() if log.failure is not None else None)
