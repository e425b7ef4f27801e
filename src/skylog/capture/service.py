"""Keeps a capture running: opens it again after a failure, and publishes its status."""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack
from threading import Event
from typing import Final

import psycopg

from skylog.capture.capture import CaptureRun, CaptureSettings, CaptureStatus, Report
from skylog.capture.table import CaptureError, topic_of
from skylog.client import Connection
from skylog.errors import ConfigError, SkylogError
from skylog.job_publisher import TIMEOUT_S, JobPublisher
from skylog.job_status import MAX_TEXT, JobState

logger = logging.getLogger(__name__)

_FIRST_PAUSE_S: Final = 0.25
_LONGEST_PAUSE_S: Final = 10.0
_SOUND_S: Final = 30.0  # a run this long was not a failed attempt


def run_capture(settings: CaptureSettings, stop: Event, report: Report, *, once: bool = False) -> None:
    """Capture until `stop` is set, or with `once` until everything that was there at the start is in the log.

    A failure of the database or of the cluster is logged, and the capture begins again at its position; the first
    attempt to open it raises its error. Raises SkylogError for what somebody has to repair.
    """
    topics = [topic_of(settings.prefix, name) for name in settings.tables]
    title = f"capture: {', '.join(settings.tables)} -> {settings.prefix}"
    with JobPublisher(Connection(settings.bootstrap, timeout_s=TIMEOUT_S), title, "capture", topics) as publisher:
        service = _Service(settings, publisher, report)
        while not stop.is_set() and not service.run(stop, once):
            stop.wait(service.pause_s)


class _Service:
    """Runs a capture again and again."""

    def __init__(self, settings: CaptureSettings, publisher: JobPublisher, report: Report) -> None:
        self._settings = settings
        self._publisher = publisher
        self._report = report
        self._status = CaptureStatus()
        self._rows = self._failures = 0  # of the runs before
        self._has_run = False
        self.pause_s = _FIRST_PAUSE_S

    def run(self, stop: Event, once: bool) -> bool:
        """Run once. Return whether it has ended without a failure."""
        began_s = time.monotonic()
        run = None
        try:
            with ExitStack() as resources:
                run = CaptureRun(self._settings, resources)
                self._has_run = True
                run.run(stop, self._tell, once=once)
            return True
        except (CaptureError, ConfigError):
            raise
        except (psycopg.Error, SkylogError) as error:
            if not self._has_run:
                raise CaptureError(_text(error)) from error
            text = _text(error)[:MAX_TEXT]
            logger.warning("begins again at its position: %s", text)
        self._failures += 1
        self._rows += 0 if run is None else run.changes.rows
        self._status = self._status._replace(
            rows=self._rows, failures=self._failures, is_running=False, last_error=text
        )
        self._publisher.update(state=JobState.RETRYING, last_error=text)
        self._report(self._status)
        was_sound = time.monotonic() - began_s > _SOUND_S
        self.pause_s = _FIRST_PAUSE_S if was_sound else min(self.pause_s * 2, _LONGEST_PAUSE_S)
        return False

    def _tell(self, status: CaptureStatus) -> None:
        status = self._status = status._replace(
            rows=self._rows + status.rows, failures=self._failures, last_error=self._status.last_error
        )
        self._publisher.update(
            state=JobState.RUNNING,
            last_error=None,  # the console keeps the last one
            records_total=status.rows,
            lag_bytes=status.lag_bytes,
            lag_s=round(status.lag_s, 3),
            slot_bytes=status.slot_bytes,
            **({"batch_at_ms": time.time_ns() // 1_000_000} if status.lag_bytes else {}),
        )
        self._report(status)


def _text(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
