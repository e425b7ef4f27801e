"""How far a partition is counted, as the reports in the audit topic say.

A report replaces all earlier ones of its partition that start at its start or later (see `ledger`). Those that remain
are in force. They should adjoin each other: a gap would be messages that nobody counted, an overlap messages that were
counted twice. The leader of the partition continues at `end_offset`, which replaces everything in force beyond it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

REMEMBERED_STARTS: Final = 16


@dataclass(slots=True)
class StoredProgress:
    """The reports in force of one partition, as far as they adjoin: up to `end_offset`, with the `starts` of the last.

    `has_more`: other reports are in force beyond `end_offset`, which do not adjoin or belong to another topic of the
    same name. They are late reports of former leaders.
    """

    topic_id: str | None
    end_offset: int
    starts: list[int] = field(default_factory=list)
    has_more: bool = False

    @classmethod
    def first(cls, start_offset: int, end_offset: int, topic_id: str | None) -> StoredProgress:
        """Return the progress after the first known report. Retention may have deleted earlier ones."""
        return cls(topic_id, end_offset, [start_offset])

    def add(self, start_offset: int, end_offset: int, topic_id: str | None) -> None:
        """Add a report, in the order of the audit topic."""
        if start_offset == 0:
            self.topic_id, self.end_offset, self.starts, self.has_more = topic_id, end_offset, [0], False
            return
        self._replace_from(start_offset)
        if start_offset == self.end_offset and self._is_of(topic_id):
            self.starts = [*self.starts, start_offset][-REMEMBERED_STARTS:]
            self.end_offset = end_offset
            self.topic_id = topic_id or self.topic_id
        else:
            self._leave_out(start_offset)

    def _replace_from(self, start_offset: int) -> None:
        """Forget the reports that start at `start_offset` or later."""
        if start_offset > self.end_offset:
            return
        self.has_more = False
        kept = [start for start in self.starts if start < start_offset]
        if len(kept) < len(self.starts):
            self.end_offset = self.starts[len(kept)]
        self.starts = kept

    def _leave_out(self, start_offset: int) -> None:
        """Note a report in force that does not adjoin. If it begins inside the last one, that is left out, too."""
        self.has_more = True
        if start_offset < self.end_offset:
            self.end_offset = self.starts.pop() if self.starts else 0

    def _is_of(self, topic_id: str | None) -> bool:
        return topic_id is None or self.topic_id in (None, topic_id)

    def next_start(self, topic_id: str, log_end_offset: int) -> tuple[int, bool]:
        """Return where the leader's next report starts, and whether it must replace reports even if it counts nothing.

        If the log has lost its end, as in a power failure, that is the start of a report that it still holds.
        """
        if not self._is_of(topic_id):
            return 0, True
        if log_end_offset < self.end_offset:
            return max((start for start in self.starts if start <= log_end_offset), default=0), True
        return self.end_offset, self.has_more
