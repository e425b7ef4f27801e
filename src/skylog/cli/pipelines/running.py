"""Code shared by the job commands: the Spark session, progress, and stopping on Ctrl-C. Options: `job_options`."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from threading import Event
from typing import TYPE_CHECKING, NamedTuple

import typer

from skylog.cli.pipelines.job_options import JobOptions, RunOptions, StreamOptions
from skylog.cli.requirements import check_requirements
from skylog.cli.stop_signals import stopped_by_signals
from skylog.terminal import note, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from skylog.pipeline.cluster import Cluster
    from skylog.pipeline.runnable import RunnableJob
    from skylog.pipeline.runner import Progress, ProgressCallback
    from skylog.pipeline.schedule import Schedule


def checked_table(path: str | None) -> str | None:
    """Check the path of a table. A callback of Typer that rejects other URIs before Spark starts."""
    if path is not None and "://" in path and not path.startswith(("s3://", "s3a://")):
        raise typer.BadParameter(f"'{path}': tables are in a directory or in an S3-compatible store (s3://bucket/path)")
    return path


class Running(NamedTuple):
    """The context of a job that runs. `report` shows progress in the terminal and in the console."""

    spark: SparkSession
    schedule: Schedule
    stop: Event
    report: ProgressCallback


@contextmanager
def running(
    job: RunnableJob, cluster: Cluster, options: RunOptions, show: ProgressCallback | None = None
) -> Iterator[Running]:
    """Start Spark for a job and stop it at the end. Publishes the status of the job for the console.

    The first Ctrl-C stops the job after the current batch. `show` prints the progress in another way than usual.
    """
    every_s, settings = options.every_s, options.spark_settings
    check_requirements(needs_java=not options.master.startswith("sc://"))
    from skylog.pipeline.status_publisher import ReportedSchedule
    from skylog.spark.session import start_session

    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    spark = start_session(f"skylog-{job.name}", options.master, settings)
    stop = Event()

    def end() -> None:
        stop.set()
        note(f"{job.name}: stopping after the current batch; press Ctrl-C again to stop immediately, without data loss")

    shown = show or (_print_json if options.json else _print)
    with stopped_by_signals(end):
        try:
            with job.status(cluster) as status:

                def report(progress: Progress) -> None:
                    status.report(progress)
                    shown(progress)

                yield Running(spark, ReportedSchedule(every_s, status.waiting), stop, report)
        finally:
            with suppress(OSError):  # its Java process may have ended, which is no second error
                spark.stop()


def run_job(job: RunnableJob, cluster: Cluster, options: RunOptions, show: ProgressCallback | None = None) -> None:
    """Run a job with the options of its command."""
    with running(job, cluster, options, show) as run:
        run_in(run, job, cluster, options)


def run_in(run: Running, job: RunnableJob, cluster: Cluster, options: RunOptions) -> None:
    """Run a job in a context that has begun."""
    from skylog.pipeline.runnable import JobRun

    state = options.state if isinstance(options, StreamOptions) else None
    group, limit = (options.group or job.name, options.max_offsets) if isinstance(options, JobOptions) else (None, None)
    job.run_with(run.spark, cluster, JobRun(run.schedule, run.stop, run.report, group, limit, state=state))


def _print(progress: Progress) -> None:
    lag = "" if progress.lag < 0 else f", lag {progress.lag:,}"
    note(f"{progress.job}: batch {progress.batch}: {progress.records:,} records in {progress.seconds:.1f} s{lag}")


def _print_json(progress: Progress) -> None:
    write(json.dumps(asdict(progress)) + "\n")
    sys.stdout.flush()  # the reader of a pipe gets each line immediately
