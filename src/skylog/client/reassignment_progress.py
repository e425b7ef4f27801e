"""Tracks reassignments until they have ended. Pure: the state of the cluster and the time are passed in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from skylog.client.cluster import Reassignment
from skylog.model import TopicPartition


@dataclass(frozen=True, slots=True)
class ReassignmentProgress:
    """How many partitions have reached their target, and which never will.

    `bytes_left` is what is still to be copied; None if it is not known.
    """

    total: int
    done: int
    abandoned: tuple[TopicPartition, ...] = ()
    bytes_left: int | None = None

    @property
    def is_over(self) -> bool:
        return self.done + len(self.abandoned) == self.total


class ReassignmentTracker:
    """The reassignments to `targets`.

    The brokers learn of a change one after another. So a partition that is neither moving nor at its target counts as
    abandoned only after `patience_s`.
    """

    def __init__(self, targets: Mapping[TopicPartition, tuple[int, ...]], patience_s: float) -> None:
        self._targets = targets
        self._patience_s = patience_s
        self._lost_since: dict[TopicPartition, float] = {}

    def update(
        self, moving: Iterable[Reassignment], present: Mapping[TopicPartition, tuple[int, ...]], now_s: float
    ) -> ReassignmentProgress:
        """Return the progress, given the reassignments under way and the replicas of all partitions."""
        under_way = {each.partition for each in moving}
        done = {key for key, target in self._targets.items() if key not in under_way and present.get(key) == target}
        lost = self._targets.keys() - under_way - done
        self._lost_since = {key: self._lost_since.get(key, now_s) for key in lost}
        abandoned = [key for key, since_s in self._lost_since.items() if now_s - since_s >= self._patience_s]
        return ReassignmentProgress(len(self._targets), len(done), tuple(sorted(abandoned)))
