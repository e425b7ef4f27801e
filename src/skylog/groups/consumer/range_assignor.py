"""The `range` assignor: consecutive partitions of each topic.

Members get the same numbers in all topics with the same number of partitions and subscribers, which suits joins of
co-partitioned topics. If members have racks, some exchange numbers so that they read from their own rack, the same
numbers in all such topics (KIP-881).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from uuid import UUID

from skylog.groups.consumer.assignor import AssignmentInput, PartitionRacks, Subscriber
from skylog.groups.consumer.partitions import Partitions
from skylog.groups.consumer.rack_exchange import exchange


def assign(given: AssignmentInput) -> dict[str, Partitions]:
    members = sorted(given.subscribers, key=lambda each: each.order)
    assigned: dict[str, dict[UUID, frozenset[int]]] = {each.member_id: {} for each in members}
    alike: defaultdict[tuple[int, tuple[Subscriber, ...]], list[UUID]] = defaultdict(list)
    for topic_id, count in given.counts.items():
        alike[count, tuple(each for each in members if topic_id in each.topics)].append(topic_id)
    for (count, subscribers), topic_ids in alike.items():
        ranges = _ranges(count, subscribers)
        if given.racks:
            ranges = _by_rack(ranges, subscribers, topic_ids, given.racks)
        for member_id, numbers in ranges.items():
            assigned[member_id].update(dict.fromkeys(topic_ids, numbers))
    return dict(assigned)


def _ranges(count: int, subscribers: Sequence[Subscriber]) -> dict[str, frozenset[int]]:
    """Return the partitions of each subscriber. Those without any are left out."""
    if not subscribers:
        return {}
    quota, extra = divmod(count, len(subscribers))
    ranges = {}
    start = 0
    for position, member in enumerate(subscribers):
        end = start + quota + (position < extra)
        if end > start:
            ranges[member.member_id] = frozenset(range(start, end))
        start = end
    return ranges


def _by_rack(
    ranges: dict[str, frozenset[int]],
    subscribers: tuple[Subscriber, ...],
    topic_ids: Sequence[UUID],
    racks: PartitionRacks,
) -> dict[str, frozenset[int]]:
    """Exchange numbers. A rack counts if it has replicas of that number in all of the topics."""
    any_topic = topic_ids[0]
    common = tuple(
        frozenset.intersection(*of_number) for of_number in zip(*(racks[each] for each in topic_ids), strict=True)
    )
    alike = tuple(each._replace(topics=frozenset({any_topic})) for each in subscribers)
    exchanged = exchange(
        {member_id: {any_topic: numbers} for member_id, numbers in ranges.items()},
        AssignmentInput(alike, {any_topic: len(common)}, {}),
        {any_topic: common},
    )
    return {member_id: partitions[any_topic] for member_id, partitions in exchanged.items()}
