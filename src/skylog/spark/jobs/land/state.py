"""What a table is after a number of commits: its files, its offsets, its columns. Opens nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from skylog.spark.jobs.land.commit import Commit, DataFile, Landed, Side


@dataclass(slots=True)
class Unreported:
    """Counts of a commit that are not known to be in the audit topic."""

    version: int
    time_ms: int
    landed: list[Landed]

    def to_json(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "time_ms": self.time_ms,
            "landed": [part.to_json() for part in self.landed],
        }


@dataclass(slots=True)
class TableState:
    """Commits up to `version`, added up. Files are kept by directory, since that is what readers list.

    `removed` are files that a merge has replaced, with the time of that: they are still there for readers that were
    given them before. `columns` are all that ever were, by name, with their types.
    """

    version: int = 0
    table_id: str = ""
    topic: str = ""
    reported_version: int = 0
    directories: dict[str, dict[str, DataFile]] = field(default_factory=dict)
    removed: dict[str, int] = field(default_factory=dict)
    end_offsets: dict[int, int] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)
    unreported: list[Unreported] = field(default_factory=list)

    def apply(self, commit: Commit) -> None:
        """The commits must come in the order of their versions, without a gap."""
        assert commit.version == self.version + 1, (commit.version, self.version)
        self.version, self.table_id, self.topic = commit.version, commit.table_id, commit.topic
        for path in commit.removed:
            directory, _, name = path.rpartition("/")
            del self.directories[directory][name]
            self.removed[path] = commit.time_ms
        for file in commit.added:
            self.directories.setdefault(file.directory, {})[file.name] = file
        self.end_offsets.update(commit.end_offsets)
        self.columns.update(commit.columns)
        self.reported_version = max(self.reported_version, commit.reported_version)
        self.unreported = [each for each in self.unreported if each.version > self.reported_version]
        if commit.landed:
            self.unreported.append(Unreported(commit.version, commit.time_ms, list(commit.landed)))

    def files(self, side: Side) -> Iterator[DataFile]:
        for files in self.directories.values():
            for file in files.values():
                if file.side is side:
                    yield file

    def bytes_per_row(self) -> float | None:
        """Of the events so far; None before the first."""
        rows = size_bytes = 0
        for file in self.files(Side.EVENTS):
            rows += file.rows
            size_bytes += file.size_bytes
        return size_bytes / rows if rows else None

    def encode(self) -> bytes:
        files = [file.to_json() for files in self.directories.values() for file in files.values()]
        return orjson.dumps(
            {
                "version": self.version,
                "table_id": self.table_id,
                "topic": self.topic,
                "reported_version": self.reported_version,
                "files": files,
                "removed": self.removed,
                "end_offsets": {str(number): offset for number, offset in self.end_offsets.items()},
                "columns": self.columns,
                "unreported": [each.to_json() for each in self.unreported],
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> TableState:
        """Raises KeyError, TypeError and ValueError for what is no state."""
        found = orjson.loads(data)
        state = cls(
            version=found["version"],
            table_id=found["table_id"],
            topic=found["topic"],
            reported_version=found["reported_version"],
            removed=found["removed"],
            end_offsets={int(number): offset for number, offset in found["end_offsets"].items()},
            columns=found["columns"],
            unreported=[
                Unreported(each["version"], each["time_ms"], [Landed.from_json(part) for part in each["landed"]])
                for each in found["unreported"]
            ],
        )
        for row in found["files"]:
            file = DataFile(*row)
            state.directories.setdefault(file.directory, {})[file.name] = file
        return state
