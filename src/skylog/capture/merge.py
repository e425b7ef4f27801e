"""Merges a snapshot with the stream: a table is read in chunks while its changes keep coming. Streamed keys win.

A chunk is written to the log at a place in the stream where everything that the chunk shows has been streamed: after
`high`, the end of the WAL when the chunk had been read. Its rows are then as new as the stream, except for those that
the stream has changed since the chunk was asked for: their keys are dropped from it. So the last record of a key is
always its newest state, and the stream never waits for the snapshot.

One case is left: PostgreSQL sends a transaction as soon as its commit is in the WAL, which is a moment before others
see it (or long before, with synchronous replication). A chunk that does not show a transaction that was streamed before
the chunk was asked for is read again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from skylog.capture.table import Table

_WRAP: Final = 1 << 32
_PAGE: Final = 8192
_PAGE_HEADER: Final = 40


class VisibleTransactions(NamedTuple):
    """What `pg_current_snapshot()` says: transactions from `xmax` on and those in `running` are not visible."""

    xmin: int
    xmax: int
    running: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> VisibleTransactions:
        xmin, xmax, running = text.split(":")
        return cls(int(xmin), int(xmax), frozenset(int(each) for each in running.split(",") if each))

    def shows(self, xid: int) -> bool:
        """Return whether the changes of a transaction are visible. The stream has 32 bits of its id."""
        whole = self.xmax - (self.xmax - xid) % _WRAP
        if self.xmax - whole > _WRAP // 2:
            whole += _WRAP
        return whole < self.xmax and whole not in self.running


class ChunkRow(NamedTuple):
    key: bytes
    row: bytes


class Chunk(NamedTuple):
    """Rows in the order of their keys. `high` is the end of the WAL after they were read."""

    rows: Sequence[ChunkRow]
    visible: VisibleTransactions
    high: int
    last_key: tuple[str, ...] | None
    is_last: bool
    table: Table  # as its rows are encoded


class SnapshotMerge:
    """Merges one chunk at a time. Everything is in the order of the stream."""

    def __init__(self) -> None:
        self.table: str | None = None  # whose chunk was asked for
        self._streamed_keys: set[bytes] = set()
        self._recent: set[int] = set()  # streamed transactions that a chunk may not show yet
        self._before: frozenset[int] = frozenset()
        self._is_cleared = False
        self._chunk: Chunk | None = None

    def streamed_transaction(self, xid: int) -> None:
        self._recent.add(xid)

    def ask(self, table: str) -> None:
        """A chunk of the table is about to be read."""
        self.table = table
        self._streamed_keys.clear()
        self._before = frozenset(self._recent)
        self._is_cleared = False
        self._chunk = None

    def streamed(self, key: bytes) -> None:
        """The stream has a change of a row of `table`."""
        self._streamed_keys.add(key)

    def cleared(self, table: str) -> None:
        """The stream has removed all rows of a table."""
        if table == self.table:
            self._is_cleared = True

    def answer(self, chunk: Chunk) -> bool:
        """Take the chunk that was asked for. Return False if it has to be read again."""
        if not all(map(chunk.visible.shows, self._before)):
            self.table = None
            return False
        self._recent = {xid for xid in self._recent if not chunk.visible.shows(xid)}
        self._chunk = chunk
        return True

    @property
    def awaited_lsn(self) -> int | None:
        """Where the stream has to be for the chunk to be written; None without a chunk."""
        return None if self._chunk is None else without_page_header(self._chunk.high)

    def take(self, lsn: int) -> tuple[Chunk, list[ChunkRow]] | None:
        """Return the chunk and what is left of its rows, if the stream is far enough and between two transactions."""
        chunk, awaited = self._chunk, self.awaited_lsn
        if chunk is None or awaited is None or lsn < awaited:
            return None
        gone = self._streamed_keys
        rows = [] if self._is_cleared else [row for row in chunk.rows if row.key not in gone]
        self.table = self._chunk = None
        return chunk, rows


def without_page_header(lsn: int) -> int:
    """Return the end of the record before `lsn`, if `lsn` is the start of the first record of a page.

    The end of the WAL is given as the place of its next record, which the stream does not reach without one.
    """
    return lsn - lsn % _PAGE if lsn % _PAGE <= _PAGE_HEADER else lsn
