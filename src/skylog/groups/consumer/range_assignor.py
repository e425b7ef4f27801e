"""The `range` assignor: consecutive partitions of each topic.

Members get the same numbers in all topics with the same number of partitions and subscribers, which suits joins of
co-partitioned topics.
"""

from __future__ import annotations

from uuid import UUID

from skylog.groups.consumer.assignor import AssignmentInput
from skylog.groups.consumer.partitions import Partitions


def assign(given: AssignmentInput) -> dict[str, Partitions]:
    members = sorted(given.subscribers, key=lambda each: each.order)
    assigned: dict[str, dict[UUID, frozenset[int]]] = {each.member_id: {} for each in members}
    for topic_id, count in given.counts.items():
        subscribers = [each.member_id for each in members if topic_id in each.topics]
        if not subscribers:
            continue
        quota, extra = divmod(count, len(subscribers))
        start = 0
        for position, member_id in enumerate(subscribers):
            end = start + quota + (position < extra)
            if end > start:
                assigned[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return dict(assigned)
