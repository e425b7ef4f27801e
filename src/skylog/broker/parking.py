"""Fetch requests that wait for records, woken by the append (Kafka's purgatory)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from skylog.broker.partition import Partition


class ParkedFetch:
    """A fetch that found fewer than `min_bytes`. It completes once, when enough is readable or its time is up.

    It does not complete inside the append, but in the next turn of the event loop: the response then has the records
    of all partitions of one produce request.
    """

    __slots__ = ("_complete", "_loop", "_missing_bytes", "_partitions", "_timer", "_wake")

    def __init__(
        self,
        partitions: Sequence[Partition],
        missing_bytes: int,
        max_wait_seconds: float,
        complete: Callable[[], None],
        *,
        read_committed: bool = False,
    ) -> None:
        self._partitions = partitions
        self._missing_bytes = missing_bytes
        self._complete = complete
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(max_wait_seconds, self._finish)
        self._wake: asyncio.Handle | None = None
        for partition in partitions:
            if read_committed:
                partition.wait_for_stable(self._grown)
            else:
                partition.wait_for_watermark(self._grown)

    def _grown(self, size_bytes: int) -> None:
        self._missing_bytes -= size_bytes
        if self._missing_bytes <= 0 and self._wake is None:
            self._wake = self._loop.call_soon(self._finish)

    def _finish(self) -> None:
        self.cancel()
        self._complete()

    def cancel(self) -> None:
        """Stop waiting without completing."""
        self._timer.cancel()
        if self._wake is not None:
            self._wake.cancel()
        for partition in self._partitions:
            partition.stop_waiting(self._grown)
