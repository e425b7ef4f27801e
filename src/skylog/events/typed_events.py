"""The event classes of an event log. Imports the parts that need Avro when the first object is fired."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from skylog.clock import Clock
from skylog.events.envelope import EventError, EventMessage

if TYPE_CHECKING:
    from skylog.events.event_class import EventClass
    from skylog.events.event_log import EventLog
    from skylog.events.registrar import Registrar
    from skylog.schemas.registry_client import RegistryClient


class TypedEvents:
    """Encodes objects as events. `registry` is a client, its address, or its settings with Confluent's names."""

    def __init__(
        self, log: EventLog, server: str, registry: str | Mapping[str, str] | RegistryClient | None, clock: Clock
    ) -> None:
        self._log = log
        self._server = server
        self._registry = registry
        self._clock = clock
        self._lock = threading.Lock()
        self._classes: dict[type, EventClass] = {}
        self._registrar: Registrar | None = None

    def seal(self, event: object, user: object, attributes: Mapping[str, object], now_ms: int) -> EventMessage | None:
        """Return the message of an event, or None if it waits for its schema or was dropped. Raises SkylogError."""
        if attributes:
            raise EventError(f"a {type(event).__name__} has attributes of its own: remove {', '.join(attributes)}")
        kind = self._classes.get(type(event)) or self._class_of(type(event))
        assert self._registrar is not None
        return self._registrar.complete(kind, kind.seal(event, user, now_ms))

    def register(self, kinds: Iterable[type]) -> None:
        found = [self._class_of(kind) for kind in kinds]
        if self._registrar is not None:
            self._registrar.register(found)

    def wait(self, timeout_s: float) -> int:
        """Wait for the schemas of events; return the number of events that still wait."""
        return 0 if self._registrar is None else self._registrar.wait(timeout_s)

    @property
    def waiting(self) -> int:
        return 0 if self._registrar is None else self._registrar.waiting

    def reset(self) -> None:
        """Called in a forked process."""
        self._lock = threading.Lock()
        if self._registrar is not None:
            self._registrar.reset()

    def _class_of(self, kind: type) -> EventClass:
        from skylog.events.event_class import EventClass

        with self._lock:
            if kind not in self._classes:
                self._classes[kind] = EventClass(kind, self._log.application, self._server)
            if self._registrar is None:
                self._registrar = self._new_registrar()
            return self._classes[kind]

    def _new_registrar(self) -> Registrar:
        from skylog.events.registrar import Registrar
        from skylog.schemas.registry_client import RegistryClient

        if self._registry is None:
            raise EventError(
                "an event class needs a schema registry: EventLog(..., registry='http://127.0.0.1:8081'), which "
                "`skylog registry` starts"
            )
        known = self._registry
        client = known if isinstance(known, RegistryClient) else RegistryClient(known)
        log = self._log
        return Registrar(client, log.topic, lambda: log._drops, self._clock, log._hand_over)
