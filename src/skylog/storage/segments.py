"""The ordered list of a log's segments: finds one by offset, and adds, drops and replaces them."""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path

from skylog.storage.files import FilePool
from skylog.storage.segment import Segment

logger = logging.getLogger(__name__)


class Segments:
    """The segments of one log, oldest first. There is always at least one.

    Each covers the offsets from its `base_offset` up to that of the next one. The last one is `active`: batches are
    appended to it. `active_since_ms` is when it was begun. Used by its log alone, from the thread that appends.
    """

    __slots__ = (
        "_bases",
        "_directory",
        "_dropped_bytes",
        "_initial_bytes",
        "_pool",
        "_segments",
        "active",
        "active_since_ms",
    )

    def __init__(self, directory: Path, pool: FilePool, segments: Sequence[Segment], now_ms: int) -> None:
        self._directory = directory
        self._pool = pool
        self._segments = list(segments)
        self._bases = [segment.base_offset for segment in segments]
        self.active = self._segments[-1]
        self.active_since_ms = now_ms
        self._initial_bytes = self.size_bytes
        self._dropped_bytes = 0

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    # -- facts

    @property
    def base_offset(self) -> int:
        """The first offset that the segments cover."""
        return self._bases[0]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def appended_bytes(self) -> int:
        """The bytes appended since the log was opened, including those dropped since."""
        return self.size_bytes + self._dropped_bytes - self._initial_bytes

    # -- finding

    def index_of(self, offset: int) -> int:
        """Return the number of segments before the one that covers `offset`; -1 if all of them begin after it."""
        return bisect_right(self._bases, offset) - 1

    def find(self, offset: int) -> Segment:
        """Return the segment that covers `offset`. None of them must begin after it."""
        return self._segments[bisect_right(self._bases, offset) - 1]

    def since(self, offset: int) -> list[Segment]:
        """Return the segment that covers `offset` and those after it; all of them if they begin after it."""
        return self._segments[max(self.index_of(offset), 0) :]

    def between(self, base_offset: int, end_offset: int) -> list[Segment]:
        """Return the segments that begin at `base_offset` or later, but before `end_offset`."""
        return self._segments[bisect_left(self._bases, base_offset) : bisect_left(self._bases, end_offset)]

    # -- changing

    def roll(self, base_offset: int, now_ms: int) -> bool:
        """Close the active segment and begin one at `base_offset`. Return False if the active one is empty and stays.

        Raises OSError if the file cannot be created. The old segment is then still active. If only its indexes cannot
        be written, the next start rebuilds them.
        """
        closing = self.active
        if not closing.size_bytes:
            self.active_since_ms = now_ms
            return False
        segment = Segment(self._directory, base_offset, self._pool, create=True)
        try:
            self._seal(closing)
        except OSError as error:
            logger.warning("%s: closed without all of its indexes: %s", closing.path, error)
        closing.end_offset = base_offset
        closing.close()
        self._append(segment, now_ms)
        return True

    def _append(self, segment: Segment, now_ms: int) -> None:
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment
        self.active_since_ms = now_ms

    def _seal(self, segment: Segment) -> None:
        """Write the indexes of a segment. Damaged ones are not written: the first read rebuilds them."""
        if segment.has_intact_indexes():
            segment.seal()

    def drop_first(self) -> list[Path]:
        """Drop the oldest segment, which is not active. Return the files to unlink. Raises OSError."""
        segment = self._segments[0]
        paths = segment.remove()
        del self._segments[0], self._bases[0]
        self._dropped_bytes += segment.size_bytes
        return paths

    def truncate_to(self, offset: int, index_interval_bytes: int, now_ms: int) -> list[Path]:
        """Drop all batches from `offset` on, the start of a batch. Return the files to unlink. Raises OSError."""
        paths = self._drop_from(offset, now_ms)
        active = self.active
        if not active.has_intact_indexes():
            active.rebuild_indexes(index_interval_bytes)
        position = active.position_of(offset)
        if not position:
            return paths + self._drop_from(active.base_offset, now_ms)
        self._dropped_bytes += active.size_bytes - position
        active.truncate(offset, position)
        return paths

    def restart_at(self, offset: int, now_ms: int) -> list[Path]:
        """Replace the only segment, which is empty, by one that begins at `offset`. Return the files to unlink."""
        if self.active.base_offset == offset:
            return []
        paths = self.active.remove()
        self._segments.pop()
        self._bases.pop()
        self._append(Segment(self._directory, offset, self._pool, create=True), now_ms)
        return paths

    def _drop_from(self, offset: int, now_ms: int) -> list[Path]:
        """Drop the segments that begin at `offset` or later. If none is left, begin an empty one there."""
        paths: list[Path] = []
        for segment in reversed(self._segments[bisect_left(self._bases, offset) :]):
            paths += segment.remove()
            self._dropped_bytes += segment.size_bytes
            self._segments.pop()
            self._bases.pop()
        if self._segments:
            self.active = self._segments[-1]
            self.active.end_offset = None
            self.active.activate()
        else:
            self._append(Segment(self._directory, offset, self._pool, create=True), now_ms)
        return paths

    def replace(self, old: Sequence[Segment], new: Segment) -> None:
        """Put `new` in the place of `old`: consecutive closed segments that cover the same offsets."""
        new.share(self._pool)
        first = self.index_of(old[0].base_offset)
        self._segments[first : first + len(old)] = [new]
        self._bases[first : first + len(old)] = [new.base_offset]
        self._dropped_bytes += sum(segment.size_bytes for segment in old) - new.size_bytes

    # -- closing

    def release(self) -> None:
        """Drop all references to open files, in any thread. Readers that hold a slice can still read it."""
        for segment in self._segments:
            segment.release()

    def close(self) -> None:
        """Close the active segment and sync its indexes. Raises OSError."""
        self._seal(self.active)
        self.active.sync_indexes()
        self.active.close()
