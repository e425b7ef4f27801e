"""What the jobs' commands share: the options of a run, the session, progress, and the end on Ctrl-C."""

from __future__ import annotations

import json
import logging
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from threading import Event
from types import FrameType, MappingProxyType
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from skylog.cli.options import parse_duration_ms, parse_pairs
from skylog.cli.output import note, write
from skylog.cli.requirements import check_requirements
from skylog.spark.jobs.directories import DirectoryError, check_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from skylog.spark.jobs.runner import Progress
    from skylog.spark.jobs.schedule import Schedule
    from skylog.spark.jobs.status_publisher import StatusPublisher

KAFKA: Final = "kafka."

Once = Annotated[bool, typer.Option("--once", help="Work through what is there, and end.")]
Every = Annotated[
    str | None,
    typer.Option("--every", metavar="TIME", help="Work at intervals: 30s, 1h.", show_default="continuously"),
]
Master = Annotated[str, typer.Option("--master", metavar="URL", help="The Spark cluster; local[*] is this machine.")]
SparkConf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; may be given many times."),
]


SourceOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="KEY=VALUE",
        help="An option of the data source, such as failOnDataLoss=false; may be given many times.",
    ),
]


def checked_directory(path: Path | None) -> Path | None:
    """A callback for options that name a directory: URIs are refused before Spark starts."""
    if path is not None:
        try:
            check_directory(path)
        except DirectoryError as error:
            raise typer.BadParameter(str(error)) from error
    return path


class Work(NamedTuple):
    """What a job does, as the console names it: from which topics of which cluster, and into what.

    `options` are those of the data source, which say how to reach the cluster.
    """

    bootstrap: str
    topics: Sequence[str]
    into: object = None
    options: Mapping[str, str] = MappingProxyType({})

    def publisher(self, kind: str) -> StatusPublisher:
        from skylog.spark.jobs.status_publisher import StatusPublisher

        where = "" if self.into is None else f" -> {self.into}"
        config = {key[len(KAFKA) :]: value for key, value in self.options.items() if key.lower().startswith(KAFKA)}
        return StatusPublisher(self.bootstrap, f"{kind}: {', '.join(self.topics)}{where}", kind, self.topics, config)


class Running(NamedTuple):
    """A job's surroundings: Spark, when to work, when to stop, whom to tell. `tell` tells the console only."""

    spark: SparkSession
    schedule: Schedule
    stop: Event
    report: Callable[[Progress], None]
    tell: Callable[[Progress], None]


@contextmanager
def running(
    name: str,
    *,
    once: bool,
    every: str | None,
    master: str,
    conf: list[str] | None,
    as_json: bool,
    work: Work,
) -> Iterator[Running]:
    """Start Spark for a job, and stop it at the end; the console is told of the `work` all along.

    The first Ctrl-C lets the batch at hand be finished.
    """
    if once and every is not None:
        raise typer.BadParameter("--once and --every exclude each other", param_hint="--once")
    every_s = None if once else (parse_duration_ms(every, "--every") / 1000 if every else 0.0)
    settings = dict(parse_pairs(conf, "--conf"))
    check_requirements(needs_java=not master.startswith("sc://"))
    from skylog.spark.jobs.status_publisher import ReportedSchedule
    from skylog.spark.session import start_session

    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    spark = start_session(f"skylog-{name}", master, settings)
    stop = Event()

    def end(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        note(f"{name}: stopping after what is at hand; once more ends it at once, and nothing is lost")

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    show = _print_json if as_json else _print
    try:
        with work.publisher(name) as status:

            def report(progress: Progress) -> None:
                status.report(progress)
                show(progress)

            yield Running(spark, ReportedSchedule(every_s, status.waiting), stop, report, status.report)
    finally:
        spark.stop()


def _print(progress: Progress) -> None:
    lag = "" if progress.lag < 0 else f", lag {progress.lag:,}"
    note(f"{progress.job}: batch {progress.batch}: {progress.records:,} records in {progress.seconds:.1f} s{lag}")


def _print_json(progress: Progress) -> None:
    write(json.dumps(asdict(progress)) + "\n")
    sys.stdout.flush()  # a reader of a pipe need not wait for more
