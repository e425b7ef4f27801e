"""The store interface for cluster metadata: a tree of versioned JSON values, changed by compare-and-set.

Both ZooKeeper and a single file can implement it. A broker has one session with the store. The changes of a commit are
applied together or not at all, each on the condition that its entry still has the version that was read. Ephemeral
entries exist until the session that created them ends. Watchers of a prefix are called after every change below it.

A path begins with '/'. An entry has no entries below it: /topics/a excludes an entry at /topics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from skylog.errors import SkylogError

Value = dict[str, Any]


class Entry(NamedTuple):
    value: Value
    version: int


class EntryChange(NamedTuple):
    """Put `value` at `path`, or delete the entry (None), if it has `expected_version`; 0: it must not exist.

    `ephemeral` applies to new entries; changing an entry does not change its owner. To take over the ephemeral entry of
    another session, delete it and put it again in one commit.
    """

    path: str
    value: Value | None
    expected_version: int
    ephemeral: bool = False


class VersionCheck(NamedTuple):
    """Make a commit fail unless the entry at `path` has `expected_version`."""

    path: str
    expected_version: int


Operation = EntryChange | VersionCheck
Watcher = Callable[[Mapping[str, Entry | None]], None]
"""Called on the event loop with the changed entries by path, None for a deleted one. Must not raise."""


class VersionConflictError(SkylogError):
    """Another session changed the entry first."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} was changed by another session")
        self.path = path


class SessionExpiredError(SkylogError):
    """The session has ended, and its ephemeral entries are deleted. Open another session."""


class UnknownOutcomeError(SessionExpiredError):
    """The session ended during a commit. The commit may have been applied, or may still be."""


class MetadataStore(Protocol):
    """One session with the store. All methods raise SessionExpiredError after it has ended."""

    @property
    def max_commit_bytes(self) -> int | None:
        """The size of the largest commit, None if there is no limit. A larger one raises INVALID_REQUEST."""

    @property
    def is_shared(self) -> bool:
        """Whether several brokers have sessions with the store."""

    async def load(self, prefix: str) -> dict[str, Entry]:
        """Return the entries whose path starts with `prefix`."""

    async def commit(self, operations: Sequence[Operation]) -> None:
        """Apply all operations, in this order and durably, or none of them and raise VersionConflictError.

        Raises UnknownOutcomeError if the session ends before the store has answered.
        """

    async def watch(self, prefix: str, watcher: Watcher) -> None:
        """Call `watcher` now with the current entries below `prefix`, and later with every change.

        A watcher may miss a state that is soon replaced, but never the latest one. It gets the changes of a path in the
        order of commits.
        """

    def on_expiry(self, listener: Callable[[], None]) -> None:
        """Call `listener` on the event loop when the session ends without `close`."""

    async def close(self) -> None:
        """End the session and delete its ephemeral entries."""
