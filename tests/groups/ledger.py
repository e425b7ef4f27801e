"""Collects the events that the members of a group report, and checks them.

A member owns a partition from the call of its on_assign to that of its on_revoke or on_lost. One that was killed owns
nothing from then on; one that was frozen for longer than its session owns nothing from the freezing on, though it
learns of that only when it thaws: until then it is a zombie, and its commits must be refused. So does one that waits
for a commit for so long.
"""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

UNKNOWN_MEMBER_ID = 25
SLOW_SECONDS = 5.0
"""How long a commit may take before its member counts as frozen: it cannot hear of anything meanwhile."""


@dataclass
class Holding:
    """One member's ownership of one partition; `until` is None while it lasts."""

    member: str
    partition: int
    since: float
    until: float | None = None


@dataclass
class Reading:
    began: int
    end: int


@dataclass
class Ledger:
    """Filled by the threads that read the members' output, read by the test's thread."""

    partitions: int
    history: list[Holding] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    commits: list[tuple[float, str, int, int]] = field(default_factory=list)
    refused: list[tuple[float, str, int]] = field(default_factory=list)
    read: dict[int, list[Reading]] = field(default_factory=lambda: defaultdict(list))
    thrown_out: set[str] = field(default_factory=set)
    slow: list[tuple[str, float, float, int]] = field(default_factory=list)
    rebalances: int = 0

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[tuple[str, int], Holding] = {}
        self._began: dict[tuple[str, int], int] = {}
        self._gone_at: dict[str, float] = {}

    def note(self, event: dict[str, Any]) -> None:
        member, at = event["member"], event["at"]
        with self._lock:
            match event["event"]:
                case "assign":
                    self.rebalances += 1
                    for partition in event["partitions"]:
                        holding = Holding(member, partition, at)
                        self.history.append(holding)
                        if at > self._gone_at.get(member, -1.0):
                            self._held[member, partition] = holding
                        else:  # heard of late, from a process that was killed or frozen meanwhile
                            holding.until = self._gone_at[member]
                        self._began.pop((member, partition), None)
                case "revoke" | "lost":
                    for partition in event["partitions"]:
                        self._end(member, partition, at)
                case "began":
                    self._began.setdefault((member, event["partition"]), event["offset"])
                case "read":
                    for text, end in event["ends"].items():
                        began = self._began.pop((member, int(text)), None)
                        if began is not None:
                            self.read[int(text)].append(Reading(began, end))
                case "commit":
                    self.commits += [(event["began"], member, int(text), end) for text, end in event["ends"].items()]
                case "refused":
                    self.refused.append((event["began"], member, event["code"]))
                    if at - event["began"] > SLOW_SECONDS:
                        self.slow.append((member, event["began"], at, event["code"]))
                case "skipped":
                    self.errors.append(f"{member} skipped: {event}")

    def _end(self, member: str, partition: int, at: float) -> None:
        holding = self._held.pop((member, partition), None)
        if holding is not None:
            holding.until = at

    def gone(self, members: set[str], at: float) -> None:
        """Members were killed, or frozen for so long that the group has removed them."""
        with self._lock:
            self.thrown_out |= members
            self._gone_at.update(dict.fromkeys(members, at))
            for member, partition in [key for key in self._held if key[0] in members]:
                self._end(member, partition, at)

    def missing(self) -> list[int]:
        """Partitions without an owner now."""
        with self._lock:
            owned = {partition for _, partition in self._held}
        return [partition for partition in range(self.partitions) if partition not in owned]

    # -- checks at the end

    def disowned(self) -> set[str]:
        """Members that the group has removed although nothing had happened to them."""
        return {member for _, member, code in self.refused if code == UNKNOWN_MEMBER_ID} - self.thrown_out

    def overlaps(self) -> list[str]:
        """Partitions that had two owners at once."""
        found = []
        by_partition: dict[int, list[Holding]] = defaultdict(list)
        for holding in self.history:
            by_partition[holding.partition].append(holding)
        for holdings in by_partition.values():
            holdings.sort(key=lambda each: each.since)
            for one, other in itertools.pairwise(holdings):
                if (one.until is None or one.until > other.since) and not self._was_blocked(one.member, other.since):
                    found.append(f"{one} and {other}")
        return found

    def _was_blocked(self, member: str, at: float) -> bool:
        """Whether a member was waiting for a commit, since long before a time. The commit was refused in the end.

        The thread that waits also runs the callbacks, so it learns only afterwards that the group has removed it. That
        happens if the broker is killed under a commit, and takes long to come back on a busy machine.
        """
        return any(each == member and began + SLOW_SECONDS < at <= end for each, began, end, _ in self.slow)

    def commits_of_strangers(self) -> list[str]:
        """Accepted commits of partitions that the member did not own when it began to commit."""
        by_key: dict[tuple[str, int], list[Holding]] = defaultdict(list)
        for holding in self.history:
            by_key[holding.member, holding.partition].append(holding)
        return [
            f"{member} committed {end} in {partition} at {at}, among {self._owners(partition, at)}"
            for at, member, partition, end in self.commits
            if not any(
                each.since <= at and (each.until is None or at <= each.until) for each in by_key[member, partition]
            )
        ]

    def _owners(self, partition: int, at: float) -> list[Holding]:
        """The owners of a partition around a time, for a message."""
        near = [each for each in self.history if each.partition == partition and abs(each.since - at) < 30]
        return sorted(near, key=lambda each: each.since)

    def unread(self, ends: dict[int, int]) -> list[str]:
        """Offsets below `ends` that no member has read."""
        found = []
        for partition, end in ends.items():
            position = 0
            for reading in sorted(self.read[partition], key=lambda each: each.began):
                if reading.began > position:
                    found.append(f"{partition}: {position} to {reading.began}")
                position = max(position, reading.end)
            if position < end:
                found.append(f"{partition}: {position} to the end at {end}")
        return found
