"""The demo's failure: kills the leader of a partition in the middle of the run, and follows what the cluster does."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Event, Lock, Thread
from typing import Final, Protocol

from skylog.client import Admin, Connection, Partition
from skylog.demo.layout import EVENTS
from skylog.errors import SkylogError

_POLL_S: Final = 0.25
_TIMEOUT_S: Final = 5.0
_NOBODY: Final = -1


@dataclass(frozen=True)
class ClusterView:
    """The partitions of the events' topic as of now, and what has happened so far, each line with its time."""

    partitions: Sequence[Partition] = ()
    happenings: Sequence[str] = ()

    @property
    def is_whole(self) -> bool:
        """Whether every partition has a leader and all its replicas are in sync."""
        return all(
            each.leader != _NOBODY and set(each.in_sync_replicas) == set(each.replicas) for each in self.partitions
        )


ShowCluster = Callable[[ClusterView], None]


class KillableCluster(Protocol):
    """The methods of a cluster that are needed here."""

    @property
    def bootstrap(self) -> str: ...
    def kill_broker(self, node_id: int) -> None: ...
    def is_running(self, node_id: int) -> bool: ...


class Failover:
    """Watches the cluster in a thread from `start` to `stop`, and kills a leader once, `after_s` after `begin`.

    Any thread may call `note`.
    """

    def __init__(self, after_s: float) -> None:
        self.view = ClusterView()
        self._after_s = after_s
        self._began_s: float | None = None
        self._cluster: KillableCluster | None = None
        self._victim: int | None = None
        self._show: ShowCluster | None = None
        self._lock = Lock()
        self._stopping = Event()
        self._thread: Thread | None = None

    def start(self, cluster: KillableCluster, login: Mapping[str, str] | None = None) -> None:
        """`login` is how to connect to the cluster."""
        self._cluster = cluster
        self._thread = Thread(target=self._run, args=[cluster, login or {}], name="failover", daemon=True)
        self._thread.start()

    def begin(self, show: ShowCluster) -> None:
        """Begin to count the time, and show the cluster whenever it changes."""
        self._show = show
        self._began_s = time.monotonic()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    @property
    def is_over(self) -> bool:
        """Whether no broker is away: none was killed yet, or it is back and in sync."""
        if self._victim is None or self._cluster is None:
            return True
        return self._cluster.is_running(self._victim) and self.view.is_whole

    def note(self, happening: str) -> None:
        """Add a line about what happens. Before `begin`, nothing is noted."""
        if self._began_s is None:
            return
        line = f"{time.monotonic() - self._began_s:4.0f} s  {happening}"
        with self._lock:
            self.view = replace(self.view, happenings=[*self.view.happenings, line])
        self._display()

    def _display(self) -> None:
        if self._show is not None:
            self._show(self.view)

    def _run(self, cluster: KillableCluster, login: Mapping[str, str]) -> None:
        admin = Admin(Connection(cluster.bootstrap, login, _TIMEOUT_S))
        while not self._stopping.wait(_POLL_S):
            try:
                found = admin.describe_topic(EVENTS).partitions
            except SkylogError:
                continue  # no broker answers now
            self._compare(found)
            if self._victim is None and self._is_due:
                self._kill(cluster, found)

    @property
    def _is_due(self) -> bool:
        return self._began_s is not None and time.monotonic() >= self._began_s + self._after_s

    def _compare(self, partitions: Sequence[Partition]) -> None:
        before = self.view.partitions
        if partitions == before:
            return
        with self._lock:
            self.view = replace(self.view, partitions=partitions)
        for old, new in zip(before, partitions, strict=False):
            if change := describe_change(old, new):
                self.note(change)
        self._display()

    def _kill(self, cluster: KillableCluster, partitions: Sequence[Partition]) -> None:
        victim = next((each for each in partitions if each.leader != _NOBODY), None)
        if victim is not None:
            self._victim = victim.leader
            self.note(f"kill -9 of broker {victim.leader}, the leader of {EVENTS}-{victim.index}")
            cluster.kill_broker(victim.leader)


def describe_change(before: Partition, now: Partition) -> str:
    """Return the change of a partition in words; empty if there is none."""
    name = f"{EVENTS}-{now.index}"
    in_sync = ", ".join(map(str, sorted(now.in_sync_replicas)))
    if now.leader == _NOBODY and before.leader != _NOBODY:
        return f"{name} has no leader"
    if now.leader != before.leader:
        return f"{name} is led by broker {now.leader} in place of {_broker(before.leader)}; in sync: {in_sync}"
    if set(now.in_sync_replicas) != set(before.in_sync_replicas):
        return f"{name}: in sync: {in_sync}"
    return ""


def _broker(node_id: int) -> str:
    return "nobody" if node_id == _NOBODY else f"broker {node_id}"
