"""The seven levels of compatibility, and the check of a new schema against earlier ones."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from skylog.schemas.compatibility import DIFFERENT_TYPE, incompatibilities
from skylog.schemas.schema import Schema


class CompatibilityLevel(StrEnum):
    """What a new schema must allow: to read earlier data (BACKWARD), to be read by earlier schemas (FORWARD), both."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def is_transitive(self) -> bool:
        """Whether all earlier schemas count, not only the latest."""
        return self.endswith("_TRANSITIVE")

    @property
    def is_backward(self) -> bool:
        """Whether the new schema must read data of earlier ones."""
        return self.startswith(("BACKWARD", "FULL"))

    @property
    def is_forward(self) -> bool:
        """Whether earlier schemas must read data of the new one."""
        return self.startswith(("FORWARD", "FULL"))


def check(level: CompatibilityLevel, new: Schema, earlier: Sequence[Schema]) -> list[str]:
    """Why `new` may not follow `earlier` (oldest first); empty if it may."""
    found = first_conflict(level, new, earlier)
    return [] if found is None else found[1]


def first_conflict(level: CompatibilityLevel, new: Schema, earlier: Sequence[Schema]) -> tuple[int, list[str]] | None:
    """The last of `earlier` (oldest first) that `new` conflicts with: its index, and why. None if there is none."""
    if level is CompatibilityLevel.NONE:
        return None
    first = 0 if level.is_transitive else max(len(earlier) - 1, 0)
    for index in range(len(earlier) - 1, first - 1, -1):
        problems = _conflicts(level, new, earlier[index])
        if problems:
            return index, problems
    return None


def _conflicts(level: CompatibilityLevel, new: Schema, old: Schema) -> list[str]:
    if new.kind is not old.kind:
        return [DIFFERENT_TYPE]
    problems = []
    if level.is_forward:
        problems += incompatibilities(old, new, reader_is="old", writer_is="new")
    if level.is_backward:
        problems += incompatibilities(new, old, reader_is="new", writer_is="old")
    return problems
