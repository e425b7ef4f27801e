"""The transactions of a log while compaction reads its batches in order.

Tells which batches were aborted, and which markers are of no more use: those of transactions without batches. The
batches of a committed transaction disappear when later records replace them, those of an aborted one in the first
cleaning.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from skylog.records import BatchHeader, Marker
from skylog.storage.aborted_index import AbortedTransaction


class CleanedTransactions:
    """The transactions that are open at the current batch. `aborted` are those of the log that end at `start` or later.

    Call `is_aborted` or `end` for every batch from `start` on.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction], start: int) -> None:
        ending_later = (each for each in aborted if each.last_offset >= start)
        self._coming = deque(sorted(ending_later, key=lambda each: each.first_offset))
        self._aborted: dict[int, AbortedTransaction] = {}
        self._with_batches: set[int] = set()

    def is_aborted(self, header: BatchHeader) -> bool:
        """Add a batch, and return whether its transaction was aborted."""
        if not header.is_transactional:
            return False
        self._begin_up_to(header.last_offset)
        self._with_batches.add(header.producer_id)
        return header.producer_id in self._aborted

    def end(self, header: BatchHeader, marker: Marker | None) -> tuple[bool, AbortedTransaction | None]:
        """Add a control batch. Return whether its transaction has batches, and the transaction if it was aborted."""
        self._begin_up_to(header.last_offset)
        if marker is None:
            return False, None
        has_batches = header.producer_id in self._with_batches
        self._with_batches.discard(header.producer_id)
        return has_batches, self._aborted.pop(header.producer_id, None)

    def _begin_up_to(self, offset: int) -> None:
        while self._coming and self._coming[0].first_offset <= offset:
            aborted = self._coming.popleft()
            self._aborted[aborted.producer_id] = aborted
