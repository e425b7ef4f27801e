"""Reads the snapshots of tables, chunk after chunk, while the stream goes on."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Final, NamedTuple

from skylog.capture.chunks import TableReader
from skylog.capture.merge import Chunk, ChunkRow, SnapshotMerge
from skylog.capture.position import Progress
from skylog.capture.source import Source
from skylog.capture.table import Table

_PAUSE_S: Final = 0.2


class TakenChunk(NamedTuple):
    """Rows that are to be written now, and the progress of their table after them."""

    table: Table
    rows: list[ChunkRow]
    progress: Progress


class Snapshot:
    """The snapshots that a run has to read.

    The first chunk waits until all transactions that were open at the start of the run have ended, as a new slot does:
    one of them may have changed a table before it was published, or may have been streamed to a run before this one and
    not be visible yet.
    """

    def __init__(
        self, source: Source, reader: TableReader, merge: SnapshotMerge, tables: Mapping[str, Progress]
    ) -> None:
        self._source = source
        self._reader = reader
        self._merge = merge
        self._left = {name: progress for name, progress in tables.items() if not progress.is_done}
        self._awaited_xid = source.running_until() if self._left else None
        self._asked: Future[Chunk] | None = None
        self._looked_s = 0.0

    @property
    def is_done(self) -> bool:
        return not self._left

    @property
    def awaited_lsn(self) -> int | None:
        """Where the stream has to be for the next chunk to be written; None while none has been read."""
        return self._merge.awaited_lsn

    def advance(self, reached: int) -> TakenChunk | None:
        """Go on, between two transactions of the stream, which is at `reached`. Return a chunk that is to be written.

        Raises psycopg.Error and CaptureError if a chunk cannot be read.
        """
        if self._merge.awaited_lsn is not None:
            return self._take(reached)
        if self._asked is not None:
            if self._asked.done():
                asked, self._asked = self._asked, None
                self._merge.answer(asked.result())
        elif self._left and self._is_settled():
            name, progress = next(iter(self._left.items()))
            self._merge.ask(name)
            self._asked = self._reader.ask(name, progress.after)
        return None

    def _take(self, reached: int) -> TakenChunk | None:
        name = self._merge.table
        found = self._merge.take(reached)
        if found is None or name is None:
            return None
        chunk, rows = found
        after = None if chunk.is_last else chunk.last_key
        progress = self._left[name]._replace(is_done=chunk.is_last, after=after, is_begun=True)
        if chunk.is_last:
            del self._left[name]
        else:
            self._left[name] = progress
        return TakenChunk(chunk.table, rows, progress)

    def _is_settled(self) -> bool:
        if self._awaited_xid is not None and time.monotonic() - self._looked_s >= _PAUSE_S:
            self._looked_s = time.monotonic()
            if self._source.oldest_running() >= self._awaited_xid:
                self._awaited_xid = None
        return self._awaited_xid is None
