"""Event tracking: user actions as messages of a topic. Knows neither brokers nor web frameworks.

The events of a request are collected. When the request ends they are encoded and passed to the producer, which queues
them in a bounded buffer and sends them in the background. Only `flush` and `close` wait for a broker, and nothing here
raises into the application's request.
"""

from __future__ import annotations

import atexit
import os
import socket
import threading
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from time import monotonic
from typing import TYPE_CHECKING, Final, overload

from skylog.clock import Clock, SystemClock
from skylog.errors import SkylogError
from skylog.events import metrics
from skylog.events.drops import DropReason, Drops, logger
from skylog.events.envelope import Envelope, EventMessage, FiredEvent, fired_event
from skylog.events.producer import EventProducer
from skylog.events.typed_events import TypedEvents

if TYPE_CHECKING:
    from skylog.schemas.registry_client import RegistryClient

COLLECTED_MAX: Final = 100
"""A scope passes its events on at this number, so that a long scope neither grows nor can lose many."""


@dataclass(frozen=True, slots=True)
class EventStats:
    """Counts since the process started (or was forked). Fired = handed over + dropped before that + still collected."""

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

    An application has one event log, as a global; a middleware opens the scope of each request. Do not use the producer
    for other messages: its counts are reported as those of the events. All methods are safe in any thread and task.
    """

    def __init__(
        self,
        producer: EventProducer,
        topic: str = "events",
        application: str = "",
        server: str | None = None,
        clock: Clock | None = None,
        flush_timeout_s: float = 10.0,
        *,
        registry: str | Mapping[str, str] | RegistryClient | None = None,
        strict: bool = True,
    ) -> None:
        self.topic = topic
        self.application = application
        self._producer = producer
        self._clock = clock or SystemClock()
        self._flush_timeout_s = flush_timeout_s
        server = socket.gethostname() if server is None else server
        self._envelope = Envelope(application, server)
        self._typed = TypedEvents(self, server, registry, self._clock)
        self._strict = strict
        self._scope: ContextVar[RequestScope | None] = ContextVar("skylog_request_scope", default=None)
        self._failed_seen = 0
        self._reset_counts()
        self._open_scopes: set[RequestScope] = set()
        self._given_up_at: int | None = None  # the producer's count of deliveries when `close` gave up
        metrics.watched.add(self)
        atexit.register(self._close_at_exit)

    def _reset_counts(self) -> None:
        self._lock = threading.RLock()  # reentrant: a finalizer that fires an event may run anywhere
        self._drops = Drops(self.topic, self._clock)
        self._fired = 0
        self._handed_over = 0

    @overload
    def fire(self, event: str, user: object = None, /, **attributes: object) -> None: ...

    @overload
    def fire(self, event: object, user: object = None, /) -> None: ...

    def fire(self, event: object, user: object = None, /, **attributes: object) -> None:
        """Record an event with the current time. Never waits: lost events are counted and logged.

        The event is a name, with attributes, which never raises; or an object of an event class, which is a dataclass
        or pydantic model. If a field of that does not fit its type, EventError is raised, unless the log is not
        `strict`.

        `user` is an object with `id` (or `pk`) and `created_at` (or `date_joined`), a mapping with these keys, an id,
        or None. Attributes may be JSON types, dates, UUIDs, enums and dataclasses; other types are converted by `str`.
        """
        message: FiredEvent | EventMessage | None
        scope = self._scope.get()
        try:
            if isinstance(event, str):
                message = fired_event(event, user, attributes, self._clock.now_ms())
                if scope is None or not message.is_constant:
                    message = self._envelope.seal(message)
            else:
                message = self._typed.seal(event, user, attributes, self._clock.now_ms())
        except Exception as error:  # properties of the user and methods of attributes are application code
            with self._lock:
                self._fired += 1
            self._drop_unencodable(event, error)
            if self._strict and not isinstance(event, str) and isinstance(error, SkylogError):
                raise
            return
        with self._lock:
            self._fired += 1
            if message is None:  # it waits for the id of its schema, or was dropped
                return
            due = [message] if scope is None else scope.add(message)
        if due:
            self._hand_over(due)

    def _drop_unencodable(self, event: object, error: Exception) -> None:
        name = event if isinstance(event, str) else type(event).__name__
        self._drops.add(DropReason.UNENCODABLE, error=f"{name}: {error!r}")

    def register(self, *kinds: type) -> None:
        """Register the schemas of event classes now, for example when the application starts.

        Raises RegistryError, for example if a schema is not compatible with its earlier version. Without this, a
        thread registers a class when its first event is fired.
        """
        self._typed.register(kinds)

    def request(self) -> RequestScope:
        """Return a scope to use with `with`. Its end passes its events to the producer, also after an exception."""
        return RequestScope(self)

    def flush(self, timeout_s: float | None = None) -> int:
        """Pass all collected events on and wait until they are stored; return the number of events that are not."""
        with self._lock:
            due = [message for scope in self._open_scopes for message in scope.take()]
        self._hand_over(due)
        timeout_s = self._flush_timeout_s if timeout_s is None else timeout_s
        until_s = monotonic() + timeout_s
        waiting = self._typed.wait(timeout_s)
        left = self._producer.flush(max(until_s - monotonic(), 0.0))
        self._note_undelivered()
        return left + waiting

    def close(self) -> None:
        """Send all buffered events, and log how many could not be sent. Called at exit. The log stays usable."""
        self._close(self._flush_timeout_s)

    def _close(self, timeout_s: float) -> None:
        left = self.flush(timeout_s)
        self._drops.warn()
        self._given_up_at = self._producer.delivered_count if left else None
        if left:
            logger.warning(
                "events for topic %s that were not delivered within %g s of closing: %d; is a broker reachable?",
                self.topic,
                self._flush_timeout_s,
                left,
            )
        else:
            atexit.unregister(self._close_at_exit)  # later events are the producer's own concern

    def _close_at_exit(self) -> None:
        """Close, and let the producer wait no longer for what could not be sent. All logs of a process share the time.

        If `close` has waited in vain, and nothing was delivered since, it does not wait again.
        """
        began_s = _exit_began_s()
        has_waited = self._given_up_at is not None and self._given_up_at == self._producer.delivered_count
        left_s = max(self._flush_timeout_s - (monotonic() - began_s), 0.0)
        self._close(0.0 if has_waited else left_s)
        if self._given_up_at is not None:
            self._producer.close(0)

    def stats(self) -> EventStats:
        """Return the counts of this process so far."""
        self._note_undelivered()
        with self._lock:
            delivered = self._producer.delivered_count
            collected = sum(len(scope.messages) for scope in self._open_scopes) + self._typed.waiting
            # Not the producer's queue length: librdkafka includes its own events there. And a message may be delivered
            # before `_hand_over` has counted it.
            queued = max(self._handed_over - delivered - self._failed_seen, 0)
            return EventStats(self._fired, self._handed_over, delivered, self._drops.counts(), collected + queued)

    def _hand_over(self, messages: Sequence[FiredEvent | EventMessage]) -> None:
        offer = self._producer.offer
        taken = full = 0
        for collected in messages:
            try:
                message = collected if isinstance(collected, EventMessage) else self._envelope.seal(collected)
            except Exception as error:  # an integer or a text that JSON cannot have
                self._drop_unencodable(collected[0], error)
                continue
            try:
                topic = self.topic if message.topic is None else message.topic
                if offer(topic, message.value, message.key, message.timestamp_ms, message.headers):
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
        if self._producer.failed_count == self._failed_seen:
            return
        with self._lock:
            failed = self._producer.failed_count
            count = failed - self._failed_seen
            self._failed_seen = failed
        if count > 0:  # in a forked process the producer starts again at zero
            self._drops.add(DropReason.UNDELIVERED, count)

    def _after_fork(self) -> None:
        """Reset in the child: the parent reports and sends what it has counted and collected."""
        self._reset_counts()
        self._typed.reset()
        self._given_up_at = None
        for scope in self._open_scopes:
            scope.take()


class RequestScope:
    """Collects the events of one request, in all its threads and tasks.

    A scope inside an open one joins it. If a task outlives its request, the scope is closed, and its events are passed
    on one by one, as outside of any scope.
    """

    __slots__ = ("_log", "is_open", "messages")

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self.messages: list[FiredEvent | EventMessage] = []
        self.is_open = False

    def __enter__(self) -> RequestScope:
        """Return the scope that collects: this one, or the one that it joins."""
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
        # The context keeps the closed scope, which is ignored. A token cannot reset it: a WSGI response may end in
        # another context than it started in.
        with log._lock:
            self.is_open = False
            log._open_scopes.discard(self)
            due = self.take()
        if due:
            log._hand_over(due)

    def hand_over(self) -> None:
        """Pass the events collected so far to the producer, for example after a part of a long response."""
        if self.messages:
            with self._log._lock:
                due = self.take()
            self._log._hand_over(due)

    def add(self, message: FiredEvent | EventMessage) -> list[FiredEvent | EventMessage]:
        """Collect a message; return those to pass on now. The caller holds the log's lock."""
        if not self.is_open:
            return [message]
        self.messages.append(message)
        return self.take() if len(self.messages) >= COLLECTED_MAX else []

    def take(self) -> list[FiredEvent | EventMessage]:
        """Remove and return the collected messages. The caller holds the log's lock."""
        taken, self.messages = self.messages, []
        return taken


@cache
def _exit_began_s() -> float:
    """Return the time of the first call."""
    return monotonic()


def _after_fork_in_child() -> None:
    for log in list(metrics.watched):
        log._after_fork()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork_in_child)
