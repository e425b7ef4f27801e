"""Which member owns each partition: the index that keeps a partition from having two owners."""

from __future__ import annotations

from uuid import UUID

from skylog.groups.consumer.partitions import Partitions, each


class Ownership:
    """Owners by topic id and partition. A partition belongs to its owner until that has given it up."""

    def __init__(self) -> None:
        self._owners: dict[UUID, dict[int, str]] = {}

    def owner(self, topic_id: UUID, number: int) -> str | None:
        return self._owners.get(topic_id, {}).get(number)

    def free(self, partitions: Partitions, member_id: str) -> Partitions:
        """Return those of the partitions that no member other than `member_id` owns."""
        found = {}
        for topic_id, numbers in partitions.items():
            owners = self._owners.get(topic_id)
            if owners:
                numbers = frozenset(each for each in numbers if owners.get(each, member_id) == member_id)
            if numbers:
                found[topic_id] = numbers
        return found

    def change(self, member_id: str, before: Partitions, now: Partitions) -> None:
        """Replace what a member owns."""
        for topic_id, number in each(before):
            owners = self._owners.get(topic_id, {})
            if owners.get(number) == member_id:
                del owners[number]
                if not owners:
                    del self._owners[topic_id]
        for topic_id, number in each(now):
            self._owners.setdefault(topic_id, {})[number] = member_id
