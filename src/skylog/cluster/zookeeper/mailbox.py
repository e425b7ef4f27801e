"""Passes calls from kazoo's threads to the event loop."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable

logger = logging.getLogger(__name__)


class LoopMailbox:
    """Calls from any thread, made on the event loop in the order in which they were posted.

    One wakeup of the loop makes all calls that are waiting, and `delivered` after them.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, delivered: Callable[[], None]) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._calls: list[Callable[[], None]] = []
        self._delivered = delivered

    def post(self, call: Callable[[], None]) -> None:
        with self._lock:
            self._calls.append(call)
            if len(self._calls) > 1:
                return
        try:
            self._loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:  # the loop is closed: nobody waits for this call
            logger.debug("the event loop was closed before the session")

    def _deliver(self) -> None:
        with self._lock:
            calls, self._calls = self._calls, []
        for call in calls:
            try:
                call()
            except Exception:
                logger.exception("a reply of ZooKeeper was not handled")
        self._delivered()
