"""How long something may take where the time is part of what a test shows: longer on a machine that is busy."""

from __future__ import annotations

import os


def patience(seconds: float) -> float:
    """`seconds` on a quiet machine, and as many times that as there are others waiting for each of its cores."""
    waiting = os.getloadavg()[0] / (os.cpu_count() or 1)
    return seconds * max(waiting, 1.0)
