"""Finds the shortest prefix of a plan that still fails."""

from __future__ import annotations

from collections.abc import Callable


def shortest_plan(count: int, fails: Callable[[int], bool]) -> int:
    """Return the smallest number of faults with which a run fails. `fails(count)` is known to be true.

    Fewer faults may fail where more do not, so this tries all numbers from zero on.
    """
    return next((kept for kept in range(count) if fails(kept)), count)
