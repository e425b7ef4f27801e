"""Moves a member towards its target assignment, one step at a time.

A member first gives up what is not in its target. Until it reports that, it stays in its epoch::

    STABLE ──target has changed──▶ UNREVOKED_PARTITIONS ──reported as revoked──┐
      ▲                                                                        ▼
      └──── all target partitions are free ◀──── UNRELEASED_PARTITIONS ◀── new epoch

Then it enters the target's epoch and gets the partitions that nobody owns. The others follow when their owners have
given them up, so a partition never has two owners.
"""

from __future__ import annotations

from collections.abc import Callable

from skylog.groups.consumer.member import Current, MemberState
from skylog.groups.consumer.partitions import Partitions, common, overlap, union, without

Free = Callable[[Partitions], Partitions]
"""Returns those of the given partitions that no other member owns."""


def reconcile(current: Current, target_epoch: int, target: Partitions, owned: Partitions | None, free: Free) -> Current:
    """Return the next state of a member. `owned` are the partitions that it reports, None if it reports none."""
    if current.state is MemberState.STABLE and current.epoch == target_epoch:
        return current
    if current.state is MemberState.UNREVOKED_PARTITIONS and _still_owns(current.revoking, owned):
        return current
    kept = common(current.assigned, target)
    revoking = without(current.assigned, target)
    if revoking and _still_owns(revoking, owned):
        return current.moved(current.epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking)
    wanted = without(target, kept)
    available = free(wanted)
    state = MemberState.STABLE if available == wanted else MemberState.UNRELEASED_PARTITIONS
    return current.moved(target_epoch, state, union(kept, available))


def _still_owns(partitions: Partitions, owned: Partitions | None) -> bool:
    """Return whether a member may still own one of these partitions, as far as it has reported."""
    return owned is None or overlap(owned, partitions)
