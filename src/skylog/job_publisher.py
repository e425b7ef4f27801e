"""Publishes the status of a job to the cluster, see `skylog.job_status`. Never delays or fails the job.

A separate thread does everything that may take time: creating the topic, sending, delivery reports. If the cluster is
unreachable, the job continues. Each status is complete, so the next one that is delivered makes up for lost ones.
"""

from __future__ import annotations

import logging
import math
import os
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from skylog.client import Admin, Connection
from skylog.errors import ErrorCode, KafkaError
from skylog.job_status import JOBS_TOPIC, MAX_TEXT, REPORT_EVERY_S, JobState, JobStatus

if TYPE_CHECKING:
    from confluent_kafka import Producer

logger = logging.getLogger(__name__)

TIMEOUT_S: Final = 5.0
_TICK_S: Final = 1.0  # the minimum time between two statuses
_BUSY_S: Final = 1.0  # a round this short only checks for new records
_RECENT_MS: Final = 5_000  # a job with short batches is still running this long after one
_FINAL_FLUSH_S: Final = 3.0  # the end of the job waits for this
_CONFIGS: Final = {"cleanup.policy": "compact", "segment.bytes": str(4 << 20), "segment.ms": str(3_600_000)}
_SETTINGS: Final[dict[str, Any]] = {
    "message.timeout.ms": 10_000,  # by then there is a newer status
    "queue.buffering.max.messages": 100,
}


class JobPublisher:
    """Publishes the status of a job while the `with` block runs, and its error if it fails.

    The job's threads call `batch`, `update` and `waiting`, which return at once.
    """

    def __init__(self, connection: Connection, name: str, kind: str, topics: Sequence[str]) -> None:
        now_ms = _now_ms()
        self._status = JobStatus(
            name, kind, socket.gethostname(), os.getpid(), JobState.RUNNING, now_ms, now_ms, topics=tuple(topics)
        )
        self._connection = connection
        self._changed = threading.Condition()
        self._is_new = True
        self._busy_since: float | None = -math.inf  # None while the job waits
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
        self._thread.join(_FINAL_FLUSH_S)

    def batch(self, number: int, records: int, seconds: float, lag: int | None) -> None:
        """Record a finished batch."""
        with self._changed:
            self._status = replace(
                self._status,
                batch=number,
                batch_at_ms=_now_ms(),
                records=records,
                seconds=round(seconds, 3),
                lag=lag,
                records_total=self._status.records_total + records,
            )
            self._is_new = True

    def update(self, **fields: Any) -> None:
        """Change fields of the status, see `JobStatus`."""
        with self._changed:
            self._status = replace(self._status, **fields)
            self._is_new = True

    def waiting(self, is_waiting: bool) -> None:
        """Record that the job waits for its next round, or that the round has begun."""
        with self._changed:
            if is_waiting:
                self._busy_since = None
            elif self._busy_since is None:
                self._busy_since = time.monotonic()

    # -- the thread

    def _run(self) -> None:
        producer: Producer | None = None
        sent_at, sent_state = -REPORT_EVERY_S, None
        while True:
            status, is_new, is_ended = self._snapshot()
            if is_new or is_ended or status.state != sent_state or time.monotonic() - sent_at >= REPORT_EVERY_S:
                sent_at, sent_state = time.monotonic(), status.state
                try:
                    producer = producer or self._open()
                    producer.produce(
                        JOBS_TOPIC, status.encode(), status.name.encode(), 0, on_delivery=self._on_delivery
                    )
                except Exception as error:  # an invalid name, a timeout: the next status may be delivered
                    self._warn(error)
            if producer is not None:
                producer.flush(_FINAL_FLUSH_S) if is_ended else producer.poll(0)
            if is_ended:
                return
            with self._changed:
                self._changed.wait_for(lambda: self._is_ended, _TICK_S)

    def _snapshot(self) -> tuple[JobStatus, bool, bool]:
        """Return the current status, whether there was a batch since the last call, and whether the job has ended."""
        with self._changed:
            status, is_new, is_ended = self._status, self._is_new, self._is_ended
            self._is_new = False
            is_idle = self._busy_since is None or time.monotonic() - self._busy_since < _BUSY_S
        now_ms = _now_ms()
        is_quiet = is_idle and now_ms - (status.batch_at_ms or 0) > _RECENT_MS
        if not is_ended and is_quiet and status.state is not JobState.RETRYING:
            status = replace(status, state=JobState.WAITING)
        return replace(status, reported_at_ms=now_ms), is_new, is_ended

    def _open(self) -> Producer:
        try:
            Admin(self._connection).create_topic(JOBS_TOPIC, 1, configs=_CONFIGS)
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        return self._connection.producer(_SETTINGS)

    def _on_delivery(self, error: Any, _message: Any) -> None:
        if error is not None:
            self._warn(error)

    def _warn(self, error: Any) -> None:
        """Warn once. If the cluster is unreachable, the job itself logs it."""
        if not self._has_warned:
            logger.warning("cannot publish the status of %r: %s", self._status.name, error)
            self._has_warned = True


def _error_text(error: BaseException | None) -> str | None:
    """Return the text of the error that ended a job, or None if it finished or was stopped."""
    if error is None or isinstance(error, KeyboardInterrupt):
        return None
    if isinstance(error, SystemExit):
        return None if error.code in (None, 0) else f"exit code {error.code}; see the output of the job"
    return (str(error) or type(error).__name__)[:MAX_TEXT]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
