"""Whether a broker is well, for people and orchestrators: in a word, and with the reasons where it is not."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from skylog import __version__

if TYPE_CHECKING:
    from skylog.broker.broker import Broker

MIN_FREE_SHARE: Final = 0.05
RECENT_S: Final = 300.0
LOOK_S: Final = 10.0
_NAMED_LOGS: Final = 5


@dataclass(frozen=True, slots=True)
class HealthReport:
    """A broker with problems answers its clients all the same; somebody should look at it."""

    healthy: bool
    problems: list[str]
    node_id: int
    cluster_id: str
    data_dir: str
    started_at_ms: int
    version: str

    def to_document(self) -> dict[str, Any]:
        return asdict(self)


class Health:
    """Looks at a broker, and every few seconds at its background jobs, to know when they last failed.

    health = Health(broker)
    health.start()               # after the broker
    report = await health.report()
    health.stop()
    """

    def __init__(self, broker: Broker, apart_from: Collection[str] = ()) -> None:
        """`apart_from` are background jobs whose failures say nothing of the broker."""
        self._broker = broker
        self._apart_from = apart_from
        self._seen: dict[str, int] = {}
        self._failed_at: dict[str, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._look()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    async def report(self) -> HealthReport:
        """Raises OSError where the data directory cannot be reached."""
        broker = self._broker
        self._note_failures()
        data_dir = broker.log_dir.path
        disk = await asyncio.get_running_loop().run_in_executor(None, shutil.disk_usage, data_dir)
        problems = [
            *self._offline_logs(),
            *self._damaged_logs(),
            *self._uncleanable_logs(),
            *self._recent_failures(),
        ]
        if disk.free < MIN_FREE_SHARE * disk.total:
            problems.append(f"the disk of {data_dir} is nearly full: {disk.free >> 20} MB are free")
        return HealthReport(
            healthy=not problems,
            problems=problems,
            node_id=broker.identity.node_id,
            cluster_id=broker.identity.cluster_id,
            data_dir=str(data_dir),
            started_at_ms=broker.started_at_ms,
            version=__version__,
        )

    def _look(self) -> None:
        self._note_failures()
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _note_failures(self) -> None:
        for name, job in self._broker.background.items():
            if name not in self._apart_from and job.failures > self._seen.get(name, 0):
                self._seen[name] = job.failures
                self._failed_at[name] = self._broker.clock.monotonic()

    def _recent_failures(self) -> list[str]:
        since = self._broker.clock.monotonic() - RECENT_S
        return [
            f"{name} has failed in the last {RECENT_S / 60:.0f} minutes, {self._seen[name]} times since the start; "
            "the log says why"
            for name, failed_at in sorted(self._failed_at.items())
            if failed_at >= since
        ]

    def _offline_logs(self) -> list[str]:
        logs = [partition.log for partition in self._broker.partitions.all() if partition.log.failure is not None]
        found = [f"{name} is offline: {reason}" for name, reason in self._broker.partitions.offline.items()]
        found += [f"{log.name} takes no appends until a restart: {log.failure}" for log in logs]
        return _first_of(found)

    def _damaged_logs(self) -> list[str]:
        damaged = [
            (partition.name, each) for partition in self._broker.partitions.all() for each in partition.log.damages
        ]
        return _first_of(
            [f"{name} is damaged: offsets {each.due_offset} to {each.next_offset - 1}" for name, each in damaged]
        )

    def _uncleanable_logs(self) -> list[str]:
        aside = self._broker.compactor.uncleanable
        return _first_of([f"{log.name} cannot be compacted: {_last_line(why.reason)}" for log, why in aside.items()])


def _first_of(found: list[str]) -> list[str]:
    named = found[:_NAMED_LOGS]
    return [*named, f"and {len(found) - len(named)} more logs"] if len(found) > len(named) else named


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2]
