"""Work that is done again and again in a thread of its own, but only while somebody wants to see what comes of it."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from skylog.errors import SkylogError

logger = logging.getLogger(__name__)

WANTED_S: Final = 60.0
AGAIN_S: Final = 5.0
_SHARE: Final = 10  # work takes at most one part in so many of the time


class OnDemand:
    """Calls `work` at most every `interval_s`, as long as somebody has asked within the last minute, then `rest`.

    Work that takes long is done less often; a round that failed says nothing of that, and is tried again soon. `work`
    and `rest` are never called by two threads at once. `problem` says why the last round failed, if it did.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[], None],
        interval_s: float,
        rest: Callable[[], None] = lambda: None,
        wanted_s: float = WANTED_S,
    ) -> None:
        self.problem: str | None = None
        self._name = name
        self._work, self._rest = work, rest
        self._interval_s, self._wanted_s = interval_s, wanted_s
        self._changed = threading.Condition()
        self._asked_at = 0.0
        self._rounds = 0
        self._is_running = False
        self._is_closed = False

    async def ask(self, patience_s: float) -> None:
        """Want it for the next minute. Waits for the first round since nobody wanted it, but not longer than so."""
        if not self._want():
            await asyncio.to_thread(self._wait, patience_s)

    def close(self) -> None:
        """Ends after the round at hand; does not wait for that."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _want(self) -> bool:
        """Whether there has been a round lately."""
        with self._changed:
            self._asked_at = time.monotonic()
            if not self._is_running and not self._is_closed:
                self._is_running = True
                self._rounds = 0
                threading.Thread(target=self._run, name=self._name, daemon=True).start()
            return self._rounds > 0

    def _wait(self, patience_s: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._rounds > 0 or self._is_closed, patience_s)

    def _run(self) -> None:
        while True:
            began = time.monotonic()
            self._round(self._work)
            took_s = time.monotonic() - began
            with self._changed:
                self._rounds += 1
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._is_closed, self._pause_s(took_s))
                if not self._is_closed and time.monotonic() - self._asked_at <= self._wanted_s:
                    continue
            self._rest()
            with self._changed:
                if self._is_closed or time.monotonic() - self._asked_at > self._wanted_s:
                    self._is_running = False
                    return

    def _pause_s(self, took_s: float) -> float:
        if self.problem is not None:
            return min(self._interval_s, AGAIN_S)
        return max(self._interval_s - took_s, took_s * (_SHARE - 1))

    def _round(self, work: Callable[[], None]) -> None:
        try:
            work()
        except SkylogError as error:
            if self.problem is None:
                logger.warning("%s: %s", self._name, error)
            self.problem = str(error)
        except Exception:  # a thread's error would be nobody's
            logger.exception("%s failed and is tried again", self._name)
            self.problem = "reading failed; the console's log says why"
        else:
            self.problem = None
