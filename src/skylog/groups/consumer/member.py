"""A member of a consumer group, and the heartbeat with which it joins, reports and leaves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from skylog.groups.consumer.partitions import NONE, Partitions, union
from skylog.groups.member import Protocols

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2
"""Sent by a static member that will return, and the epoch of that member until it does."""


class MemberState(IntEnum):
    """The values are those that Kafka stores."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2


class Heartbeat(NamedTuple):
    """A heartbeat. None, or -1 as timeout, means that the value has not changed."""

    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topic_names: frozenset[str] | None = None
    pattern: str | None = None
    assignor: str | None = None
    owned: Partitions | None = None
    client_id: str = ""
    client_host: str = ""

    @property
    def is_full(self) -> bool:
        """Whether it has all fields, as a member sends them when it joins and after an error."""
        has_subscription = self.topic_names is not None or self.pattern is not None
        return self.epoch == JOIN_EPOCH or (
            self.rebalance_timeout_ms != -1 and has_subscription and self.owned is not None
        )


class HeartbeatResponse(NamedTuple):
    """`assigned` is None if the assignment has not changed."""

    member_id: str
    epoch: int
    assigned: Partitions | None = None


@dataclass(frozen=True, slots=True)
class ClassicProtocols:
    """What a member that uses the classic protocol has joined with."""

    session_timeout_ms: int
    protocols: Protocols

    def supports(self) -> set[str]:
        return {name for name, _ in self.protocols}


class Metadata(NamedTuple):
    """What a member says about itself: stored as one record. An empty `pattern` subscribes to nothing."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: frozenset[str]
    pattern: str
    rebalance_timeout_ms: int
    assignor: str | None
    classic: ClassicProtocols | None = None

    @property
    def subscription(self) -> tuple[frozenset[str], str]:
        return self.topic_names, self.pattern

    def updated(self, heartbeat: Heartbeat) -> Metadata:
        """Return the metadata after a heartbeat of the consumer protocol."""
        timeout_ms = heartbeat.rebalance_timeout_ms
        return Metadata(
            self.instance_id if heartbeat.instance_id is None else heartbeat.instance_id,
            self.rack_id if heartbeat.rack_id is None else heartbeat.rack_id,
            heartbeat.client_id,
            heartbeat.client_host,
            self.topic_names if heartbeat.topic_names is None else heartbeat.topic_names,
            self.pattern if heartbeat.pattern is None else heartbeat.pattern,
            self.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
            self.assignor if heartbeat.assignor is None else heartbeat.assignor,
        )


NO_METADATA: Final = Metadata(None, None, "", "", frozenset(), "", -1, None)


class Current(NamedTuple):
    """The progress of a member towards the target assignment: stored as one record.

    The member may read the `assigned` partitions, and must give up the `revoking` ones. It owns both. A heartbeat with
    `previous_epoch` is accepted, because the response with the new one may have been lost.
    """

    epoch: int
    previous_epoch: int
    state: MemberState
    assigned: Partitions
    revoking: Partitions

    @property
    def owned(self) -> Partitions:
        return union(self.assigned, self.revoking)

    def moved(self, epoch: int, state: MemberState, assigned: Partitions, revoking: Partitions = NONE) -> Current:
        previous_epoch = self.epoch if epoch != self.epoch else self.previous_epoch
        return Current(epoch, previous_epoch, state, assigned, revoking)


NEW: Final = Current(JOIN_EPOCH, -1, MemberState.STABLE, NONE, NONE)


@dataclass(slots=True)
class ConsumerMember:
    """A member. Times are those of the group's clock; None means that nothing is awaited.

    `revokes_until_ms` limits how long partitions may stay unrevoked; `joins_until_ms` and `syncs_until_ms` limit the
    next step of a member that uses the classic protocol. `answering` is the number of its responses that are being
    stored. Meanwhile it does not time out.
    """

    member_id: str
    metadata: Metadata = NO_METADATA
    current: Current = NEW
    expires_at_ms: int = 0
    revokes_until_ms: int | None = None
    joins_until_ms: int | None = None
    syncs_until_ms: int | None = None
    answering: int = 0

    @property
    def classic(self) -> ClassicProtocols | None:
        return self.metadata.classic

    @property
    def has_left(self) -> bool:
        """Whether it is a static member that will return."""
        return self.current.epoch == LEAVE_STATIC_EPOCH

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.current.state is MemberState.STABLE and self.current.epoch == epoch

    def deadlines_ms(self) -> Iterable[int]:
        yield self.expires_at_ms
        for deadline_ms in (self.revokes_until_ms, self.joins_until_ms, self.syncs_until_ms):
            if deadline_ms is not None:
                yield deadline_ms
