"""Registers the schemas of event classes in a thread, and keeps their first events until it has the ids.

A class that the registry refuses is asked for again a minute later, with the next event of it; its events are dropped.
If no registry can be reached, events wait, up to a limit, and the thread tries again.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from skylog.clock import Clock
from skylog.events.drops import DropReason, Drops, logger
from skylog.events.envelope import EventMessage
from skylog.events.event_class import EventClass
from skylog.schemas.framing import prefix
from skylog.schemas.registry_client import RegistryClient, SchemaText
from skylog.schemas.registry_http import RegistryError, RegistryUnreachableError

MOST_WAITING: Final = 10_000
"""Events that wait for the registry. Further ones are dropped."""

REFUSED_S: Final = 60.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0


class Registrar:
    """The ids of event classes. `hand_over` gets the events that have waited, complete."""

    def __init__(
        self,
        registry: RegistryClient,
        topic: str,
        drops: Callable[[], Drops],
        clock: Clock,
        hand_over: Callable[[list[EventMessage]], None],
    ) -> None:
        self._registry = registry
        self._topic = topic
        self._drops = drops
        self._clock = clock
        self._hand_over = hand_over
        self._prefixes: dict[EventClass, bytes] = {}
        self._refused: dict[EventClass, tuple[float, str]] = {}
        self.reset()

    def reset(self) -> None:
        """Forget what waits: a forked process has no thread, and its parent sends it."""
        self._changed = threading.Condition()
        self._waiting: dict[EventClass, deque[EventMessage]] = {}
        self._count = 0
        self._is_running = False

    def complete(self, kind: EventClass, message: EventMessage) -> EventMessage | None:
        """Return the message with the id of its schema. None if it waits for it, or was dropped."""
        found = self._prefixes.get(kind)
        if found is not None:
            return message._replace(value=found + message.value)
        with self._changed:
            if kind in self._prefixes:  # since the line above
                return message._replace(value=self._prefixes[kind] + message.value)
            until, reason = self._refused.get(kind, (0.0, ""))
            if self._clock.monotonic() < until:
                self._drops().add(DropReason.SCHEMA_REFUSED, error=reason)
            elif self._count >= MOST_WAITING:
                self._drops().add(DropReason.BUFFER_FULL, error="no schema registry can be reached")
            else:
                self._waiting.setdefault(kind, deque()).append(message)
                self._count += 1
                self._start()
        return None

    @property
    def waiting(self) -> int:
        """The number of events that wait for the id of their schema."""
        return self._count

    def register(self, kinds: Iterable[EventClass]) -> None:
        """Register schemas now. Raises RegistryError."""
        for kind in kinds:
            begin = self._registered(kind)
            with self._changed:
                if kind not in self._waiting:  # else the thread has to send those first
                    self._prefixes[kind] = begin

    def wait(self, timeout_s: float) -> int:
        """Wait until no event waits, at most `timeout_s`; return the number that still do."""
        with self._changed:
            self._changed.notify_all()  # try again now
            self._changed.wait_for(lambda: not self._count, timeout_s)
            return self._count

    def _start(self) -> None:
        if self._count and not self._is_running:
            self._is_running = True
            threading.Thread(target=self._run, name="skylog-event-schemas", daemon=True).start()

    def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            with self._changed:
                kind = next(iter(self._waiting), None)
                if kind is None:
                    self._is_running = False
                    return
            try:
                begin = self._registered(kind)
                pause_s = FIRST_PAUSE_S
            except RegistryUnreachableError as error:
                logger.warning("events of %s wait for their schema: %s", kind.name, error)
                with self._changed:
                    self._changed.wait(pause_s)
                pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
                continue
            except RegistryError as error:
                self._refuse(kind, f"the registry refuses the schema of {kind.name}: {error}")
                continue
            self._release(kind, begin)

    def _registered(self, kind: EventClass) -> bytes:
        """Register a schema, unless it is; return the bytes before its messages."""
        subject = kind.subject(kind.topic or self._topic)
        return prefix(self._registry.register(subject, SchemaText(kind.schema_text)))

    def _release(self, kind: EventClass, begin: bytes) -> None:
        """Hand the events of a class over, in order. Events stop waiting when there is none left before them."""
        while True:
            with self._changed:
                messages = self._waiting.pop(kind, None)
                if messages is None:
                    self._prefixes[kind] = begin
                    return
            self._hand_over([message._replace(value=begin + message.value) for message in messages])
            self._done(len(messages))

    def _refuse(self, kind: EventClass, reason: str) -> None:
        with self._changed:
            self._refused[kind] = (self._clock.monotonic() + REFUSED_S, reason)
            messages = self._waiting.pop(kind, deque())
        self._drops().add(DropReason.SCHEMA_REFUSED, len(messages), error=reason)
        self._done(len(messages))

    def _done(self, count: int) -> None:
        with self._changed:
            self._count -= count
            self._changed.notify_all()
