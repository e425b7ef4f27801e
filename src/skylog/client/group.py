"""What a cluster tells of a consumer group, and what a reset of its offsets comes to."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from skylog.client.topic import OffsetRange
from skylog.errors import ErrorCode, KafkaError
from skylog.model import TopicPartition

DEAD: Final = "Dead"
_NAMED_MEMBERS: Final = 5


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A consumer in a group. `partitions` are those it was given; none while the group rebalances."""

    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """How far a group is in one partition.

    `committed_offset` is None before the first commit, `offsets` once the partition is gone, `member` while nobody
    reads it.
    """

    partition: TopicPartition
    committed_offset: int | None
    offsets: OffsetRange | None
    member: GroupMember | None

    @property
    def lag(self) -> int | None:
        """How many offsets are still to be read: from the commit or, where that is no more, from the log's start."""
        if self.offsets is None:
            return None
        start_offset, end_offset = self.offsets.start_offset, self.offsets.end_offset
        return max(end_offset - max(self.committed_offset or 0, start_offset), 0)


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """A group with its members and its partitions, in the order of their names.

    `state` is Kafka's name of it, Dead for a group that is not there. `protocol` is the assignor that the members
    agreed on, and None without one.
    """

    name: str
    state: str
    protocol: str | None
    members: tuple[GroupMember, ...]
    partitions: tuple[GroupPartition, ...]

    @property
    def exists(self) -> bool:
        return self.state != DEAD

    @property
    def lag(self) -> int:
        """Over all partitions that are there."""
        return sum(each.lag or 0 for each in self.partitions)

    def check_inactive(self) -> None:
        """Raise GroupActiveError if there are members."""
        if self.members:
            raise GroupActiveError(self)


class ResetTo(Enum):
    """What a group is moved to. OFFSET, TIME (milliseconds since 1970) and SHIFT (by so many) need a value."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIME = "time"
    SHIFT = "shift"


@dataclass(frozen=True, slots=True)
class OffsetMove:
    """A partition's way from the committed offset, if any, to the one that is `wanted`, as near as the log has it."""

    partition: TopicPartition
    from_offset: int | None
    wanted_offset: int
    offsets: OffsetRange

    @property
    def to_offset(self) -> int:
        return min(max(self.wanted_offset, self.offsets.start_offset), self.offsets.end_offset)

    @property
    def is_clamped(self) -> bool:
        return self.to_offset != self.wanted_offset


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """What a reset would do to a group as it was found."""

    group: ConsumerGroup
    moves: tuple[OffsetMove, ...]


class GroupNotFoundError(KafkaError):
    """A group that the cluster does not have. `nearest` are the names that it may have been meant to be."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.nearest = tuple(difflib.get_close_matches(name, list(known), n=3))
        hint = f"did you mean {' or '.join(self.nearest)}?" if self.nearest else "see: skylog groups list"
        super().__init__(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group '{name}'; {hint}")


class GroupActiveError(KafkaError):
    """A group that cannot be changed because it has members."""

    def __init__(self, group: ConsumerGroup) -> None:
        names = [f"{member.client_id} at {member.host}" for member in group.members]
        if len(names) > _NAMED_MEMBERS:
            names[_NAMED_MEMBERS:] = [f"{len(names) - _NAMED_MEMBERS} more"]
        super().__init__(
            ErrorCode.NON_EMPTY_GROUP,
            f"group '{group.name}' has active members: {', '.join(names)}; stop them and try again "
            "(one that has crashed counts until its session times out)",
        )
