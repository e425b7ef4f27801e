"""Which parts of a group have changed since they were stored."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Changes:
    """The records to write: those of the group, and of the members and patterns named here.

    `is_upgrade` also deletes the record of the classic group that this one was. A record is made from the state at the
    time of writing, so a part that changes twice is written once. A failed write puts its changes back.
    """

    is_upgrade: bool = False
    epoch: bool = False
    target_epoch: bool = False
    metadata: set[str] = field(default_factory=set)
    targets: set[str] = field(default_factory=set)
    current: set[str] = field(default_factory=set)
    patterns: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(
            self.is_upgrade
            or self.epoch
            or self.target_epoch
            or self.metadata
            or self.targets
            or self.current
            or self.patterns
        )

    def put_back(self, other: Changes) -> None:
        self.is_upgrade |= other.is_upgrade
        self.epoch |= other.epoch
        self.target_epoch |= other.target_epoch
        self.metadata |= other.metadata
        self.targets |= other.targets
        self.current |= other.current
        self.patterns |= other.patterns
