"""What the counting tiers share: windows of time, counts by window, and the way out for a report.

A window is named by its number, the time divided by its length; so all tiers cut time at the same places.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from skylog.audit.report import Count
from skylog.errors import ConfigError

Publish = Callable[[str, bytes, Callable[[bool], None]], None]
"""`publish(topic, value, done)`: send a report; `done` is told, once, whether it is stored, maybe on another thread."""

SMALLEST_WINDOW_MS: Final = 100


class WindowCounts:
    """Messages and bytes by window, or by span of windows where a message may be in any of them."""

    __slots__ = ("_rows", "window_ms")

    def __init__(self, window_ms: int) -> None:
        self.window_ms = window_ms
        self._rows: dict[tuple[int, int], list[int]] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, first_window: int, last_window: int) -> list[int]:
        """Messages and bytes of a span, to be added to."""
        key = (first_window, last_window)
        found = self._rows.get(key)
        if found is None:
            found = self._rows[key] = [0, 0]
        return found

    def counts(self) -> list[Count]:
        """In the order of their times."""
        window_ms = self.window_ms
        return [
            Count(first * window_ms, (last + 1) * window_ms, messages, size_bytes)
            for (first, last), (messages, size_bytes) in sorted(self._rows.items())
            if messages
        ]


def fold(counts: Sequence[Count], limit: int) -> list[Count]:
    """At most `limit` counts that say the same less exactly: neighbours are put together into spans."""
    if len(counts) <= limit:
        return list(counts)
    rows = sorted(counts, key=lambda row: (row.start_ms, row.end_ms))
    per_span = -(-len(rows) // limit)
    return [_together(rows[at : at + per_span]) for at in range(0, len(rows), per_span)]


def _together(rows: Sequence[Count]) -> Count:
    return Count(
        rows[0].start_ms,
        max(row.end_ms for row in rows),
        sum(row.messages for row in rows),
        sum(row.size_bytes for row in rows),
        sum(row.uncertain for row in rows),
    )


def add_up(counts: Sequence[Count]) -> list[Count]:
    """Counts of the same times put together, in the order of their times."""
    same: dict[tuple[int, int], list[Count]] = {}
    for row in counts:
        same.setdefault((row.start_ms, row.end_ms), []).append(row)
    return [_together(rows) for _, rows in sorted(same.items())]


def check_window(window_ms: int) -> int:
    """Raises ConfigError for a window that is too short to be counted by."""
    if window_ms < SMALLEST_WINDOW_MS:
        raise ConfigError(f"window_ms={window_ms}: a window has at least {SMALLEST_WINDOW_MS} ms")
    return window_ms
