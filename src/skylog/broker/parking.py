"""The parking lot: requests that wait for the log to grow, woken by the append itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from skylog.broker.partition import Partition


class ParkedFetch:
    """A fetch that found too little. It ends once, when enough has been appended or its time is up.

    An append that brings enough does not answer in the middle of the produce request: the answer follows when the
    event loop has finished with it, so that all partitions of one produce request are in it.
    """

    __slots__ = ("_complete", "_loop", "_missing_bytes", "_partitions", "_timer", "_wake")

    def __init__(
        self, partitions: Sequence[Partition], missing_bytes: int, max_wait_seconds: float, complete: Callable[[], None]
    ) -> None:
        self._partitions = partitions
        self._missing_bytes = missing_bytes
        self._complete = complete
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(max_wait_seconds, self._finish)
        self._wake: asyncio.Handle | None = None
        for partition in partitions:
            partition.wait(self._grown)

    def _grown(self, size_bytes: int) -> None:
        self._missing_bytes -= size_bytes
        if self._missing_bytes <= 0 and self._wake is None:
            self._wake = self._loop.call_soon(self._finish)

    def _finish(self) -> None:
        self.cancel()
        self._complete()

    def cancel(self) -> None:
        """Leave without an answer."""
        self._timer.cancel()
        if self._wake is not None:
            self._wake.cancel()
        for partition in self._partitions:
            partition.stop_waiting(self._grown)
