"""The figures of a running demo. Collected through the public clients and from the results of the jobs."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as LibraryPartition

from skylog.client import Admin, Connection
from skylog.demo.layout import EVENTS, FEED, GROUPS, PAGES_TOPIC, SEARCH, Layout
from skylog.demo.rising_pages import RisingPage, RisingPages
from skylog.demo.topic_follower import TopicFollower
from skylog.model import TopicPartition

_RATE_OVER_S: Final = 8.0
_TOP: Final = 5
_TIMEOUT_S: Final = 5.0  # the summary should not stand still for longer


@dataclass(frozen=True)
class GroupProgress:
    """The progress of a group: processed events, events per second, and lag."""

    done: int
    per_s: float
    lag: int


@dataclass(frozen=True)
class Deliveries:
    """How many posts were delivered to readers, and the readers with the longest feeds."""

    count: int = 0
    readers: Sequence[tuple[str, int]] = ()


@dataclass(frozen=True)
class Suspicion:
    """A user or an address, with the failed logins of its worst window, and how many others they were for."""

    who: str
    failures: int
    others: int


@dataclass(frozen=True)
class Figures:
    """A snapshot of the demo. `groups` holds the groups that have committed offsets."""

    elapsed_s: float
    stored: int
    stored_per_s: float
    groups: Mapping[str, GroupProgress]
    visits: Sequence[tuple[str, int]]
    rising: Sequence[RisingPage]
    files: int
    unindexed: int = 0
    feed: Deliveries = field(default_factory=Deliveries)
    suspicions: Sequence[Suspicion] = ()

    @property
    def behind(self) -> dict[str, int]:
        """The lag of each group that has not caught up. A group without a commit lags by all events."""
        lags = {name: self.groups[name].lag if name in self.groups else self.stored for name in GROUPS}
        lags[SEARCH] = self.unindexed
        return {name: lag for name, lag in lags.items() if lag}


class CommittedOffsets:
    """Reads the committed offsets of one group, without joining it. While a broker is away, it finds the next one."""

    def __init__(self, connection: Connection, group: str) -> None:
        self._connection = connection
        self._group = group
        self._client = connection.consumer({"group.id": group, "enable.auto.commit": False})

    def close(self) -> None:
        self._client.close()

    def total(self, partitions: Sequence[TopicPartition]) -> int | None:
        """Return the sum of the committed offsets; None if nothing is committed. Raises SkylogError."""
        try:
            found = self._client.committed([LibraryPartition(*each) for each in partitions], timeout=_TIMEOUT_S)
        except KafkaException as error:
            raise self._connection.error(error, f"cannot read the offsets of group '{self._group}'") from error
        offsets = [each.offset for each in found if each.offset >= 0]
        return sum(offsets) if offsets else None


class Observer:
    """Collects figures repeatedly. Use it from one thread at a time."""

    def __init__(self, bootstrap: str, layout: Layout, login: Mapping[str, str] | None = None) -> None:
        """`login` is how to connect to the cluster."""
        self._layout = layout
        self._began = time.monotonic()
        connection = Connection(bootstrap, login, _TIMEOUT_S)
        self._admin = Admin(connection)
        self._groups = {name: CommittedOffsets(connection, name) for name in GROUPS}
        self._rising = RisingPages(connection)
        self._feed = TopicFollower(connection, FEED)
        self._readers: Counter[str] = Counter()
        self._partitions = self._admin.describe_topic(EVENTS).topic_partitions
        self._index = CommittedOffsets(connection, SEARCH)
        self._pages = self._admin.describe_topic(PAGES_TOPIC).topic_partitions
        self._history: deque[tuple[float, dict[str, int]]] = deque()

    def close(self) -> None:
        self._rising.close()
        self._index.close()
        self._feed.close()
        for group in self._groups.values():
            group.close()

    def collect(self) -> Figures:
        """Collect the current figures. Raises SkylogError if the cluster does not respond."""
        committed = {name: group.total(self._partitions) for name, group in self._groups.items()}
        done = {name: count for name, count in committed.items() if count is not None}
        indexed = self._index.total(self._pages) or 0
        # End offsets are requested last, so a group without lag has read everything stored before this call.
        stored = sum(offsets.end_offset for offsets in self._admin.offset_ranges(self._partitions).values())
        written = sum(offsets.end_offset for offsets in self._admin.offset_ranges(self._pages).values())
        per_s = self._rates({**done, EVENTS: stored})
        return Figures(
            elapsed_s=time.monotonic() - self._began,
            stored=stored,
            stored_per_s=per_s[EVENTS],
            groups={name: GroupProgress(count, per_s[name], stored - count) for name, count in done.items()},
            visits=self._top_organisations(),
            rising=self._rising.top(_TOP),
            files=sum(1 for _ in self._layout.table.glob("event_date=*/event_hour=*/*.parquet")),
            unindexed=written - indexed,
            feed=self._deliveries(),
            suspicions=self._suspicions(),
        )

    def _rates(self, counts: dict[str, int]) -> dict[str, float]:
        """Return rates over the last `_RATE_OVER_S`. Jobs work in batches, so a shorter time would mostly show zero."""
        now = time.monotonic()
        self._history.append((now, counts))
        while now - self._history[0][0] > _RATE_OVER_S:
            self._history.popleft()
        then, before = self._history[0]
        return {
            name: (count - before.get(name, 0)) / (now - then) if now > then else 0.0 for name, count in counts.items()
        }

    def _deliveries(self) -> Deliveries:
        self._readers.update((message.key or b"").decode() for message in self._feed.read())
        return Deliveries(self._readers.total(), self._readers.most_common(_TOP))

    def _top_organisations(self) -> list[tuple[str, int]]:
        rows = read_rows(
            self._layout.visits,
            "SELECT organisation, sum(visits) FROM visits GROUP BY organisation ORDER BY 2 DESC, 1 LIMIT ?",
            _TOP,
        )
        return [(str(name), int(visits)) for name, visits in rows]

    def _suspicions(self) -> list[Suspicion]:
        """Return the users and addresses with the most failed logins in a window."""
        rows = read_rows(
            self._layout.security,
            "SELECT kind || ' ' || who, max(failures), others FROM suspicious_logins "
            "GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT ?",
            _TOP,
        )
        return [Suspicion(str(who), int(failures), int(others)) for who, failures, others in rows]


def read_rows(database: Path, query: str, count: int) -> list[Any]:
    """Return the first rows of a result that a job writes; none if there is no result yet."""
    if not database.exists():
        return []
    connection = sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True, timeout=1.0)
    try:
        return connection.execute(query, (count,)).fetchall()
    except sqlite3.OperationalError:
        return []  # the table does not exist yet, or the job holds the lock for longer than the summary should wait
    finally:
        connection.close()
