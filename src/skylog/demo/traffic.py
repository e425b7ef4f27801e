"""The website's traffic: a thread that handles requests at a given rate and fires their events."""

from __future__ import annotations

import time
from collections.abc import Sequence
from threading import Event, Thread
from typing import TYPE_CHECKING, Final, Protocol

from skylog.demo.website import WebsiteEvent

if TYPE_CHECKING:
    from skylog.events import EventLog

_TICK_S: Final = 0.02


class Visitors(Protocol):
    """Those who use the website."""

    def request(self, elapsed_s: float) -> Sequence[WebsiteEvent]:
        """Return the events of the next request, `elapsed_s` after the start."""
        ...


class Traffic:
    """Fires about `rate` events per second into `events` from `start` to `stop`."""

    def __init__(self, visitors: Sequence[Visitors], events: EventLog, rate: float) -> None:
        self._visitors = visitors
        self._events = events
        self._rate = rate
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="traffic", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop handling requests. Events that were fired may still be queued in the producer."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        began = last = time.monotonic()
        owed = 0.0
        while not self._stopping.wait(_TICK_S):
            now = time.monotonic()
            # Limit the backlog: after a pause of the machine, do not catch up with a burst.
            owed = min(owed + (now - last) * self._rate, self._rate)
            last = now
            while owed >= 1 and not self._stopping.is_set():
                owed -= self._handle_request(now - began)

    def _handle_request(self, elapsed_s: float) -> int:
        """Handle one request. Returns the number of events it fired."""
        fired = [event for each in self._visitors for event in each.request(elapsed_s)]
        with self._events.request():
            for each in fired:
                self._events.fire(each.event, each.user, **each.attributes)
        return len(fired)
