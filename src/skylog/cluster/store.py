"""Where a cluster's metadata is kept: a tree of versioned JSON values, changed by compare-and-set.

The interface is what ZooKeeper can do and one file can do too: several changes at once or none, each on the condition
that its entry still has the version that was read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from skylog.errors import SkylogError

Value = dict[str, Any]


class Entry(NamedTuple):
    value: Value
    version: int


class Change(NamedTuple):
    """Put `value` at `path`, or delete it (None), if it has `expected_version`: 0 is an entry that must not exist."""

    path: str
    value: Value | None
    expected_version: int


class VersionConflictError(SkylogError):
    """Somebody else changed the entry first."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} was changed by somebody else")
        self.path = path


class MetadataStore(Protocol):
    """The one place that holds the truth about the cluster."""

    async def load(self, prefix: str) -> dict[str, Entry]:
        """The entries whose path starts with `prefix`."""

    async def commit(self, changes: Sequence[Change]) -> None:
        """Make all changes durable, or none and raise VersionConflictError."""

    async def close(self) -> None: ...
