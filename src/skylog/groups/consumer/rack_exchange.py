"""Moves partitions into the racks of their readers: a consumer reads from a replica in its own rack (KIP-392).

It improves a finished assignment. Two members exchange a partition each if more partitions are then with a member in
the rack of one of their replicas. Numbers of partitions stay as they are, so racks never cost balance. Every exchange
increases the number of matches, so this ends, and an assignment that it has improved stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from skylog.groups.consumer.assignor import AssignmentInput, PartitionRacks, Subscriber
from skylog.groups.consumer.partitions import Partitions, each, partitions_of_pairs

Partition = tuple[UUID, int]

_MOST: Final = 2  # partitions that match after an exchange and did not before


class _Kind(NamedTuple):
    """What an exchange depends on. Partitions of one kind are interchangeable.

    `subscription` and `topic_id` are None if all members subscribe to the same topics.
    """

    rack: str | None
    subscription: frozenset[UUID] | None
    topic_id: UUID | None
    racks: frozenset[str]

    @property
    def matches(self) -> bool:
        return self.rack in self.racks

    def may_exchange(self, other: _Kind) -> bool:
        """Whether the owner of each subscribes to the topic of the other."""
        return _subscribes(self.subscription, other.topic_id) and _subscribes(other.subscription, self.topic_id)

    def gain(self, other: _Kind) -> int:
        """How many more partitions match after an exchange."""
        before = self.matches + other.matches
        return (self.rack in other.racks) + (other.rack in self.racks) - before


def _subscribes(subscription: frozenset[UUID] | None, topic_id: UUID | None) -> bool:
    return subscription is None or topic_id in subscription


class _Exchange:
    """The owners of partitions, by kind. Dictionaries keep the order, so that the result depends on the input alone."""

    def __init__(self, subscribers: Sequence[Subscriber], racks: PartitionRacks, is_homogeneous: bool) -> None:
        self._subscribers = {each.member_id: each for each in subscribers}
        self._racks = racks
        self._is_homogeneous = is_homogeneous
        self._owned: dict[str | None, dict[_Kind, dict[Partition, str]]] = {}  # by rack of the owner

    def _kind(self, member_id: str, partition: Partition) -> _Kind:
        member, (topic_id, number) = self._subscribers[member_id], partition
        racks = self._racks[topic_id][number]
        if self._is_homogeneous:
            return _Kind(member.rack, None, None, racks)
        return _Kind(member.rack, member.topics, topic_id, racks)

    def put(self, member_id: str, partition: Partition) -> None:
        kind = self._kind(member_id, partition)
        self._owned.setdefault(kind.rack, {}).setdefault(kind, {})[partition] = member_id

    def run(self) -> None:
        has_improved = True
        while has_improved:
            has_improved = False
            for kind in [known for kinds in self._owned.values() for known in kinds if not known.matches]:
                has_improved |= self._improve(kind)

    def _improve(self, kind: _Kind) -> bool:
        """Exchange partitions of a kind while that helps. Return whether any was."""
        has_improved = False
        while self._owned[kind.rack][kind]:
            other = self._best_for(kind)
            if other is None:
                break
            self._swap(kind, other)
            has_improved = True
        return has_improved

    def _best_for(self, kind: _Kind) -> _Kind | None:
        """Return the kind with which an exchange of `kind`, which matches nobody yet, gains most.

        Its owner is in a rack of `kind`. If it is not, and the exchange helps, then it helps that kind, which does not
        match either: it is found from there.
        """
        best, most = None, 0
        for rack in sorted(kind.racks):
            for other, owned in self._owned.get(rack, {}).items():
                if owned and kind.may_exchange(other) and (gain := kind.gain(other)) > most:
                    best, most = other, gain
                    if most == _MOST:
                        return best
        return best

    def _swap(self, one: _Kind, other: _Kind) -> None:
        mine, my_member = self._owned[one.rack][one].popitem()
        theirs, their_member = self._owned[other.rack][other].popitem()
        self.put(my_member, theirs)
        self.put(their_member, mine)

    def owners(self) -> Iterator[tuple[str, Partition]]:
        for kinds in self._owned.values():
            for owned in kinds.values():
                for partition, member_id in owned.items():
                    yield member_id, partition


def exchange(
    assigned: Mapping[str, Partitions], given: AssignmentInput, racks: PartitionRacks
) -> dict[str, Partitions]:
    """Return an assignment in which no exchange of two partitions would put more of them into the racks of members."""
    state = _Exchange(given.subscribers, racks, given.is_homogeneous)
    for member_id, partitions in assigned.items():
        for partition in sorted(each(partitions)):
            state.put(member_id, partition)
    state.run()
    shares: dict[str, list[Partition]] = {member_id: [] for member_id in assigned}
    for member_id, partition in state.owners():
        shares[member_id].append(partition)
    return {member_id: partitions_of_pairs(share) for member_id, share in shares.items()}
