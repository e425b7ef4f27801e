"""The `uniform` assignor: equal numbers of partitions, and as few moves as possible.

If all members subscribe to the same topics, their numbers differ by one at most, and a partition moves only if its
owner has too many. Otherwise partitions go to the subscriber with the fewest, and then move from members with more to
members with fewer as long as that makes the numbers more equal. If members have racks, they then exchange partitions so
that more of them are read from the rack of their reader.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from heapq import heapify, heapreplace
from itertools import groupby, islice
from uuid import UUID

from skylog.groups.consumer.assignor import AssignmentInput, Subscriber
from skylog.groups.consumer.partitions import NONE, Partitions, common, each, partitions_of_pairs, size, union
from skylog.groups.consumer.rack_exchange import exchange

Partition = tuple[UUID, int]


def assign(given: AssignmentInput) -> dict[str, Partitions]:
    assigned = _assign(given)
    return exchange(assigned, given, given.racks) if given.racks else assigned


def _assign(given: AssignmentInput) -> dict[str, Partitions]:
    members = sorted(given.subscribers, key=lambda member: member.order)
    kept = {member.member_id: _kept(member, given) for member in members}
    if given.is_homogeneous:
        return _level(kept, given.counts)
    shares = {member_id: [*each(partitions)] for member_id, partitions in kept.items()}
    _spread(shares, _missing(kept, given.counts), given.subscribers)
    _balance(shares, given.subscribers)
    return {member_id: partitions_of_pairs(share) for member_id, share in shares.items()}


def _kept(member: Subscriber, given: AssignmentInput) -> Partitions:
    """Return what a member keeps: partitions that exist, of topics that it still subscribes to."""
    current = given.current.get(member.member_id, NONE)
    if all(
        topic_id in member.topics and max(numbers) < given.counts[topic_id] for topic_id, numbers in current.items()
    ):
        return current
    return common(
        current,
        {topic_id: frozenset(range(given.counts[topic_id])) for topic_id in current if topic_id in member.topics},
    )


def _missing(kept: Mapping[str, Partitions], counts: Mapping[UUID, int]) -> list[Partition]:
    """Return the partitions that nobody keeps."""
    taken: defaultdict[UUID, set[int]] = defaultdict(set)
    for partitions in kept.values():
        for topic_id, numbers in partitions.items():
            taken[topic_id] |= numbers
    return [(topic_id, n) for topic_id, count in counts.items() for n in range(count) if n not in taken[topic_id]]


def _level(kept: dict[str, Partitions], counts: Mapping[UUID, int]) -> dict[str, Partitions]:
    """Give every member its quota. Those that have most already get the larger quotas.

    Most members keep what they have when others come and go. Their partitions are not looked at one by one.
    """
    if not kept:
        return {}
    sizes = {member_id: size(partitions) for member_id, partitions in kept.items()}
    quota, extra = divmod(sum(counts.values()), len(kept))
    by_size = sorted(kept, key=lambda member_id: -sizes[member_id])
    limits = {member_id: quota + (position < extra) for position, member_id in enumerate(by_size)}
    for member_id in by_size:
        if sizes[member_id] > limits[member_id]:
            kept[member_id] = partitions_of_pairs(islice(each(kept[member_id]), limits[member_id]))
    missing = iter(_missing(kept, counts))
    for member_id in by_size:
        wanted = limits[member_id] - sizes[member_id]
        if wanted > 0:
            kept[member_id] = union(kept[member_id], partitions_of_pairs(islice(missing, wanted)))
    return kept


def _spread(shares: dict[str, list[Partition]], missing: list[Partition], members: tuple[Subscriber, ...]) -> None:
    """Give each missing partition to its subscriber with the fewest. Topics with few subscribers come first."""
    subscribers = _by_subscription(members)
    ordered = sorted(missing, key=lambda partition: (len(subscribers[partition[0]]), partition))
    for topic_id, partitions in groupby(ordered, key=lambda partition: partition[0]):
        smallest_first = [(len(shares[member_id]), member_id) for member_id in subscribers[topic_id]]
        heapify(smallest_first)
        for partition in partitions:
            count, member_id = smallest_first[0]
            shares[member_id].append(partition)
            heapreplace(smallest_first, (count + 1, member_id))


def _balance(shares: dict[str, list[Partition]], members: tuple[Subscriber, ...]) -> None:
    """Move single partitions while that makes two members more equal. Each move reduces the sum of the squares."""
    subscribers = _by_subscription(members)
    moved = True
    while moved:
        moved = False
        for topic_id, candidates in subscribers.items():
            while _move_one(shares, topic_id, candidates):
                moved = True


def _move_one(shares: dict[str, list[Partition]], topic_id: UUID, candidates: list[str]) -> bool:
    """Move a partition of a topic from its largest owner to its smallest subscriber if they differ by two or more."""
    smallest = min(candidates, key=lambda member_id: len(shares[member_id]))
    for member_id in sorted(candidates, key=lambda member_id: len(shares[member_id]), reverse=True):
        if len(shares[member_id]) - len(shares[smallest]) < 2:
            return False
        position = next((index for index, pair in enumerate(shares[member_id]) if pair[0] == topic_id), None)
        if position is not None:
            shares[smallest].append(shares[member_id].pop(position))
            return True
    return False


def _by_subscription(members: tuple[Subscriber, ...]) -> dict[UUID, list[str]]:
    subscribers: defaultdict[UUID, list[str]] = defaultdict(list)
    for member in members:
        for topic_id in member.topics:
            subscribers[topic_id].append(member.member_id)
    return subscribers
