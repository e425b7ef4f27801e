"""Who waits for a partition to grow.

Consumers wait for the high watermark or the last stable offset, producers for the high watermark, followers for the
end of the log.

It knows sizes and offsets of a log, not who leads. `partition.py` reports what has happened.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Final

from skylog.errors import KafkaError
from skylog.storage import Log

GrowthListener = Callable[[int], None]
"""Called with the number of bytes that have become visible."""

Replicated = Callable[[KafkaError | None], None]
"""Called when the high watermark has passed an append, or with the error that prevents it."""

_ALL_BYTES: Final = 1 << 62  # more than any request waits for
_MAX_INVISIBLE: Final = 10_000  # an even number
_order = count()  # breaks ties between requests that wait for the same offset


class GrowthListeners:
    """The listeners of one partition. They are called in the order in which they began to wait: sets have none.

    Check `followers`, `consumers` and `committed`, which has the read_committed consumers, before you call a method for
    an append: most partitions have no listeners most of the time.
    """

    __slots__ = (
        "_invisible",
        "_log",
        "_stable_offset",
        "_uncommitted",
        "_unstable_bytes",
        "committed",
        "consumers",
        "followers",
    )

    def __init__(self, log: Log) -> None:
        self._log = log
        self.consumers: dict[GrowthListener, None] = {}
        self.committed: dict[GrowthListener, None] = {}
        self.followers: dict[GrowthListener, None] = {}
        self._stable_offset = self._unstable_bytes = 0  # when `committed` were woken last, and what has grown since
        self._uncommitted: list[tuple[int, int, Replicated]] = []  # a heap of requests that wait for the high watermark
        self._invisible: deque[tuple[int, int]] = deque()  # end offsets and sizes of appends above it

    # -- waiting

    def wait_for_stable(self, listener: GrowthListener) -> None:
        if not self.committed:
            self._stable_offset, self._unstable_bytes = self._log.last_stable_offset, 0
        self.committed[listener] = None

    def wait_for_commit(self, end_offset: int, done: Replicated) -> None:
        if end_offset <= self._log.high_watermark:
            done(None)
        else:
            heappush(self._uncommitted, (end_offset, next(_order), done))

    def stop_waiting(self, listener: GrowthListener) -> None:
        self.consumers.pop(listener, None)
        self.committed.pop(listener, None)
        self.followers.pop(listener, None)

    # -- waking

    def wake_followers(self, size_bytes: int = _ALL_BYTES) -> None:
        _wake(self.followers, size_bytes)

    def fail_uncommitted(self, error: KafkaError) -> None:
        while self._uncommitted:
            heappop(self._uncommitted)[2](error)

    def high_watermark_moved(self) -> None:
        """Wake everyone who waits for it. The sizes of appends before a restart or a change of the role are unknown."""
        high_watermark, visible_bytes = self._log.high_watermark, 0
        while self._invisible and self._invisible[0][0] <= high_watermark:
            visible_bytes += self._invisible.popleft()[1]
        while self._uncommitted and self._uncommitted[0][0] <= high_watermark:
            heappop(self._uncommitted)[2](None)
        self.wake_consumers(visible_bytes or _ALL_BYTES)

    def wake_consumers(self, size_bytes: int) -> None:
        """Called when this has become visible."""
        if self.consumers:
            _wake(self.consumers, size_bytes)
        if self.committed:
            self._wake_committed(size_bytes)

    def _wake_committed(self, size_bytes: int) -> None:
        """Wake the read_committed consumers if the last stable offset has moved with the high watermark.

        If transactions are still open, the size of what has become visible is unknown.
        """
        log = self._log
        stable_offset = log.last_stable_offset
        self._unstable_bytes += size_bytes
        if stable_offset > self._stable_offset:
            visible_bytes = self._unstable_bytes if stable_offset == log.high_watermark else _ALL_BYTES
            self._stable_offset, self._unstable_bytes = stable_offset, 0
            _wake(self.committed, visible_bytes)

    def wake_all_consumers(self) -> None:
        """Wake all consumers: what they may read is to be found out again."""
        _wake(self.consumers, _ALL_BYTES)
        _wake(self.committed, _ALL_BYTES)
        self._stable_offset, self._unstable_bytes = self._log.last_stable_offset, 0

    # -- appends above the high watermark

    def note_invisible(self, size_bytes: int) -> None:
        """Note an append above the high watermark. If that stands still, neighbours are joined to save memory."""
        self._invisible.append((self._log.log_end_offset, size_bytes))
        if len(self._invisible) > _MAX_INVISIBLE:
            last = self._invisible.pop()
            appends = iter(self._invisible)
            pairs = zip(appends, appends, strict=True)
            self._invisible = deque((end_offset, first + second) for (_, first), (end_offset, second) in pairs)
            self._invisible.append(last)

    def forget_invisible(self, from_offset: int = -1) -> None:
        """Forget the appends that end above an offset, because they are cut off."""
        while self._invisible and self._invisible[-1][0] > from_offset:
            self._invisible.pop()


def _wake(listeners: dict[GrowthListener, None], size_bytes: int) -> None:
    for listener in tuple(listeners):
        listener(size_bytes)
