"""Event tracking: what users do in an application, as messages of a topic. Knows neither brokers nor web frameworks.

The events of a request are collected until it is over. From there on they are the courier's, which puts them into their
form and hands them to the producer, in the background. Nothing here waits for a broker, except `flush` and `close`, and
nothing here raises into the application's request.
"""

from __future__ import annotations

import atexit
import os
import socket
import threading
import time
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from skylog.clock import Clock, SystemClock
from skylog.events import metrics
from skylog.events.courier import Courier
from skylog.events.drops import DropReason, Drops, logger
from skylog.events.envelope import FIXED, Envelope, encoded, identify
from skylog.events.producer import EventProducer
from skylog.events.scope import RequestScope

DEFAULT_BUFFER_MAX: Final = 100_000


@dataclass(frozen=True, slots=True)
class EventStats:
    """Counts since the process began (or was forked). Fired = delivered + dropped + buffered.

    Buffered is whatever has no fate yet: it is collected in a scope, or waits for the producer, or in its queue.
    """

    fired: int
    handed_over: int
    delivered: int
    dropped: Mapping[str, int]
    buffered: int


class EventLog:
    """Fires events into a topic.

        events = EventLog(Producer("127.0.0.1:9092"), topic="blog_log", application="blog")

        with events.request():
            events.fire("post.create", user, id=post.id, title=post.title)

    An application has one, as a global; a middleware opens the scope of each request. The producer should be the log's
    own: its counts are taken for those of the events. All methods may be called from any thread and any task.
    """

    def __init__(
        self,
        producer: EventProducer,
        topic: str = "events",
        application: str = "",
        server: str | None = None,
        clock: Clock | None = None,
        flush_timeout_s: float = 10.0,
        buffer_max: int = DEFAULT_BUFFER_MAX,
    ) -> None:
        self.topic = topic
        self.application = application
        self._producer = producer
        self._clock = clock or SystemClock()
        self._time_ns = time.time_ns if clock is None else lambda: clock.now_ms() * 1_000_000
        self._flush_timeout_s = flush_timeout_s
        self._envelope = Envelope(application, socket.gethostname() if server is None else server)
        self._drops = Drops(topic, self._clock)
        self._courier = Courier(producer, topic, self._envelope, self._drops, buffer_max)
        self._scope: ContextVar[RequestScope | None] = ContextVar("skylog_request_scope", default=None)
        self._lock = threading.RLock()  # a finalizer that fires an event may run anywhere
        self._unnoted = 0
        metrics.watched.add(self)
        atexit.register(self.close)

    def fire(self, event: str, user: object = None, /, **attributes: Any) -> None:
        """Something has happened, now. Never raises and never waits: what cannot be sent is counted and logged.

        `user` is who did it: an object with `id` (or `pk`) and `created_at` (or `date_joined`), a mapping with these
        keys, an id, or None. Attributes are anything that JSON has, dates, UUIDs, enums and dataclasses; of all else
        goes what `str` makes of it.
        """
        try:  # all that a request pays for an event is here, and so it calls nothing that it can do without
            if user is None:
                user_id = created_at = None
            else:
                try:
                    user_id, created_at = user.id, user.created_at  # type: ignore[attr-defined] # see the next lines
                except AttributeError:
                    user_id = created_at = None
                if user_id is None or created_at is None:
                    user_id, created_at = identify(user)
            values: Any = attributes
            for value in attributes.values():
                if type(value) not in FIXED:
                    values = encoded(attributes)
                    break
            note = (event, user_id, created_at, values, self._time_ns())
        except Exception as error:  # the user's properties and the attributes' methods are the application's code
            with self._lock:
                self._unnoted += 1
            self._drops.add(DropReason.UNENCODABLE, error=f"{event}: {error!r}")
            return
        scope = self._scope.get()
        if scope is None or not scope.is_open:
            scope = RequestScope(self._scope)
        scope.events.append(note)
        if not scope.is_known:
            self._courier.notice(scope)

    def request(self) -> RequestScope:
        """A scope to use with `with`: events that are fired in it are handed over at its end, come what may."""
        return RequestScope(self._scope)

    def flush(self, timeout_s: float | None = None) -> int:
        """Hand over what is collected and wait until it is stored; how many events are still not."""
        deadline = time.monotonic() + (self._flush_timeout_s if timeout_s is None else timeout_s)
        while True:
            self._courier.drain()
            left = self._producer.flush(max(deadline - time.monotonic(), 0))
            if left or not self._courier:  # if not all of it fitted into the producer's queue, it has room again
                break
        self._courier.note_undelivered()
        return left + len(self._courier)

    def close(self) -> None:
        """Send everything that is buffered. Called at the exit of the process; the producer stays open."""
        atexit.unregister(self.close)
        self._courier.close()
        left = self.flush()
        self._drops.warn()
        if left:
            logger.warning(
                "events for topic %s that were not delivered within %g s of closing: %d; is a broker reachable?",
                self.topic,
                self._flush_timeout_s,
                left,
            )

    def stats(self) -> EventStats:
        self._courier.note_undelivered()
        delivered = self._producer.delivered_count
        handed_over = self._courier.handed_over
        dropped = self._drops.counts()
        fired = self._courier.fired_count() + self._unnoted  # after the others: an event is fired before all else
        buffered = max(fired - delivered - sum(dropped.values()), 0)
        return EventStats(fired, handed_over, delivered, dropped, buffered)

    def _after_fork(self) -> None:
        """In the child: what the parent has counted and collected is the parent's to report and to send."""
        self._lock = threading.RLock()
        self._unnoted = 0
        self._drops.reset()
        self._courier.after_fork()


def _after_fork_in_child() -> None:
    for log in list(metrics.watched):
        log._after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
