"""The transactions of a partition that are undecided, or whose marker is not replicated yet.

The first of them limits what a read_committed consumer may read: the last stable offset.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

_MAX_ENDED: Final = 1000


class OpenTransactions:
    """The first offset of each transaction, ascending, and the offset of the marker of those that have ended.

    A transaction counts until its marker is below the high watermark. The marker could be lost before, and the
    transaction would be open again.
    """

    __slots__ = ("_first_offsets", "_markers", "_max_ended")

    def __init__(self, open_offsets: Iterable[int] = (), ended: Iterable[tuple[int, int]] = ()) -> None:
        """`open_offsets` are first offsets, `ended` pairs of a first offset and the offset of its marker."""
        self._markers = dict(ended)
        self._first_offsets = deque(sorted({*open_offsets, *self._markers}))
        self._max_ended = _MAX_ENDED

    def begin(self, first_offset: int) -> None:
        """Add a transaction. It begins after all others."""
        self._first_offsets.append(first_offset)

    def end(self, first_offset: int, marker_offset: int) -> None:
        """Note the marker of a transaction."""
        self._markers[first_offset] = marker_offset

    @property
    def ended(self) -> list[tuple[int, int]]:
        """The first offset and the marker's offset of the ended transactions that are still known."""
        return list(self._markers.items())

    def first_undecided(self) -> int | None:
        """Return an offset at or before the first transaction without a marker; None if all have one."""
        return self._first_offsets[0] if len(self._first_offsets) > len(self._markers) else None

    def first_unstable(self, high_watermark: int) -> int | None:
        """Return the first offset of the earliest transaction without a marker below `high_watermark`.

        Forgets the transactions with one: the high watermark does not move back, except for a truncation, which begins
        another object.
        """
        first_offsets, markers = self._first_offsets, self._markers
        while first_offsets:
            marker_offset = markers.get(first_offsets[0])
            if marker_offset is None or marker_offset >= high_watermark:
                if len(markers) > self._max_ended:
                    self._forget_replicated(high_watermark)
                return first_offsets[0]
            del markers[first_offsets.popleft()]
        return None

    def _forget_replicated(self, high_watermark: int) -> None:
        """Forget the ended transactions behind one that stays open for long. If few are replicated, wait for more."""
        kept = {first: marker for first, marker in self._markers.items() if marker >= high_watermark}
        gone = self._markers.keys() - kept.keys()
        self._markers = kept
        self._max_ended = max(_MAX_ENDED, 2 * len(kept))
        self._first_offsets = deque(first for first in self._first_offsets if first not in gone)
