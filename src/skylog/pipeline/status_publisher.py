"""Publishes the status of a job of the pipeline, see `skylog.job_publisher`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from skylog.job_publisher import TIMEOUT_S, JobPublisher
from skylog.pipeline.cluster import Cluster
from skylog.pipeline.schedule import Schedule

if TYPE_CHECKING:
    from skylog.pipeline.runner import Progress


@dataclass(frozen=True)
class ReportedSchedule(Schedule):
    """A schedule that calls `waiting` with True after each round, and with False before the next one."""

    waiting: Callable[[bool], None] = field(default=lambda _: None, compare=False)

    def rounds(self, stop: threading.Event) -> Iterator[None]:
        for _ in super().rounds(stop):
            self.waiting(False)
            yield
            self.waiting(True)


class StatusPublisher(JobPublisher):
    """Publishes the status of a job while the `with` block runs, and its error if it fails.

    with StatusPublisher(cluster, "land: events -> warehouse", "land", ["events"]) as status:
        run_increments(job, increments, spark, ReportedSchedule(60, status.waiting), stop, status.report)
    """

    def __init__(self, cluster: Cluster | str, name: str, kind: str, topics: Sequence[str]) -> None:
        super().__init__(Cluster.of(cluster).connection(TIMEOUT_S), name, kind, topics)

    def report(self, progress: Progress) -> None:
        """Record a finished batch."""
        self.batch(progress.batch, progress.records, progress.seconds, None if progress.lag < 0 else progress.lag)
