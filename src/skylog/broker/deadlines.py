"""Deadlines of which few are reached, such as the timeouts of requests that wait for replicas. One timer serves all.

Those with the same timeout are reached in the order in which they were added. So each timeout has a queue, and only the
first deadline of each queue is looked at. Clients use few different timeouts.
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import Final, Protocol

MIN_INTERVAL_S: Final = 0.005  # deadlines that are closer together are handled together


class Expiring(Protocol):
    """Something that gives up at its deadline. It must be hashable by identity."""

    def expire(self) -> None: ...


class Deadlines:
    """Calls `expire` of what was added and not removed in time. Lives on the event loop's thread."""

    def __init__(self) -> None:
        self._queues: dict[int, dict[Expiring, float]] = {}
        self._wakes_at = inf
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def add(self, item: Expiring, timeout_ms: int) -> None:
        """Expire an item after a timeout, at the earliest in the next turn of the event loop."""
        loop = asyncio.get_running_loop()
        expires_at = loop.time() + max(timeout_ms, 0) / 1000
        queue = self._queues.get(timeout_ms)
        if queue is None:
            queue = self._queues[timeout_ms] = {}
        queue[item] = expires_at
        if expires_at < self._wakes_at:
            self._wake_at(expires_at, loop)

    def remove(self, item: Expiring, timeout_ms: int) -> None:
        """Forget an item, unless it has expired."""
        queue = self._queues.get(timeout_ms)
        if queue is not None and queue.pop(item, None) is not None and not queue:
            del self._queues[timeout_ms]

    def _wake_at(self, time: float, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._wakes_at = time
        self._timer = loop.call_at(time, self._expire_due)

    def _expire_due(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._timer, self._wakes_at = None, inf
        for timeout_ms, queue in list(self._queues.items()):
            due = []
            for item, expires_at in queue.items():
                if expires_at > now:
                    break
                due.append(item)
            for item in due:
                self.remove(item, timeout_ms)
                item.expire()
        if self._queues:
            earliest = min(next(iter(queue.values())) for queue in self._queues.values())
            if earliest < self._wakes_at:
                self._wake_at(max(earliest, now + MIN_INTERVAL_S), loop)
