"""One step in the life of a table, and its form as a file of the commit log. Data only; opens nothing.

{"version": 7, "time_ms": 1720791474868, "table_id": "5f0c…", "topic": "page_views",
 "added": [["events/event_date=2026-03-01/event_hour=12/00000000000000000007-0-3fa90c1e.parquet",
            1200, 80413, 1720791474868]],
 "removed": [],
 "end_offsets": {"0": 700, "1": 500},
 "landed": [{"partition": 0, "start_offset": 0, "end_offset": 700, "counts": [[…, …, 700, 91200]]}, …],
 "columns": {"id": "string", …},
 "reported_version": 6}

A file that is added stands with its rows, its bytes and the time at which its newest rows landed. A merge adds and
removes files, and has no end offsets: those of the commit before it stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import orjson

from skylog.audit import Count


class Side(StrEnum):
    """The two tables that a topic lands in: what parses, and what does not."""

    EVENTS = "events"
    UNPARSED = "unparsed"


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of a table; `path` is side, date, hour and name, below the directory of all files."""

    path: str
    rows: int
    size_bytes: int
    landed_ms: int

    @property
    def directory(self) -> str:
        return self.path.rpartition("/")[0]

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def side(self) -> Side:
        return Side(self.path.partition("/")[0])

    def to_json(self) -> list[Any]:
        return [self.path, self.rows, self.size_bytes, self.landed_ms]


@dataclass(frozen=True, slots=True)
class Landed:
    """What a commit has of one partition: offsets from `start_offset` up to but without `end_offset`, counted."""

    partition: int
    start_offset: int
    end_offset: int
    counts: Sequence[Count]

    def to_json(self) -> dict[str, Any]:
        counts = [[row.start_ms, row.end_ms, row.messages, row.size_bytes] for row in self.counts]
        return {
            "partition": self.partition,
            "start_offset": self.start_offset,
            "end_offset": self.end_offset,
            "counts": counts,
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Landed:
        counts = [Count(*row) for row in found["counts"]]
        return cls(found["partition"], found["start_offset"], found["end_offset"], counts)


@dataclass(frozen=True, slots=True)
class Commit:
    """See above. `reported_version` is the last commit whose counts are known to be in the audit topic."""

    version: int
    time_ms: int
    table_id: str
    topic: str
    reported_version: int
    added: Sequence[DataFile] = ()
    removed: Sequence[str] = ()
    end_offsets: Mapping[int, int] = field(default_factory=dict)
    landed: Sequence[Landed] = ()
    columns: Mapping[str, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        return orjson.dumps(
            {
                "version": self.version,
                "time_ms": self.time_ms,
                "table_id": self.table_id,
                "topic": self.topic,
                "added": [file.to_json() for file in self.added],
                "removed": list(self.removed),
                "end_offsets": {str(number): offset for number, offset in self.end_offsets.items()},
                "landed": [part.to_json() for part in self.landed],
                "columns": dict(self.columns),
                "reported_version": self.reported_version,
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> Commit:
        """Raises KeyError, TypeError and ValueError for what is no commit."""
        found = orjson.loads(data)
        return cls(
            version=found["version"],
            time_ms=found["time_ms"],
            table_id=found["table_id"],
            topic=found["topic"],
            reported_version=found["reported_version"],
            added=[DataFile(*row) for row in found["added"]],
            removed=found["removed"],
            end_offsets={int(number): offset for number, offset in found["end_offsets"].items()},
            landed=[Landed.from_json(part) for part in found["landed"]],
            columns=found["columns"],
        )
