"""What clients saw of a topic. `checks.py` has the rules that a history must obey, whatever has failed meanwhile.

Clients append to the lists of a `History`. The order of the lists is that of the answers; `tick` gives times that order
events across the lists.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple


class Value(NamedTuple):
    """The number that a producer gave a message."""

    producer: int
    number: int

    def encode(self, padding: bytes = b"") -> bytes:
        return b"%d %d " % self + padding

    @classmethod
    def decode(cls, data: bytes | None) -> Value:
        producer, number = (data or b"").split()[:2]
        return cls(int(producer), int(number))


UNKNOWN = -1
"""The offset of a message that a broker had stored already when it was sent again (DUPLICATE_SEQUENCE_NUMBER)."""


class Message(NamedTuple):
    """A value and where it is."""

    partition: int
    offset: int
    value: Value


class Commit(NamedTuple):
    """An offset commit that was acknowledged at the time `at`."""

    partition: int
    offset: int
    at: int


class Answer(NamedTuple):
    """An offset of a partition that a broker returned, with its metadata if it was committed with any."""

    partition: int
    offset: int
    metadata: str | None = None


def metadata_of(offset: int) -> str:
    """The metadata that a member commits together with an offset."""
    return f"at {offset}"


@dataclass
class Assignment:
    """One partition in the hands of one member, since the time `at`, with the isolation level of its reads."""

    member: str
    partition: int
    at: int
    read_committed: bool = False
    messages: list[Message] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    """When each message was read, where that matters."""


class Outcome(Enum):
    """How a transaction ended, as far as its producer knows."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass
class Transaction:
    """The values of a transaction, and when its producer asked to commit it; 0 if it never has."""

    name: str
    values: list[tuple[int, Value]] = field(default_factory=list)
    """Partitions and values."""
    outcome: Outcome = Outcome.OPEN
    commit_asked_at: int = 0


Log = Mapping[int, Value]
"""The values of a partition by offset, in ascending order. Compaction and markers leave gaps."""


class History:
    """Everything that the clients of one topic saw. `tick` gives the times that order events."""

    def __init__(self) -> None:
        self._clock = itertools.count(1)
        self.acknowledged: list[Message] = []
        self.failed: list[str] = []
        self.assignments: list[Assignment] = []
        self.commits: list[Commit] = []
        self.given_up: set[tuple[int, int]] = set()
        """Partitions and offsets of commits that got no answer in time. A broker may get the request at any time later.

        If the member has committed more meanwhile, the committed offset goes back then. The broker cannot know that.
        """
        self.committed: list[Answer] = []
        """Committed offsets of the group, in the order of the answers."""
        self.watermarks: list[Answer] = []
        """High watermarks, in the order of the answers."""
        self.transactions: list[Transaction] = []

    def tick(self) -> int:
        return next(self._clock)

    def assign(self, member: str, partition: int, *, read_committed: bool = False) -> Assignment:
        assignment = Assignment(member, partition, self.tick(), read_committed)
        self.assignments.append(assignment)
        return assignment
