"""Shared by all tiers: time windows, counts by window, and the callback that publishes a report.

A window's number is the time divided by the window length, so all tiers have the same boundaries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from skylog.audit.report import Count
from skylog.errors import ConfigError

Publish = Callable[[str, bytes, Callable[[bool], None]], None]
"""`publish(topic, value, done)`: send a report. Calls `done(is_stored)` once, maybe on another thread."""

SMALLEST_WINDOW_MS: Final = 100


class WindowCounts:
    """Messages and bytes by window, or by span of windows if the exact window is unknown."""

    __slots__ = ("_rows", "window_ms")

    def __init__(self, window_ms: int) -> None:
        self.window_ms = window_ms
        self._rows: dict[tuple[int, int], list[int]] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, first_window: int, last_window: int) -> list[int]:
        """Return the counters of a span, [messages, bytes], to add to."""
        key = (first_window, last_window)
        found = self._rows.get(key)
        if found is None:
            found = self._rows[key] = [0, 0]
        return found

    def counts(self) -> list[Count]:
        """Return the counts in the order of their times."""
        window_ms = self.window_ms
        return [
            Count(first * window_ms, (last + 1) * window_ms, messages, size_bytes)
            for (first, last), (messages, size_bytes) in sorted(self._rows.items())
            if messages
        ]


def fold(counts: Sequence[Count], limit: int) -> list[Count]:
    """Merge neighbouring counts into spans until there are at most `limit`."""
    if len(counts) <= limit:
        return list(counts)
    rows = sorted(counts, key=lambda row: (row.start_ms, row.end_ms))
    per_span = -(-len(rows) // limit)
    return [_merge(rows[at : at + per_span]) for at in range(0, len(rows), per_span)]


def _merge(rows: Sequence[Count]) -> Count:
    return Count(
        rows[0].start_ms,
        max(row.end_ms for row in rows),
        sum(row.messages for row in rows),
        sum(row.size_bytes for row in rows),
        sum(row.uncertain for row in rows),
    )


def add_up(counts: Sequence[Count]) -> list[Count]:
    """Add up counts with the same time range, in the order of their times."""
    same: dict[tuple[int, int], list[Count]] = {}
    for row in counts:
        same.setdefault((row.start_ms, row.end_ms), []).append(row)
    return [_merge(rows) for _, rows in sorted(same.items())]


def check_window(window_ms: int) -> int:
    """Return `window_ms`. Raises ConfigError if it is too short."""
    if window_ms < SMALLEST_WINDOW_MS:
        raise ConfigError(f"window_ms={window_ms}: must be at least {SMALLEST_WINDOW_MS}")
    return window_ms
