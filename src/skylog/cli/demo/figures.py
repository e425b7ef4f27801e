"""What the demonstration does, in numbers: asked of the cluster and of the jobs' results, as anybody could ask."""

from __future__ import annotations

import sqlite3
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from skylog.cli.demo.places import EVENTS, GROUPS, Places
from skylog.cli.demo.rising_pages import RisingPage, RisingPages
from skylog.client import Admin, Connection, ConsumerGroups

_RATE_OVER_S: Final = 8.0
_TOP: Final = 5


@dataclass(frozen=True)
class Reader:
    """A group: how many events it is done with, how many more per second, how many it is behind."""

    done: int
    per_s: float
    lag: int


@dataclass(frozen=True)
class Figures:
    """One moment of the demonstration. `readers` has the groups that have committed something."""

    elapsed_s: float
    stored: int
    stored_per_s: float
    readers: Mapping[str, Reader]
    visits: Sequence[tuple[str, int]]
    rising: Sequence[RisingPage]
    files: int

    @property
    def behind(self) -> dict[str, int]:
        """The groups that have not read all there is, and how much they lack."""
        lags = {name: self.readers[name].lag if name in self.readers else self.stored for name in GROUPS}
        return {name: lag for name, lag in lags.items() if lag}


class Observer:
    """Looks, again and again; one thread at a time. Raises SkylogError if the cluster cannot be asked."""

    def __init__(self, bootstrap: str, places: Places) -> None:
        self._places = places
        self._began = time.monotonic()
        connection = Connection(bootstrap)
        self._admin = Admin(connection)
        self._groups = ConsumerGroups(connection)
        self._rising = RisingPages(connection)
        self._partitions = self._admin.describe_topic(EVENTS).topic_partitions
        self._history: deque[tuple[float, dict[str, int]]] = deque()

    def close(self) -> None:
        self._rising.close()

    def look(self) -> Figures:
        """The figures of now."""
        done = {
            group.name: sum(each.committed_offset or 0 for each in group.partitions if each.partition.topic == EVENTS)
            for group in self._groups.list_groups()
            if group.name in GROUPS and any(each.committed_offset is not None for each in group.partitions)
        }
        # The ends are asked for last: whoever has no lag against them has read everything that was there before.
        stored = sum(offsets.end_offset for offsets in self._admin.offset_ranges(self._partitions).values())
        per_s = self._rates({**done, EVENTS: stored})
        return Figures(
            elapsed_s=time.monotonic() - self._began,
            stored=stored,
            stored_per_s=per_s[EVENTS],
            readers={name: Reader(count, per_s[name], stored - count) for name, count in done.items()},
            visits=self._top_organisations(),
            rising=self._rising.top(_TOP),
            files=sum(1 for _ in self._places.table.glob("event_date=*/event_hour=*/*.parquet")),
        )

    def _rates(self, counts: dict[str, int]) -> dict[str, float]:
        """Per second, over the last seconds; jobs work in batches, so a shorter time would show little but zero."""
        now = time.monotonic()
        self._history.append((now, counts))
        while now - self._history[0][0] > _RATE_OVER_S:
            self._history.popleft()
        then, before = self._history[0]
        return {
            name: (count - before.get(name, 0)) / (now - then) if now > then else 0.0 for name, count in counts.items()
        }

    def _top_organisations(self) -> list[tuple[str, int]]:
        if not self._places.visits.exists():
            return []
        connection = sqlite3.connect(f"{self._places.visits.absolute().as_uri()}?mode=ro", uri=True, timeout=1.0)
        try:
            rows = connection.execute(
                "SELECT organisation, sum(visits) FROM visits GROUP BY organisation ORDER BY 2 DESC, 1 LIMIT ?", (_TOP,)
            )
            return [(str(name), int(visits)) for name, visits in rows]
        except sqlite3.OperationalError:
            return []  # the job is about to make the table, or holds the lock for longer than a summary should wait
        finally:
            connection.close()
