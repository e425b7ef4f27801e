"""Runs jobs as increments or as streaming queries, reports their progress, and stops them on request."""

from __future__ import annotations

import logging
import os
import re
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, Any, Final, Protocol

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

from skylog.client import BrokerUnreachableError, DeliveryError
from skylog.errors import ErrorCode, KafkaError, SkylogError
from skylog.pipeline.increments import Increment, Increments, Offsets
from skylog.pipeline.schedule import Schedule

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

logger = logging.getLogger(__name__)

_POLL_S: Final = 0.2
_NO_BATCH: Final = -1
_FAILOVER_CODES: Final = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    }
)
_STARVED: Final = "Python worker failed to connect back"
_STARTS: Final = 10  # in a row, of a job for which Spark cannot start a Python process
_STEADY_S: Final = 120.0  # a job that has run for this long begins to count again
_RAISED: Final = re.compile(r"^(?:Caused by: |: )?(?:\w+\.)*(\w+(?:Error|Exception)): (.+)$", re.MULTILINE)


class JobError(SkylogError):
    """A job failed in Spark. The message has no Java stack trace; see the cause for it."""


@dataclass(frozen=True)
class Progress:
    """One step of a job: an increment or a micro-batch. `lag` is the number of remaining offsets, or -1 if unknown."""

    job: str
    batch: int
    records: int
    seconds: float
    lag: int


ProgressCallback = Callable[[Progress], None]


class IncrementalJob(Protocol):
    """A job that stores its offsets with its results."""

    @property
    def name(self) -> str: ...

    def done(self) -> Offsets | None:
        """Return the end offsets of the results, or None if there are none yet."""
        ...

    def apply(self, records: DataFrame, increment: Increment) -> None:
        """Add the records and `increment.end` to the results, both or neither."""
        ...


def run_increments(
    job: IncrementalJob,
    increments: Increments,
    spark: SparkSession,
    schedule: Schedule,
    stop: Event,
    report: ProgressCallback,
) -> None:
    """Run a job until `stop` is set, or to the current end if the schedule is ONCE. Finishes the current increment."""
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
                    increments.commit(done)
            except SkylogError as error:
                if schedule.every_s is None or not _may_pass(error):
                    raise
                logger.warning("%s: waiting for the cluster: %s", job.name, error)
                is_known = False  # the job may have stored its results


def with_restarts(name: str, run: Callable[[], None], stop: Event) -> None:
    """Call `run`, and again if a busy machine keeps Spark from starting a Python process within ten seconds.

    Spark has no setting for that time. Offsets are stored with the results, so the next start continues exactly.
    """
    failures = 0
    while True:
        began = time.monotonic()
        try:
            run()
            return
        except JobError as error:
            failures = 1 if time.monotonic() - began > _STEADY_S else failures + 1
            if _STARVED not in str(error) or failures >= _STARTS:
                raise
            if stop.is_set():
                return  # nothing is half done, and nobody waits for more
            logger.warning("%s: starting again: the machine is too busy: %s", name, error)


def _may_pass(error: SkylogError) -> bool:
    """Whether an error says that the cluster is away or elects leaders, so that the job may succeed later."""
    if isinstance(error, KafkaError):
        return error.code in _FAILOVER_CODES
    return isinstance(error, BrokerUnreachableError | DeliveryError)


def run_queries(name: str, queries: Sequence[StreamingQuery], stop: Event, report: ProgressCallback) -> None:
    """Run queries until all have ended or `stop` is set. If one fails, stop the others and raise its error.

    The progress is that of the first one. The others read the same records for what does not parse.
    """
    last = _NO_BATCH
    with plain_errors(name):
        try:
            while any(query.isActive for query in queries) and not stop.wait(_POLL_S):
                last = _report_progress(name, queries[0], last, report)
                _raise_first(queries)
        finally:
            for query in queries:
                query.stop()
        _report_progress(name, queries[0], last, report)
        _raise_first(queries)


def _report_progress(name: str, query: StreamingQuery, last: int, report: ProgressCallback) -> int:
    """Report the batches after `last`. Return the last one."""
    for progress in query.recentProgress:
        batch, records = int(progress["batchId"]), int(progress["numInputRows"])
        if batch > last and records:
            seconds = float(progress["batchDuration"]) / 1000
            report(Progress(query.name or name, batch, records, seconds, _lag(progress)))
            last = batch
    return last


def _lag(progress: Any) -> int:
    """Return the lag in a progress document of Spark: from the sources' end offsets to the latest offsets."""
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
    """Convert Spark's errors to JobError with the message of the innermost error."""
    try:
        yield
    except (ConnectionError, Py4JNetworkError) as error:
        if not _is_of_py4j(error):
            raise
        raise JobError(f"{name}: Spark's Java process has ended; start the job again") from error
    except (PySparkException, Py4JError) as error:
        raised = _RAISED.findall(str(error))
        kind, message = raised[-1] if raised else (type(error).__name__, str(error).partition("\n")[0])
        raise JobError(f"{name}: {message}" if kind != "KeyError" else f"{name}: {kind}: {message}") from error


def _is_of_py4j(error: BaseException) -> bool:
    """Whether the connection to Spark's Java process has failed, and not another one, such as that of a function."""
    return f"{os.sep}py4j{os.sep}" in traceback.extract_tb(error.__traceback__)[-1].filename
