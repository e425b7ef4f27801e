"""Runs jobs: increment by increment, or as Spark's own streaming queries; says how it goes, and stops when told."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, Any, Final, Protocol

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from skylog.client import BrokerUnreachableError, DeliveryError
from skylog.errors import SkylogError
from skylog.spark.jobs.increments import Increment, Increments, Offsets
from skylog.spark.jobs.schedule import Schedule

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

logger = logging.getLogger(__name__)

_LOOK_S: Final = 0.2
_RAISED: Final = re.compile(r"^(?:Caused by: |: )?(?:\w+\.)*(\w+(?:Error|Exception)): (.+)$", re.MULTILINE)


class JobError(SkylogError):
    """A job that Spark gave up: what was wrong, without Java's stack. The cause has all of it."""


@dataclass(frozen=True)
class Progress:
    """One step of a job: an increment or a micro-batch. `lag` is what the topics have beyond it; -1 if not known."""

    job: str
    batch: int
    records: int
    seconds: float
    lag: int


Report = Callable[[Progress], None]


class IncrementalJob(Protocol):
    """A job that keeps its offsets with its results."""

    @property
    def name(self) -> str: ...

    def done(self) -> Offsets | None:
        """Up to where the results reach; None where there are none yet."""
        ...

    def apply(self, records: DataFrame, increment: Increment) -> None:
        """Put the records, and `increment.end`, into the results: both or neither."""
        ...


def run_increments(
    job: IncrementalJob, increments: Increments, spark: SparkSession, schedule: Schedule, stop: Event, report: Report
) -> None:
    """Until `stop` is set, which lets the increment at hand be finished, or, if the schedule is once, until the end."""
    done: Offsets | None = None
    is_known = False
    batch = 0

    def step() -> bool:
        nonlocal done, batch
        began = time.monotonic()
        increment = increments.next(done)
        if increment is None:
            return False
        job.apply(increments.frame(spark, increment), increment)
        done = increment.end
        report(Progress(job.name, batch, increment.offsets, time.monotonic() - began, increments.lag(done)))
        batch += 1
        return True

    with plain_errors(job.name):
        for _ in schedule.rounds(stop):
            try:
                if not is_known:
                    done, is_known = job.done(), True
                if schedule.has_rounds:
                    increments.until_now(done)
                while step() and not stop.is_set():
                    pass
                if stop.is_set() and done is not None:
                    increments.tell(done)
            except (BrokerUnreachableError, DeliveryError) as error:
                if schedule.every_s is None:
                    raise
                logger.warning("%s: waiting for the cluster: %s", job.name, error)
                is_known = False  # the job may have got as far as its results


def run_queries(name: str, queries: Sequence[StreamingQuery], stop: Event, report: Report) -> None:
    """Until all have ended, or `stop` is set, or one fails: then the others are stopped and its error is raised."""
    told = dict.fromkeys((query.id for query in queries), -1)
    with plain_errors(name):
        try:
            while any(query.isActive for query in queries) and not stop.wait(_LOOK_S):
                _tell(name, queries, told, report)
                _raise_first(queries)
        finally:
            for query in queries:
                query.stop()
        _tell(name, queries, told, report)
        _raise_first(queries)


def _tell(name: str, queries: Sequence[StreamingQuery], told: dict[str, int], report: Report) -> None:
    for query in queries:
        for progress in query.recentProgress:
            batch, records = int(progress["batchId"]), int(progress["numInputRows"])
            if batch > told[query.id] and records:
                seconds = float(progress["batchDuration"]) / 1000
                report(Progress(query.name or name, batch, records, seconds, _lag(progress)))
                told[query.id] = batch


def _lag(progress: Any) -> int:
    """Of a progress document of Spark: from its sources' ends to the latest offsets."""
    lag = 0
    for source in progress["sources"]:
        end, latest = source.get("endOffset"), source.get("latestOffset")
        if not isinstance(end, dict) or not isinstance(latest, dict):
            return -1
        for topic, partitions in latest.items():
            lag += sum(offset - end.get(topic, {}).get(number, 0) for number, offset in partitions.items())
    return lag


def _raise_first(queries: Sequence[StreamingQuery]) -> None:
    for query in queries:
        error = query.exception()
        if error is not None:
            raise error


@contextmanager
def plain_errors(name: str) -> Iterator[None]:
    """Raise JobError for what Spark raises, with the message of the innermost error."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raised = _RAISED.findall(str(error))
        kind, message = raised[-1] if raised else (type(error).__name__, str(error).partition("\n")[0])
        raise JobError(f"{name}: {message}" if kind != "KeyError" else f"{name}: {kind}: {message}") from error
