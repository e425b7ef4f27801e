"""Plans the transactions of the log: which changes are to be written, and when a transaction is to be committed.

A transaction of the log holds whole transactions of the database, as many as there are. One that is very large makes
the transaction of the log as large: its records are on the broker by then, not in memory. Only if it takes so long that
the broker might abort it, the transaction of the log ends in its middle. The position then says how many of its changes
are in the log, and a capture that starts there skips them: PostgreSQL sends the changes of a transaction again in the
same order.
"""

from __future__ import annotations

from dataclasses import dataclass

from skylog.capture.pgoutput import Begin, Commit
from skylog.capture.position import Part


@dataclass(frozen=True, slots=True)
class Limits:
    """When a transaction of the log ends: at the next end of a transaction of the database, or in its middle."""

    records: int = 10_000
    seconds: float = 1.0
    split_s: float = 60.0


class Plan:
    """Follows the stream from a position on."""

    def __init__(self, lsn: int, part: Part | None, limits: Limits) -> None:
        self.lsn = lsn
        self._limits = limits
        self._part = part
        self._begin: Begin | None = None
        self._messages = 0  # changes of the transaction that is being streamed
        self._skipped = 0  # how many of them are already in the log
        self._is_known = False  # all of them are

    @property
    def is_between(self) -> bool:
        """Whether the stream is between two transactions."""
        return self._begin is None

    @property
    def part(self) -> Part | None:
        """What the log has of the transaction that is being streamed, if it were committed now."""
        if self._begin is None or self._is_known:
            return self._part
        if self._messages <= self._skipped:
            return self._part
        return Part(self._begin.commit_lsn, self._messages)

    def begin(self, begin: Begin) -> None:
        self._begin = begin
        self._messages = 0
        self._is_known = begin.commit_lsn < self.lsn
        part = self._part
        self._skipped = part.messages if part is not None and part.commit_lsn == begin.commit_lsn else 0

    @property
    def wants_next(self) -> bool:
        """Whether the next change is to be written."""
        return self._messages >= self._skipped and not self._is_known

    def change(self) -> bool:
        """Count a change. Return whether it is to be written."""
        self._messages += 1
        return self._messages > self._skipped and not self._is_known

    def commit(self, commit: Commit) -> None:
        if not self._is_known:
            self._part = None
            self.lsn = commit.end_lsn
        self._begin = None

    def passed(self, lsn: int) -> None:
        """PostgreSQL has nothing for this capture before `lsn`."""
        if self._begin is None and self._part is None:
            self.lsn = max(self.lsn, lsn)

    def is_due(self, records: int, open_s: float, *, is_idle: bool) -> bool:
        """Return whether to commit a transaction of the log that has `records` records and began `open_s` ago.

        `is_idle`: PostgreSQL has sent nothing more yet.
        """
        if not records:
            return False
        if self._begin is not None:
            return open_s >= self._limits.split_s
        return is_idle or records >= self._limits.records or open_s >= self._limits.seconds
