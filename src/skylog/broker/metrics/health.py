"""The health check of a broker: whether it has problems, and which."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from skylog import __version__
from skylog.broker.metrics.replication import is_under_replicated
from skylog.cluster.image import NO_LEADER, PartitionImage
from skylog.model import TopicPartition

if TYPE_CHECKING:
    from skylog.broker.broker import Broker
    from skylog.broker.partition import Partition

MIN_FREE_SHARE: Final = 0.05
RECENT_S: Final = 300.0
POLL_S: Final = 10.0
_NAMED_LOGS: Final = 5


@dataclass(frozen=True, slots=True)
class HealthReport:
    """The result of a health check. A broker with problems still serves its clients, but needs attention.

    The `status` is healthy, degraded (only warnings: other brokers are missing, not this one) or critical (problems). A
    degraded broker counts as healthy.
    """

    healthy: bool
    status: str
    problems: list[str]
    warnings: list[str]
    node_id: int
    cluster_id: str
    data_dir: str
    started_at_ms: int
    version: str

    def to_document(self) -> dict[str, Any]:
        return asdict(self)


class Health:
    """Checks a broker's health. Polls its background jobs every few seconds, to know when they last failed.

    health = Health(broker)
    health.start()               # after the broker
    report = await health.report()
    health.stop()
    """

    def __init__(self, broker: Broker, ignored_jobs: Collection[str] = ()) -> None:
        """`ignored_jobs` are background jobs whose failures are not problems of the broker."""
        self._broker = broker
        self._ignored_jobs = ignored_jobs
        self._seen: dict[str, int] = {}
        self._failed_at: dict[str, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._poll()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    async def report(self) -> HealthReport:
        """Check the broker. Raises OSError if the data directory cannot be accessed."""
        broker = self._broker
        self._note_failures()
        data_dir = broker.log_dir.path
        disk = await asyncio.get_running_loop().run_in_executor(None, shutil.disk_usage, data_dir)
        problems = [
            *self._lost_membership(),
            *self._offline_logs(),
            *self._damaged_logs(),
            *self._uncleanable_logs(),
            *self._leaderless_partitions(),
            *self._recent_failures(),
        ]
        warnings = self._under_replicated_partitions()
        if disk.free < MIN_FREE_SHARE * disk.total:
            problems.append(f"the disk of {data_dir} is nearly full: {disk.free >> 20} MB free")
        return HealthReport(
            healthy=not problems,
            status="critical" if problems else "degraded" if warnings else "healthy",
            problems=problems,
            warnings=warnings,
            node_id=broker.identity.node_id,
            cluster_id=broker.identity.cluster_id,
            data_dir=str(data_dir),
            started_at_ms=broker.started_at_ms,
            version=__version__,
        )

    def _poll(self) -> None:
        self._note_failures()
        self._timer = asyncio.get_running_loop().call_later(POLL_S, self._poll)

    def _note_failures(self) -> None:
        for name, job in self._broker.background.items():
            if name not in self._ignored_jobs and job.failures > self._seen.get(name, 0):
                self._seen[name] = job.failures
                self._failed_at[name] = self._broker.clock.monotonic()

    def _recent_failures(self) -> list[str]:
        since = self._broker.clock.monotonic() - RECENT_S
        return [
            f"{name} failed in the last {RECENT_S / 60:.0f} minutes, {self._seen[name]} times since startup; "
            "see the log for the reason"
            for name, failed_at in sorted(self._failed_at.items())
            if failed_at >= since
        ]

    def _lost_membership(self) -> list[str]:
        if self._broker.replicas.may_lead:
            return []
        return ["this broker is not part of the cluster, and leads nothing until it has joined: it looks for ZooKeeper"]

    def _offline_logs(self) -> list[str]:
        logs = [partition.log for partition in self._broker.replicas.all() if partition.log.failure is not None]
        found = [f"{name} is offline: {reason}" for name, reason in self._broker.replicas.offline.items()]
        found += [f"{log.name} takes no appends until a restart: {log.failure}" for log in logs]
        return _first_of(found)

    def _leaderless_partitions(self) -> list[str]:
        node_id, image = self._broker.identity.node_id, self._broker.metadata.image
        found = [
            f"{TopicPartition(topic.name, index)} has no leader: {_awaited(each)}"
            for topic in image.topics.values()
            for index, each in enumerate(topic.partitions)
            if each.leader == NO_LEADER and node_id in each.replicas
        ]
        return _first_of(found, "partitions")

    def _under_replicated_partitions(self) -> list[str]:
        led = [partition for partition in self._broker.replicas.all() if partition.is_leader]
        found = [_out_of_sync(partition) for partition in led if is_under_replicated(partition)]
        return _first_of(found, "partitions")

    def _damaged_logs(self) -> list[str]:
        damaged = [
            (partition.name, each) for partition in self._broker.replicas.all() for each in partition.log.damages
        ]
        return _first_of(
            [f"{name} is damaged: offsets {each.due_offset} to {each.next_offset - 1}" for name, each in damaged]
        )

    def _uncleanable_logs(self) -> list[str]:
        aside = self._broker.compactor.uncleanable
        return _first_of([f"{log.name} cannot be compacted: {_last_line(why.reason)}" for log, why in aside.items()])


def _out_of_sync(partition: Partition) -> str:
    image = partition.image
    assert image is not None
    missing = [str(node) for node in image.replicas if node not in image.in_sync_replicas]
    found = f"{partition.name} has replicas that are out of sync, on brokers {', '.join(missing)}"
    if partition.has_enough_replicas:
        return found
    in_sync = f"{partition.in_sync_count} of {partition.required_in_sync} are in sync"
    return f"{found}, and takes no messages with acks=all: {in_sync}"


def _first_of(found: list[str], things: str = "logs") -> list[str]:
    named = found[:_NAMED_LOGS]
    return [*named, f"and {len(found) - len(named)} more {things}"] if len(found) > len(named) else named


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2]


def _awaited(partition: PartitionImage) -> str:
    brokers = " or ".join(map(str, partition.complete_replicas))
    if not brokers:
        return "no broker is known to have all of its messages; an unclean election continues with what is left"
    return f"it waits for broker {brokers}, which has all of its messages"
