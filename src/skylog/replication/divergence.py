"""Where two logs of a partition part, found by leader epochs (KIP-101, KIP-279, KIP-595).

A follower sends the epoch of its last batch with each fetch. The leader finds the end of that epoch in its own log. If
the follower is beyond it, or the leader does not have the epoch, the logs diverge: the leader answers with the largest
epoch not above the requested one and the end of it (KAFKA-6361), and the follower truncates. This repeats until they
agree.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from skylog.errors import SkylogError
from skylog.model import NO_EPOCH


class EpochEnd(NamedTuple):
    """A leader epoch and the offset after its last record."""

    epoch: int
    end_offset: int


class EpochHistory(Protocol):
    """The part of `storage.LeaderEpochs` that is needed here."""

    @property
    def latest(self) -> int: ...

    def end_offset_for(self, epoch: int, log_end_offset: int, leader_epoch: int = NO_EPOCH) -> tuple[int, int]: ...


def divergence(
    epochs: EpochHistory, log_end_offset: int, leader_epoch: int, fetch_offset: int, last_fetched_epoch: int
) -> EpochEnd | None:
    """Return where a follower's log leaves that of the leader, or None if it is a prefix of it."""
    if last_fetched_epoch == NO_EPOCH:  # the follower's log is empty
        return None
    epoch, end_offset = epochs.end_offset_for(last_fetched_epoch, log_end_offset, leader_epoch)
    if epoch < last_fetched_epoch or end_offset < fetch_offset:
        return EpochEnd(epoch, end_offset)
    return None


def truncation_offset(epochs: EpochHistory, log_end_offset: int, leader: EpochEnd) -> int:
    """Return the offset to which a follower truncates after the leader has answered with `leader`.

    Raises SkylogError if the follower's last epoch is later than that of the leader: the metadata of the cluster is
    older than its logs then.
    """
    if leader.end_offset < 0:
        raise SkylogError(f"the log ends in epoch {epochs.latest}, which is later than that of the leader")
    epoch, end_offset = epochs.end_offset_for(leader.epoch, log_end_offset)
    if epoch == NO_EPOCH:
        return min(leader.end_offset, log_end_offset)
    if epoch != leader.epoch:  # the leader's epoch is unknown here: go back to the end of the one before, ask again
        return min(end_offset, log_end_offset)
    return min(end_offset, leader.end_offset, log_end_offset)
