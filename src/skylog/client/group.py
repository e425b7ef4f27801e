"""The description of a consumer group, and the plan of an offset reset."""

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
CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
_NAMED_MEMBERS: Final = 5


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A consumer in a group. `partitions` is its assignment; empty while a classic group rebalances.

    In the consumer protocol, `target` is the assignment that it moves towards, and `epoch` tells how far it is. Both
    are None in a classic group; `epoch` also where it cannot be read.
    """

    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    partitions: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...] | None = None
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """The progress of a group in one partition.

    `committed_offset` is None before the first commit, `offsets` is None if the partition is unavailable or deleted,
    `member` is None while no member reads it.
    """

    partition: TopicPartition
    committed_offset: int | None
    offsets: OffsetRange | None
    member: GroupMember | None

    @property
    def lag(self) -> int | None:
        """The number of offsets left to read: from the committed one or, if it is deleted, from the log's start."""
        if self.offsets is None:
            return None
        start_offset, end_offset = self.offsets.start_offset, self.offsets.end_offset
        return max(end_offset - max(self.committed_offset or 0, start_offset), 0)


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """A group with its members and its partitions, sorted by name.

    `state` is Kafka's name of the state; Dead for a group that does not exist. `protocol` is the assignor that the
    members agreed on, or None. `type` is classic or consumer. `epoch` and `target_epoch` are those of a consumer group
    and its target assignment, None where they are not read.
    """

    name: str
    state: str
    protocol: str | None
    members: tuple[GroupMember, ...]
    partitions: tuple[GroupPartition, ...]
    type: str = CLASSIC
    epoch: int | None = None
    target_epoch: int | None = None

    @property
    def exists(self) -> bool:
        return self.state != DEAD

    @property
    def lag(self) -> int:
        """The sum over all available partitions."""
        return sum(each.lag or 0 for each in self.partitions)

    def check_inactive(self) -> None:
        """Raise GroupActiveError if there are members."""
        if self.members:
            raise GroupActiveError(self)


class ResetTo(Enum):
    """The target of a reset. OFFSET, TIME (milliseconds since 1970) and SHIFT (a number of offsets) need a value."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIME = "time"
    SHIFT = "shift"


@dataclass(frozen=True, slots=True)
class OffsetMove:
    """The move from the committed offset, if any, to `wanted_offset`, limited to the offsets that the log holds."""

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
    """The moves of a reset, for the group as it was when the plan was made."""

    group: ConsumerGroup
    moves: tuple[OffsetMove, ...]


class GroupNotFoundError(KafkaError):
    """The cluster has no such group. `nearest` are existing groups with similar names."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.nearest = tuple(difflib.get_close_matches(name, list(known), n=3))
        hint = f"did you mean {' or '.join(self.nearest)}?" if self.nearest else "see: skylog groups list"
        super().__init__(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group '{name}'; {hint}")


class GroupActiveError(KafkaError):
    """The group cannot be changed because it has members."""

    def __init__(self, group: ConsumerGroup) -> None:
        names = [f"{member.client_id} at {member.host}" for member in group.members]
        if len(names) > _NAMED_MEMBERS:
            names[_NAMED_MEMBERS:] = [f"{len(names) - _NAMED_MEMBERS} more"]
        super().__init__(
            ErrorCode.NON_EMPTY_GROUP,
            f"group '{group.name}' has active members: {', '.join(names)}; stop them and try again "
            "(one that has crashed counts until its session times out)",
        )
