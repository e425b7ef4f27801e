"""The commit log of a table: what the table is, as numbered files. Nothing is in the table that no commit names.

`<version>.json` is a commit (see `commit`). It is written under another name, brought to disk, and then linked to its
own, which fails if there is one: a version is committed once, whole, or not at all. Every so often the sum of all
commits is written beside them as `<version>.state.json`, so that a long log is read quickly; commits from before the
last state but one are removed.
"""

from __future__ import annotations

import os
import re
import uuid
from pathlib import Path
from typing import Final

from skylog.spark.jobs.land.commit import Commit
from skylog.spark.jobs.land.errors import ConcurrentWriterError, TableError
from skylog.spark.jobs.land.files import sync, write_synced
from skylog.spark.jobs.land.state import TableState

STATE_EVERY: Final = 100
_NAME: Final = re.compile(r"(\d{20})\.(state\.)?json")
_TRIES: Final = 10


class CommitLog:
    """Reads and writes the log in `path`, the directory `log` of a table. One writer; any number of readers."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> TableState:
        """The newest state. Raises TableError for a log that has a gap or a broken file."""
        for _ in range(_TRIES):  # while this reads, a writer may add commits and remove old ones
            commits, states = self._versions()
            try:
                state = TableState.decode(self._state_path(states[-1]).read_bytes()) if states else TableState()
                for version in commits:
                    if version == state.version + 1:
                        state.apply(Commit.decode(self._commit_path(version).read_bytes()))
            except FileNotFoundError:
                continue
            except (KeyError, TypeError, ValueError) as error:
                raise TableError(f"{self.path}: a file of the commit log is broken ({error!r})") from error
            if state.version >= max(commits, default=0):
                return state
        raise TableError(f"{self.path}: version {state.version + 1} is missing in the commit log; restore that file")

    def append(self, commit: Commit) -> None:
        """Make the commit count. Raises ConcurrentWriterError if somebody else has committed this version."""
        path = self._commit_path(commit.version)
        draft = self.path / f".{uuid.uuid4().hex}"
        write_synced(draft, commit.encode())
        try:
            os.link(draft, path)
        except FileExistsError:
            raise ConcurrentWriterError(self.path.parent) from None
        finally:
            draft.unlink()
        sync(self.path)

    def write_state(self, state: TableState) -> None:
        """Shorten the log: all of it up to `state` is in one file from now on."""
        path = self._state_path(state.version)
        draft = self.path / f".{uuid.uuid4().hex}"
        write_synced(draft, state.encode())
        os.rename(draft, path)
        sync(self.path)
        commits, states = self._versions()
        before = states[-2] if len(states) > 1 else 0
        for version in commits:
            if version <= before:
                self._commit_path(version).unlink()
        for version in states[:-2]:
            self._state_path(version).unlink()

    def remove_drafts(self) -> None:
        """What a crash left; for the writer only."""
        for path in self.path.glob(".*"):
            path.unlink()

    def _versions(self) -> tuple[list[int], list[int]]:
        """Those of commits and those of states, in order."""
        found: tuple[list[int], list[int]] = [], []
        for name in os.listdir(self.path):
            match = _NAME.fullmatch(name)
            if match:
                found[match[2] is not None].append(int(match[1]))
        return sorted(found[0]), sorted(found[1])

    def _commit_path(self, version: int) -> Path:
        return self.path / f"{version:020d}.json"

    def _state_path(self, version: int) -> Path:
        return self.path / f"{version:020d}.state.json"
