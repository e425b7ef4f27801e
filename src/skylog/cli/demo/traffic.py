"""The website's traffic: a thread that answers requests at a rate and fires their events, as an application would."""

from __future__ import annotations

import time
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

from skylog.cli.demo.website import Website

if TYPE_CHECKING:
    from skylog.events import EventLog

_TICK_S: Final = 0.02


class Traffic:
    """Fires about `rate` events per second into `events` from `start` to `stop`."""

    def __init__(self, website: Website, events: EventLog, rate: float) -> None:
        self._website = website
        self._events = events
        self._rate = rate
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="traffic", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """No more requests once this returns; what was fired may still be on its way."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        began = last = time.monotonic()
        owed = 0.0
        while not self._stopping.wait(_TICK_S):
            now = time.monotonic()
            # A machine that stood still for a while does not make up for it with a flood.
            owed = min(owed + (now - last) * self._rate, self._rate)
            last = now
            while owed >= 1 and not self._stopping.is_set():
                owed -= self._answer(now - began)

    def _answer(self, elapsed_s: float) -> int:
        """One request; how many events it fired."""
        happened = self._website.request(elapsed_s)
        with self._events.request():
            for each in happened:
                self._events.fire(each.event, each.user, **each.attributes)
        return len(happened)
