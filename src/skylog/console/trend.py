"""Where a figure is heading. Pure."""

from __future__ import annotations

from statistics import median
from typing import Final, Literal

from skylog.console.history import Points

SHORTEST_MS: Final = 60_000
LONGEST_MS: Final = 180_000
_CHANGE: Final = 1.25
_LEAST: Final = 10  # a few messages more or less say nothing

Trend = Literal["growing", "shrinking", "steady"]


def trend(points: Points) -> Trend | None:
    """Over the last three minutes, by the medians of their first and last third: what is in between does not matter.

    None while less than a minute is known.
    """
    if not points or points[-1][0] - points[0][0] < SHORTEST_MS:
        return None
    recent = [value for time_ms, value in points if points[-1][0] - time_ms <= LONGEST_MS]
    third = max(len(recent) // 3, 1)
    before, now = median(recent[:third]), median(recent[-third:])
    if abs(now - before) < _LEAST:
        return "steady"
    if now > before * _CHANGE:
        return "growing"
    return "shrinking" if before > now * _CHANGE else "steady"
