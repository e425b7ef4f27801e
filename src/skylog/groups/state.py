"""The states of a group and the transitions between them."""

from __future__ import annotations

from enum import Enum
from typing import Final


class GroupState(Enum):
    """The values are the names that DescribeGroups returns."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


TRANSITIONS: Final[dict[GroupState, dict[GroupState, str]]] = {
    GroupState.EMPTY: {
        GroupState.PREPARING: "the first member joins",
        GroupState.DEAD: "the group is deleted, or has no offsets left",
    },
    GroupState.PREPARING: {
        GroupState.COMPLETING: "all members have joined, or the rebalance timeout is over",
        GroupState.EMPTY: "no member is left",
    },
    GroupState.COMPLETING: {
        GroupState.STABLE: "the leader has sent the assignment",
        GroupState.PREPARING: "a member joins, leaves, expires or changes its subscription",
        GroupState.EMPTY: "the last member leaves or expires",
    },
    GroupState.STABLE: {
        GroupState.PREPARING: "a member joins, leaves, expires or changes its subscription; the leader rejoins",
        GroupState.EMPTY: "the last member leaves or expires",
    },
    GroupState.DEAD: {
        GroupState.EMPTY: "its deletion could not be stored",
    },
}
"""The transitions from each state, with their causes. `Group` raises AssertionError for any other."""
