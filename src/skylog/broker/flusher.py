"""Fsyncs, shared by all who wait for them, off the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

from skylog.broker.metrics.latency import Latency
from skylog.broker.partition import Partition
from skylog.errors import KafkaError
from skylog.storage import FlushTask, Log

logger = logging.getLogger(__name__)

Done = Callable[[KafkaError | None], None]


class Flusher:
    """At most one fsync per log at a time. Who comes while one runs waits for the next, together with all others."""

    def __init__(self, executor: ThreadPoolExecutor) -> None:
        self._executor = executor
        self.times = Latency()
        self._running: dict[Log, list[Done]] = {}
        self._next: dict[Log, list[Done]] = {}

    def flush(self, log: Log, done: Done) -> None:
        """Call `done` on the event loop once everything that `log` holds now is on disk, or with the error."""
        if log in self._running:
            self._next.setdefault(log, []).append(done)
        else:
            self._start(log, [done])

    def flushed(self, log: Log) -> asyncio.Future[None]:
        """Like `flush`, as a future, which raises KafkaError."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(error: KafkaError | None) -> None:
            if not future.done():
                future.set_exception(error) if error else future.set_result(None)

        self.flush(log, done)
        return future

    def append(self, partition: Partition, batch: memoryview, now_ms: int) -> asyncio.Future[None] | None:
        """Append as a producer with acks=all does. What the broker writes itself goes through here.

        None where it counts as stored; otherwise a future to wait for, because the topic's flush policy wants an fsync
        first. Raises KafkaError, and so does the future.
        """
        appended = partition.append_own(batch, now_ms)
        return self.flushed(partition.log) if appended.must_flush else None

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
        log.end_flush(task, error)
        waiting = self._running.pop(log)
        queued = self._next.pop(log, None)
        if queued:
            self._start(log, queued)
        for done in waiting:
            done(log.failed() if log.failure is not None else None)
