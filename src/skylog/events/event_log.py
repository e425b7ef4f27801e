"""Event tracking: what users do in an application, as messages of a topic. Knows neither brokers nor web frameworks.

The events of a request are collected and handed to the producer when the request is over; from there on they are the
producer's: queued in a bounded buffer and sent in the background. Nothing here waits for a broker, except `flush` and
`close`, and nothing here raises into the application's request.
"""

from __future__ import annotations

import atexit
import os
import socket
import threading
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from skylog.clock import Clock, SystemClock
from skylog.events import metrics
from skylog.events.drops import DropReason, Drops, logger
from skylog.events.envelope import Envelope, Message
from skylog.events.producer import EventProducer

COLLECTED_MAX: Final = 100
"""A scope hands over when it has so many events, so that a long one neither grows nor has much to lose."""


@dataclass(frozen=True, slots=True)
class EventStats:
    """Counts since the process began (or was forked). Fired = handed over + dropped before that + still collected."""

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
    ) -> None:
        self.topic = topic
        self.application = application
        self._producer = producer
        self._clock = clock or SystemClock()
        self._flush_timeout_s = flush_timeout_s
        self._envelope = Envelope(application, socket.gethostname() if server is None else server)
        self._scope: ContextVar[RequestScope | None] = ContextVar("skylog_request_scope", default=None)
        self._failed_seen = 0
        self._reset_counts()
        self._open_scopes: set[RequestScope] = set()
        metrics.watched.add(self)
        atexit.register(self.close)

    def _reset_counts(self) -> None:
        self._lock = threading.RLock()  # a finalizer that fires an event may run anywhere
        self._drops = Drops(self.topic, self._clock)
        self._fired = 0
        self._handed_over = 0

    def fire(self, event: str, user: object = None, /, **attributes: Any) -> None:
        """Something has happened, now. Never raises and never waits: what cannot be sent is counted and logged.

        `user` is who did it: an object with `id` (or `pk`) and `created_at` (or `date_joined`), a mapping with these
        keys, an id, or None. Attributes are anything that JSON has, dates, UUIDs, enums and dataclasses; of all else
        goes what `str` makes of it.
        """
        try:
            message = self._envelope.seal(event, user, attributes, self._clock.now_ms())
        except Exception as error:  # the user's properties and the attributes' methods are the application's code
            with self._lock:
                self._fired += 1
            self._drops.add(DropReason.UNENCODABLE, error=f"{event}: {error!r}")
            return
        scope = self._scope.get()
        with self._lock:
            self._fired += 1
            due = [message] if scope is None else scope.add(message)
        if due:
            self._hand_over(due)

    def request(self) -> RequestScope:
        """A scope to use with `with`: events that are fired in it are handed over at its end, come what may."""
        return RequestScope(self)

    def flush(self, timeout_s: float | None = None) -> int:
        """Hand over what is collected and wait until it is stored; how many events are still not."""
        with self._lock:
            due = [message for scope in self._open_scopes for message in scope.take()]
        self._hand_over(due)
        left = self._producer.flush(self._flush_timeout_s if timeout_s is None else timeout_s)
        self._note_undelivered()
        return left

    def close(self) -> None:
        """Send everything that is buffered. Called at the exit of the process; the producer stays open."""
        atexit.unregister(self.close)
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
        self._note_undelivered()
        with self._lock:
            delivered = self._producer.delivered_count
            collected = sum(len(scope.messages) for scope in self._open_scopes)
            # Not what the producer has queued: librdkafka counts its own notices there, too. And a message may be
            # delivered before `_hand_over` has come to count it.
            queued = max(self._handed_over - delivered - self._failed_seen, 0)
            return EventStats(self._fired, self._handed_over, delivered, self._drops.counts(), collected + queued)

    def _hand_over(self, messages: list[Message]) -> None:
        offer = self._producer.offer
        taken = full = 0
        for message in messages:
            try:
                if offer(self.topic, *message):
                    taken += 1
                else:
                    full += 1
            except Exception as error:  # a request must not fail because its events cannot be sent
                self._drops.add(DropReason.REFUSED, error=repr(error))
        with self._lock:
            self._handed_over += taken
        if full:
            self._drops.add(DropReason.BUFFER_FULL, full)
        self._note_undelivered()

    def _note_undelivered(self) -> None:
        failed = self._producer.failed_count
        if failed == self._failed_seen:
            return
        with self._lock:
            count = failed - self._failed_seen
            self._failed_seen = failed
        if count > 0:  # a forked process begins with a producer that has counted nothing
            self._drops.add(DropReason.UNDELIVERED, count)

    def _after_fork(self) -> None:
        """In the child: what the parent has counted and collected is the parent's to report and to send."""
        self._reset_counts()
        for scope in self._open_scopes:
            scope.take()


class RequestScope:
    """Collects the events that one request fires, in all threads and tasks that work for it.

    A scope inside an open one joins it. A task that outlives its request finds the scope closed, and then its events
    are handed over one by one, as they are outside of any scope.
    """

    __slots__ = ("_log", "is_open", "messages")

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self.messages: list[Message] = []
        self.is_open = False

    def __enter__(self) -> RequestScope:
        """The scope that collects: this one, or the one that it joins."""
        log = self._log
        outer = log._scope.get()
        if outer is not None and outer.is_open:
            return outer
        self.is_open = True
        log._scope.set(self)
        with log._lock:
            log._open_scopes.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        if not self.is_open:
            return
        log = self._log
        # The context keeps the scope, which counts as none once it is closed. There is no token to reset by: a WSGI
        # response may end in another context than it began in.
        with log._lock:
            self.is_open = False
            log._open_scopes.discard(self)
            due = self.take()
        if due:
            log._hand_over(due)

    def hand_over(self) -> None:
        """Hand over what is collected so far, as when a part of a long response has been sent."""
        if self.messages:
            with self._log._lock:
                due = self.take()
            self._log._hand_over(due)

    def add(self, message: Message) -> list[Message]:
        """Collect it; what is to be handed over now. The log's lock is held."""
        if not self.is_open:
            return [message]
        self.messages.append(message)
        return self.take() if len(self.messages) >= COLLECTED_MAX else []

    def take(self) -> list[Message]:
        """What is collected, no longer here. The log's lock is held."""
        taken, self.messages = self.messages, []
        return taken


def _after_fork_in_child() -> None:
    for log in list(metrics.watched):
        log._after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
