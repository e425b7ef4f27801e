"""Tells the cluster how a job is doing, see `skylog.job_status`. A job neither waits for this nor fails by it.

Everything that may take time happens in a thread of its own: making the topic, sending, hearing what failed. Where the
cluster cannot be reached the job goes on, and the next status that gets through says all that is to be said.
"""

from __future__ import annotations

import logging
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from skylog.client import Admin, Connection
from skylog.errors import ErrorCode, KafkaError
from skylog.job_status import JOBS_TOPIC, MAX_TEXT, REPORT_EVERY_S, JobState, JobStatus
from skylog.spark.jobs.schedule import Schedule

if TYPE_CHECKING:
    from confluent_kafka import Producer

    from skylog.spark.jobs.runner import Progress

logger = logging.getLogger(__name__)

_TICK_S: Final = 1.0  # batches may be shorter; nobody reads faster than so
_BUSY_S: Final = 1.0  # looking whether there is something to do is no work
_LATELY_MS: Final = 5_000  # a job of short batches works, also between two of them
_TIMEOUT_S: Final = 5.0
_LAST_WORDS_S: Final = 3.0  # for the end, which somebody waits for
_CONFIGS: Final = {"cleanup.policy": "compact", "segment.bytes": str(4 << 20), "segment.ms": str(3_600_000)}
_SETTINGS: Final[dict[str, Any]] = {
    "message.timeout.ms": 10_000,  # later the next status has come
    "queue.buffering.max.messages": 100,
}


@dataclass(frozen=True)
class ReportedSchedule(Schedule):
    """A schedule that tells `waiting` when a round is over (True) and when the next one begins (False)."""

    waiting: Callable[[bool], None] = field(default=lambda _: None, compare=False)

    def rounds(self, stop: threading.Event) -> Iterator[None]:
        for _ in super().rounds(stop):
            self.waiting(False)
            yield
            self.waiting(True)


class StatusPublisher:
    """A context around the run of a job; what ends the run with an error is told as well.

        with StatusPublisher(bootstrap, "land: events -> warehouse", "land", ["events"]) as status:
            run_increments(job, increments, spark, ReportedSchedule(60, status.waiting), stop, status.report)

    `report` and `waiting` are called by the job's threads and only take note. `config` are librdkafka's settings on how
    to reach the cluster.
    """

    def __init__(
        self, bootstrap: str, name: str, kind: str, topics: Sequence[str], config: Mapping[str, str] | None = None
    ) -> None:
        now_ms = _now_ms()
        self._status = JobStatus(
            name, kind, socket.gethostname(), os.getpid(), JobState.RUNNING, now_ms, now_ms, topics=tuple(topics)
        )
        self._connection = Connection(bootstrap, config, _TIMEOUT_S)
        self._changed = threading.Condition()
        self._is_new = True
        self._busy_since: float | None = -math.inf  # None while it waits
        self._is_ended = False
        self._has_warned = False
        self._thread = threading.Thread(target=self._run, name="skylog-job-status", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        text = _error_text(error)
        state = JobState.STOPPED if text is None else JobState.FAILED
        with self._changed:
            self._status = replace(self._status, state=state, last_error=text)
            self._is_ended = True
            self._changed.notify()
        self._thread.join(_LAST_WORDS_S)

    def report(self, progress: Progress) -> None:
        """A batch has been done."""
        with self._changed:
            self._status = replace(
                self._status,
                batch=progress.batch,
                batch_at_ms=_now_ms(),
                records=progress.records,
                seconds=round(progress.seconds, 3),
                lag=None if progress.lag < 0 else progress.lag,
                records_total=self._status.records_total + progress.records,
            )
            self._is_new = True

    def waiting(self, is_waiting: bool) -> None:
        """The job has nothing to do until later, or goes on."""
        with self._changed:
            if is_waiting:
                self._busy_since = None
            elif self._busy_since is None:
                self._busy_since = time.monotonic()

    # -- the thread

    def _run(self) -> None:
        producer: Producer | None = None
        told_at, told_state = -REPORT_EVERY_S, None
        while True:
            status, is_new, is_ended = self._look()
            if is_new or is_ended or status.state != told_state or time.monotonic() - told_at >= REPORT_EVERY_S:
                told_at, told_state = time.monotonic(), status.state
                try:
                    producer = producer or self._open()
                    producer.produce(JOBS_TOPIC, status.encode(), status.name.encode(), 0, on_delivery=self._heard)
                except Exception as error:  # a name that is no UTF-8, a time limit: the next status may get through
                    self._warn(error)
            if producer is not None:
                producer.flush(_LAST_WORDS_S) if is_ended else producer.poll(0)
            if is_ended:
                return
            with self._changed:
                self._changed.wait_for(lambda: self._is_ended, _TICK_S)

    def _look(self) -> tuple[JobStatus, bool, bool]:
        """The status of now, whether there has been a batch since the last, and whether this is the end."""
        with self._changed:
            status, is_new, is_ended = self._status, self._is_new, self._is_ended
            self._is_new = False
            is_idle = self._busy_since is None or time.monotonic() - self._busy_since < _BUSY_S
        now_ms = _now_ms()
        if not is_ended and is_idle and now_ms - (status.batch_at_ms or 0) > _LATELY_MS:
            status = replace(status, state=JobState.WAITING)
        return replace(status, reported_at_ms=now_ms), is_new, is_ended

    def _open(self) -> Producer:
        try:
            Admin(self._connection).create_topic(JOBS_TOPIC, 1, configs=_CONFIGS)
        except KafkaError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        return self._connection.producer(_SETTINGS)

    def _heard(self, error: Any, _message: Any) -> None:
        if error is not None:
            self._warn(error)

    def _warn(self, error: Any) -> None:
        """Once: a cluster that is away is told of often enough by the job itself."""
        if not self._has_warned:
            logger.warning("the status of %r cannot be published: %s", self._status.name, error)
            self._has_warned = True


def _error_text(error: BaseException | None) -> str | None:
    """What to say of the error that ended a job; None if it ended well or was told to."""
    if error is None or isinstance(error, KeyboardInterrupt):
        return None
    if isinstance(error, SystemExit):
        return None if error.code in (None, 0) else f"ended with exit code {error.code}; see its output"
    return (str(error) or type(error).__name__)[:MAX_TEXT]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
