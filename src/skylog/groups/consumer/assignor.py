"""What an assignor gets and returns. It runs in the broker, and may run in a thread: everything here is immutable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from skylog.groups.consumer.partitions import Partitions

PartitionRacks = Mapping[UUID, tuple[frozenset[str], ...]]
"""The racks of the replicas of each partition, by topic."""

NO_RACKS: Final[PartitionRacks] = {}


class Subscriber(NamedTuple):
    """A member and the topics that it subscribes to. Topics that do not exist are left out."""

    member_id: str
    instance_id: str | None
    topics: frozenset[UUID]
    rack: str | None = None

    @property
    def order(self) -> tuple[bool, str]:
        """Static members come first, by instance id: their order survives restarts. The others follow by member id."""
        return (self.instance_id is None, self.instance_id or self.member_id)


class AssignmentInput(NamedTuple):
    """`counts` has the number of partitions of each subscribed topic, `current` the last target assignment.

    `racks` is empty if no member has a rack.
    """

    subscribers: tuple[Subscriber, ...]
    counts: Mapping[UUID, int]
    current: Mapping[str, Partitions]
    racks: PartitionRacks = NO_RACKS

    @property
    def is_homogeneous(self) -> bool:
        """Whether all members subscribe to the same topics."""
        return len({each.topics for each in self.subscribers}) <= 1


Assignor = Callable[[AssignmentInput], dict[str, Partitions]]
"""Returns the partitions of each member. Every partition of a subscribed topic goes to one of its subscribers."""
