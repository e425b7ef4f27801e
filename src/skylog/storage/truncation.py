"""Prepares a truncation in another thread, if it would take long.

A truncated log needs the producers at its new end: those of a snapshot and of the batches after it, which may be a
whole segment. And the segment that becomes the active one needs its indexes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Final

from skylog.storage.files import OpenFile
from skylog.storage.producer_recovery import Batches, load_best, replay
from skylog.storage.producer_snapshot import snapshot_offsets
from skylog.storage.producer_state import ProducerState
from skylog.storage.segment import segment_path
from skylog.storage.soundness import UncheckedError

if TYPE_CHECKING:
    from skylog.storage.log import Log

SHORT_BYTES: Final = 64 * 1024
SHORT_COUNT: Final = 1000


class ProducerReplay:
    """Restores the producers at `end_offset`, to which a log is about to be truncated. Implements `Check`.

    Batches below `end_offset` do not change until then, unless the log is truncated further: `truncations` is another
    number then. The files are opened again, and read without their indexes, because segments are used only in the
    thread that appends.
    """

    def __init__(self, log: Log, bases: Sequence[int], end_offset: int, now_ms: int, open_file: OpenFile) -> None:
        self._log = log
        self._bases = bases
        self._open_file = open_file
        self._now_ms = now_ms
        self._truncations = log.truncations
        self._end_offset = end_offset
        self.producers = ProducerState()

    @property
    def key(self) -> Hashable:
        return "producers", self._log, self._end_offset, self._truncations

    def run(self) -> None:
        """Raises OSError."""
        directory, bases, end_offset = self._log.directory, self._bases, self._end_offset
        self.producers, replay_from = load_best(directory, bases[0], end_offset, end_offset, self._now_ms)
        for base_offset in bases[max(bisect_right(bases, replay_from) - 1, 0) :]:
            file = self._open_file(segment_path(directory, base_offset), False)
            batches = Batches(file, 0, base_offset, file.size_bytes, None)
            for _ in replay(batches, replay_from, self.producers, self._now_ms, end_offset):
                pass  # the log has the aborted transactions

    def finish(self) -> None:
        self._log.replayed = self

    def is_for(self, log: Log, offset: int) -> bool:
        """Whether these are still the producers at `offset`."""
        return (self._end_offset, self._truncations) == (offset, log.truncations)


def prepare_truncation(log: Log, offset: int, now_ms: int, open_file: OpenFile) -> None:
    """Raise UncheckedError if a truncation to `offset` would take long. Its check does most of the work.

    Raises KafkaError if a file cannot be opened.
    """
    bases = [segment.base_offset for segment in log.segments if segment.base_offset < offset]
    if not bases or offset >= log.log_end_offset:
        return
    log.indexed_segment(offset - 1)  # it becomes the active one
    if log.replayed is not None and log.replayed.is_for(log, offset):
        return
    if not _is_short(log, offset):
        raise UncheckedError(ProducerReplay(log, bases, offset, now_ms, open_file))


def _is_short(log: Log, offset: int) -> bool:
    """Whether the producers at `offset` can be restored in a few milliseconds."""
    if not log.has_producers:
        return True
    snapshot = max((each for each in snapshot_offsets(log.directory) if each <= offset), default=0)
    size_bytes = sum(
        segment.size_bytes
        for segment in log.segments
        if segment.base_offset < offset and log.end_of(segment) > snapshot
    )
    return size_bytes <= SHORT_BYTES and len(log.producers) <= SHORT_COUNT
