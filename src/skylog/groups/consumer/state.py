"""The states of a consumer group."""

from __future__ import annotations

from enum import Enum


class ConsumerGroupState(Enum):
    """The values are the names that ConsumerGroupDescribe returns."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"  # the group epoch is larger than that of the target assignment
    RECONCILING = "Reconciling"  # some members have not reached the target assignment
    STABLE = "Stable"
    DEAD = "Dead"
