"""The merge of a snapshot with the stream, against a model of a database that commits, streams and is read."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skylog.capture.merge import Chunk, ChunkRow, SnapshotMerge, VisibleTransactions, without_page_header
from skylog.capture.table import Tables

TABLE = "public.t"
TABLE_OF_ROWS = Tables("c").of(TABLE, (), ())
KEYS = 12


class World:
    """A table, its WAL, and a capture of it. A transaction is in the WAL before others see it."""

    def __init__(self, drawn: random.Random) -> None:
        self._drawn = drawn
        self._visible: dict[int, int] = dict.fromkeys(range(0, KEYS, 2), 0)
        self._unseen: list[tuple[int, int, int | None]] = []  # in the WAL, and not visible yet
        self._wal: list[tuple[int, int, int | None]] = []  # transaction, key, value
        self._streamed = 0
        self._xid = 100
        self._merge = SnapshotMerge()
        self._asked: tuple[int, int] | None = None  # the first key of the chunk, and how many
        self._next_key = 0
        self._has_chunk = False
        self._newest: dict[int, int] = {}  # by which transaction the log has a key
        self.log: dict[int, int | None] = {}
        self.is_done = False

    def commit(self) -> None:
        """Write a transaction to the WAL. Values only grow."""
        self._xid += 1
        key = self._drawn.randrange(KEYS)
        value = None if self._drawn.random() < 0.3 else self._xid
        self._wal.append((self._xid, key, value))
        self._unseen.append(self._wal[-1])

    def show(self) -> None:
        """Make the first of the transactions visible that are not."""
        if self._unseen:
            _, key, value = self._unseen.pop(0)
            if value is None:
                self._visible.pop(key, None)
            else:
                self._visible[key] = value

    def stream(self) -> None:
        if self._streamed < len(self._wal):
            xid, key, value = self._wal[self._streamed]
            self._streamed += 1
            self._merge.streamed_transaction(xid)
            if self._merge.table == TABLE:
                self._merge.streamed(b"%d" % key)
            self._wrote(key, xid)
            self.log[key] = value

    def ask(self) -> None:
        if self._asked is None and not self.is_done:
            self._merge.ask(TABLE)
            self._asked = (self._next_key, 3)

    def read(self) -> None:
        if self._asked is None or self._has_chunk:
            return
        first, count = self._asked
        found = [key for key in sorted(self._visible) if key >= first][:count]
        rows = [ChunkRow(b"%d" % key, b"%d" % self._visible[key]) for key in found]
        unseen = frozenset(xid for xid, _, _ in self._unseen)
        visible = VisibleTransactions(min(unseen, default=self._xid + 1), self._xid + 1, unseen)
        last = (str(found[-1]),) if found else None
        # A place in the WAL is the number of transactions before it, on a page of its own.
        high = len(self._wal) * 8192
        self._has_chunk = self._merge.answer(Chunk(rows, visible, high, last, len(found) < count, TABLE_OF_ROWS))
        if not self._has_chunk:
            self._asked = None

    def take(self) -> None:
        found = self._merge.take(self._streamed * 8192)
        if found is None:
            return
        chunk, rows = found
        for key, row in rows:
            self._wrote(int(key), int(row))
            self.log[int(key)] = int(row)
        self._asked, self._has_chunk = None, False
        self.is_done = chunk.is_last
        self._next_key = self._next_key if chunk.last_key is None else int(chunk.last_key[0]) + 1

    def _wrote(self, key: int, xid: int) -> None:
        assert self._newest.get(key, 0) <= xid, "an older state than the log has"
        self._newest[key] = xid

    def finish(self) -> None:
        """Let everything become visible and be streamed, and the snapshot end."""
        for _ in range(1000):
            for step in (self.show, self.stream, self.ask, self.read, self.take):
                step()
        assert self.is_done

    @property
    def rows(self) -> dict[int, int]:
        return self._visible


@given(
    st.integers(0, 2**32), st.lists(st.sampled_from(["commit", "show", "stream", "ask", "read", "take"]), max_size=80)
)
def test_the_log_ends_with_the_rows_of_the_table_in_any_order_of_events(seed: int, steps: list[str]) -> None:
    world = World(random.Random(seed))
    for step in steps:
        getattr(world, step)()
    world.finish()
    assert {key: value for key, value in world.log.items() if value is not None} == world.rows


@pytest.mark.parametrize(
    ("xid", "shown"), [(9, True), (10, True), (11, False), (12, True), (20, False), (21, False), (2**32 - 5, True)]
)
def test_a_transaction_is_visible_unless_it_runs_or_is_later(xid: int, shown: bool) -> None:
    visible = VisibleTransactions.parse(f"{2**32 + 10}:{2**32 + 20}:{2**32 + 11},{2**32 + 13}")
    assert visible.shows(xid) is shown


def test_rows_of_a_table_that_was_truncated_are_not_written() -> None:
    merge = SnapshotMerge()
    merge.ask(TABLE)
    merge.answer(
        Chunk([ChunkRow(b"1", b"one")], VisibleTransactions(5, 5, frozenset()), 100, ("1",), True, TABLE_OF_ROWS)
    )
    merge.cleared("public.other")
    merge.cleared(TABLE)
    taken = merge.take(100)
    assert taken is not None
    assert taken[1] == []


@pytest.mark.parametrize(
    ("lsn", "end"), [(8192 * 3 + 40, 8192 * 3), (8192 * 3 + 24, 8192 * 3), (8192 * 3 + 48, 8192 * 3 + 48)]
)
def test_the_start_of_a_page_is_the_end_of_the_one_before(lsn: int, end: int) -> None:
    assert without_page_header(lsn) == end
