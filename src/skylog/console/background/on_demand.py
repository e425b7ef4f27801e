"""A periodic background task that runs only while its results are requested."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from skylog.errors import SkylogError

logger = logging.getLogger(__name__)

IDLE_AFTER_S: Final = 60.0
RETRY_S: Final = 5.0
_MAX_SHARE: Final = 10  # runs take at most a tenth of the time


class OnDemandTask:
    """Calls `work` in a thread, at most every `interval_s`, until there was no request for `idle_after_s`.

    Then it calls `on_idle` and the thread ends. Long runs make the interval longer; a failed run does not, and is
    retried soon. `work` and `on_idle` are never called by two threads at once. `problem` is the error of the last run,
    or None.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[], None],
        interval_s: float,
        on_idle: Callable[[], None] = lambda: None,
        idle_after_s: float = IDLE_AFTER_S,
    ) -> None:
        self.problem: str | None = None
        self._name = name
        self._work, self._on_idle = work, on_idle
        self._interval_s, self._idle_after_s = interval_s, idle_after_s
        self._changed = threading.Condition()
        self._requested_at = 0.0
        self._runs = 0
        self._is_running = False
        self._is_closed = False

    async def request(self, timeout_s: float) -> None:
        """Keep the task running. If it was idle, wait for its first run, at most `timeout_s`."""
        if not self._has_run():
            await asyncio.to_thread(self._wait, timeout_s)

    def close(self) -> None:
        """Stop after the current run. Does not wait for it."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _has_run(self) -> bool:
        """Note the request and start the thread if needed. False before the first run of the thread."""
        with self._changed:
            self._requested_at = time.monotonic()
            if not self._is_running and not self._is_closed:
                self._is_running = True
                self._runs = 0
                threading.Thread(target=self._run, name=self._name, daemon=True).start()
            return self._runs > 0

    def _wait(self, timeout_s: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._runs > 0 or self._is_closed, timeout_s)

    def _run(self) -> None:
        while True:
            began = time.monotonic()
            self._run_once()
            took_s = time.monotonic() - began
            with self._changed:
                self._runs += 1
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._is_closed, self._pause_s(took_s))
                if not self._is_closed and time.monotonic() - self._requested_at <= self._idle_after_s:
                    continue
            self._on_idle()
            with self._changed:
                if self._is_closed or time.monotonic() - self._requested_at > self._idle_after_s:
                    self._is_running = False
                    return

    def _pause_s(self, took_s: float) -> float:
        if self.problem is not None:
            return min(self._interval_s, RETRY_S)
        return max(self._interval_s - took_s, took_s * (_MAX_SHARE - 1))

    def _run_once(self) -> None:
        try:
            self._work()
        except SkylogError as error:
            if self.problem is None:
                logger.warning("%s: %s", self._name, error)
            self.problem = str(error)
        except Exception:  # it would end the thread unnoticed
            logger.exception("%s failed; retrying", self._name)
            self.problem = "reading failed; see the console's log"
        else:
            self.problem = None
