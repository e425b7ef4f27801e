"""Where a figure is heading. Pure."""

from __future__ import annotations

from typing import Final, Literal

from skylog.console.history import Points

PERIOD_MS: Final = 60_000

Trend = Literal["growing", "shrinking", "steady"]


def trend(points: Points) -> Trend | None:
    """Over the last minute: growing if it never fell and is larger now. None while less than a minute is known."""
    if not points or points[-1][0] - points[0][0] < PERIOD_MS:
        return None
    recent = [value for time_ms, value in points if points[-1][0] - time_ms <= PERIOD_MS]
    if recent[0] < recent[-1] and recent == sorted(recent):
        return "growing"
    if recent[0] > recent[-1] and recent == sorted(recent, reverse=True):
        return "shrinking"
    return "steady"
