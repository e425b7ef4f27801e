"""What all jobs have in common: a name, the topics that they read, a target, and the way in which they are run.

    job.run(spark, "127.0.0.1:9092", once=True)

Every job, of skylog and of users, runs through `RunnableJob.run` or through `skylog pipeline run`. Both publish its
status, and report its progress, lag and last error in the same way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from skylog.errors import ConfigError
from skylog.model import check_topic_name
from skylog.pipeline.cluster import Cluster
from skylog.pipeline.runner import Progress, ProgressCallback
from skylog.pipeline.schedule import ONCE, Schedule
from skylog.pipeline.status_publisher import ReportedSchedule, StatusPublisher

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class JobRun:
    """How to run a job. The progress is committed to `group`, if set.

    `max_offsets` limits a batch. `options` are those of the data source. `state` is the directory of a stream's state.
    """

    schedule: Schedule = ONCE
    stop: Event = field(default_factory=Event)
    report: ProgressCallback = lambda _: None
    group: str | None = None
    max_offsets: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    state: Path | None = None


class RunnableJob(ABC):
    """A job. `target` is where its results go, for people, without secrets."""

    def __init__(self, name: str, reads: Sequence[str], target: str) -> None:
        self.name = name
        self.reads = tuple(dict.fromkeys(reads))
        self.target = target
        if not self.reads:
            raise ConfigError(f"job '{name}' reads no topic")
        for topic in self.reads:
            check_topic_name(topic)

    def __repr__(self) -> str:
        return f"<job {self.title}>"

    @property
    def title(self) -> str:
        """The job's name, source and target, as the console shows them."""
        return f"{self.name}: {', '.join(self.reads)} -> {self.target}"

    def run(
        self,
        spark: SparkSession,
        cluster: Cluster | str | None = None,
        *,
        once: bool = False,
        every_s: float = 0.0,
        stop: Event | None = None,
        report: ProgressCallback | None = None,
        group: str | None = None,
        max_offsets: int | None = None,
        options: Mapping[str, str] | None = None,
        state: str | Path | None = None,
    ) -> None:
        """Run the job until `stop` is set, or over the available records if `once`. Publishes its status.

            spam.run(spark, "127.0.0.1:9092", once=True)

        It runs continuously, or every `every_s` seconds. The progress is committed to the consumer group `group`, by
        default the job's name. `max_offsets` limits a batch. `options` are those of the data source. `state` is the
        directory of a stream's state, by default skylog-state/NAME. Raises SkylogError.
        """
        cluster = Cluster.of(cluster)
        with self.status(cluster) as status:

            def tell(progress: Progress) -> None:
                status.report(progress)
                if report is not None:
                    report(progress)

            schedule = ReportedSchedule(None if once else every_s, status.waiting)
            place = None if state is None else Path(state)
            run = JobRun(schedule, stop or Event(), tell, group or self.name, max_offsets, options or {}, place)
            self.run_with(spark, cluster, run)

    def status(self, cluster: Cluster) -> StatusPublisher:
        """Return a publisher of the job's status, for use in `with`."""
        return StatusPublisher(cluster, self.title, self.name, self.reads)

    @abstractmethod
    def run_with(self, spark: SparkSession, cluster: Cluster, run: JobRun) -> None:
        """Run the job, without publishing its status."""
