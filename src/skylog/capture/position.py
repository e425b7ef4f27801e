"""How far a capture is: stored in the log, in the same transaction as the records that it covers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import orjson

from skylog.errors import SkylogError


class PositionError(SkylogError):
    """A record in the topic of positions that is not a position."""


class Part(NamedTuple):
    """A transaction of which only the first `messages` changes are in the log; by the place of its commit record."""

    commit_lsn: int
    messages: int


class Progress(NamedTuple):
    """The snapshot of a table: all rows up to the key `after` are in the log, none if it is None.

    The snapshot is of the table `oid` with the primary key `key`, whose columns have the types `key_types`, and has
    everything that was committed before `since`. It is in the topic with the id `topic_id`, which is empty in positions
    of earlier versions.
    """

    is_done: bool = False
    after: tuple[str, ...] | None = None
    is_begun: bool = False
    oid: int = 0
    key: tuple[str, ...] = ()
    key_types: tuple[int, ...] = ()
    since: int = 0
    topic_id: str = ""


@dataclass(frozen=True, slots=True)
class Position:
    """Everything that was committed before `lsn` is in the log, then `part` of the next transaction."""

    system: str
    lsn: int
    part: Part | None = None
    tables: Mapping[str, Progress] = field(default_factory=dict)

    def encode(self) -> bytes:
        return orjson.dumps(
            {
                "version": 1,
                "system": self.system,
                "lsn": self.lsn,
                "part": None if self.part is None else self.part._asdict(),
                "tables": {name: progress._asdict() for name, progress in self.tables.items()},
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> Position:
        """Parse a position. Raises PositionError."""
        try:
            fields = orjson.loads(data)
            if fields["version"] != 1:
                raise PositionError("the position of this capture was written by a later version of skylog: update it")
            part = fields["part"]
            return cls(
                fields["system"],
                int(fields["lsn"]),
                None if part is None else Part(int(part["commit_lsn"]), int(part["messages"])),
                {name: _progress(**progress) for name, progress in fields["tables"].items()},
            )
        except (KeyError, TypeError, ValueError) as error:
            raise PositionError(f"not a position of a capture: {error!r}") from error

    @property
    def next_table(self) -> str | None:
        """The table whose snapshot is to be continued; None if all are complete."""
        return next((name for name, progress in self.tables.items() if not progress.is_done), None)


def _progress(
    is_done: bool,
    after: list[str] | None,
    is_begun: bool,
    oid: int,
    key: list[str],
    key_types: list[int],
    since: int,
    topic_id: str = "",
) -> Progress:
    place = None if after is None else tuple(after)
    return Progress(
        bool(is_done), place, bool(is_begun), int(oid), tuple(key), tuple(key_types), int(since), str(topic_id)
    )
