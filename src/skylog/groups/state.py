"""The states of a group, and which may follow which."""

from __future__ import annotations

from enum import Enum
from typing import Final


class GroupState(Enum):
    """The values are the names that DescribeGroups shows."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


TRANSITIONS: Final[dict[GroupState, dict[GroupState, str]]] = {
    GroupState.EMPTY: {
        GroupState.PREPARING: "the first member joins",
        GroupState.DEAD: "deleted, or nothing is left to keep",
    },
    GroupState.PREPARING: {
        GroupState.COMPLETING: "all members have joined, or the time for it is up",
        GroupState.EMPTY: "nobody is left",
    },
    GroupState.COMPLETING: {
        GroupState.STABLE: "the leader has brought the assignment",
        GroupState.PREPARING: "a member joins, leaves, is silent or wants something else",
        GroupState.EMPTY: "the last member is gone",
    },
    GroupState.STABLE: {
        GroupState.PREPARING: "a member joins, leaves, is silent or wants something else; the leader joins again",
        GroupState.EMPTY: "the last member is gone",
    },
    GroupState.DEAD: {
        GroupState.EMPTY: "its deletion could not be stored",
    },
}
"""From each state to those that may follow, with what leads there. `Group` refuses every other step."""
