"""Keeps a capture running: opens it again after a failure, and publishes its status."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from threading import Event
from typing import Final

import psycopg

from skylog.capture.capture import CaptureRun, CaptureSettings, CaptureStatus
from skylog.capture.table import CaptureError, topic_of
from skylog.client import Connection
from skylog.errors import ConfigError, SkylogError
from skylog.job_publisher import TIMEOUT_S, JobPublisher
from skylog.job_status import MAX_TEXT

logger = logging.getLogger(__name__)

_FIRST_PAUSE_S: Final = 0.25
_LONGEST_PAUSE_S: Final = 10.0
_SOUND_S: Final = 30.0  # a run this long was not a failed attempt


def run_capture(
    settings: CaptureSettings, stop: Event, report: Callable[[CaptureStatus], None], *, once: bool = False
) -> None:
    """Capture until `stop` is set, or with `once` until everything that was there at the start is in the log.

    A failure of the database or of the cluster is logged, and the capture begins again at its position; the first
    attempt to open it raises its error. Raises SkylogError for what somebody has to repair.
    """
    topics = [topic_of(settings.prefix, name) for name in settings.tables]
    title = f"capture: {', '.join(settings.tables)} -> {settings.prefix}"
    with JobPublisher(Connection(settings.bootstrap, timeout_s=TIMEOUT_S), title, "capture", topics) as publisher:
        rows, pause_s, has_run = 0, _FIRST_PAUSE_S, False
        while not stop.is_set():
            began_s = time.monotonic()
            run = None

            def tell(status: CaptureStatus, before: int = rows) -> None:
                status = status._replace(rows=before + status.rows)
                now_ms = time.time_ns() // 1_000_000
                publisher.update(
                    records_total=status.rows,
                    lag_bytes=status.lag_bytes,
                    lag_s=round(status.lag_s, 3),
                    slot_bytes=status.slot_bytes,
                    **({"batch_at_ms": now_ms} if status.lag_bytes else {}),
                )
                report(status)

            try:
                with ExitStack() as resources:
                    run = CaptureRun(settings, resources)
                    has_run = True
                    run.run(stop, tell, once=once)
                    return
            except (CaptureError, ConfigError):
                raise
            except (psycopg.Error, SkylogError) as error:
                if not has_run:
                    raise CaptureError(_text(error)) from error
                publisher.update(last_error=_text(error)[:MAX_TEXT])
                logger.warning("begins again at its position: %s", _text(error))
            rows += 0 if run is None else run.changes.rows
            pause_s = _FIRST_PAUSE_S if time.monotonic() - began_s > _SOUND_S else min(pause_s * 2, _LONGEST_PAUSE_S)
            stop.wait(pause_s)


def _text(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
