"""Event classes: the schema of their events, and the encoding of one. Knows no registry and no producer.

An event is a record `event.NAME` with the fields of the envelope. Its attributes are the record `attributes.NAME`,
whose fields are those of the class.
"""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Callable
from dataclasses import is_dataclass
from typing import Any, Final, TypeVar

from skylog.events.envelope import EventError, EventMessage, actor_of
from skylog.schemas.event_classes import ClassSchemas
from skylog.schemas.field_types import MisfitError
from skylog.tracing import current_headers

ClassT = TypeVar("ClassT", bound=type)

_DECLARED: Final = "__skylog_event__"
_WORD: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_MICROS: Final = {"type": "long", "logicalType": "timestamp-micros"}
_USER: Final = {
    "type": "record",
    "name": "User",
    "namespace": "event",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "created_at", "type": ["null", _MICROS], "default": None},
    ],
}


def event(name: str, *, topic: str | None = None) -> Callable[[ClassT], ClassT]:
    """Name the events of a class, and choose their topic, if it is another than that of the event log.

        @event("post.create")
        @dataclass
        class PostCreate:
            id: int
            title: str

    Without it, the name is that of the class in words: `PostCreate` is `post.create`.
    """

    def declare(kind: ClassT) -> ClassT:
        setattr(kind, _DECLARED, (kind, name, topic))
        return kind

    return declare


class EventClass:
    """The events of one class. Raises EventClassError if Avro cannot describe it."""

    def __init__(self, kind: type, application: str, server: str) -> None:
        self.kind = kind
        self.name, self.topic = _declaration(kind)
        self._application = application
        self._server = server
        attributes = ClassSchemas("attributes").record(kind)
        self._convert = attributes.convert
        schema = {
            "type": "record",
            "name": kind.__name__,
            "namespace": "event",
            "fields": [
                {"name": "id", "type": "string"},
                {"name": "event", "type": "string"},
                {"name": "timestamp", "type": {"type": "long", "logicalType": "timestamp-millis"}},
                {"name": "user", "type": ["null", _USER], "default": None},
                {"name": "attributes", "type": attributes.schema},
                {"name": "server", "type": "string"},
                {"name": "application", "type": "string"},
            ],
        }
        self.schema_text = json.dumps(schema, separators=(",", ":"))
        self._write = _writer(schema)

    def subject(self, topic: str) -> str:
        """Return the subject of the schema: TOPIC-value in a topic of its own, TOPIC-RECORD in the log's topic."""
        return f"{topic}-value" if self.topic is not None else f"{topic}-event.{self.kind.__name__}"

    def seal(self, value: object, user: object, timestamp_ms: int) -> EventMessage:
        """Encode an event, without the id of its schema. Raises EventError."""
        try:
            attributes = self._convert(value)
        except MisfitError as error:
            raise EventError(f"event {self.name}: {error}") from None
        except RecursionError:
            raise EventError(f"event {self.name}: an object contains itself, or is nested too deeply") from None
        actor = None if user is None else actor_of(user)
        record = {
            "id": f"{timestamp_ms:012x}{os.urandom(10).hex()}",
            "event": self.name,
            "timestamp": timestamp_ms,
            "user": None if actor is None else _stored_user(actor),
            "attributes": attributes,
            "server": self._server,
            "application": self._application,
        }
        try:
            payload = self._write(record)
        except ValueError as error:  # text that is not Unicode
            raise EventError(f"event {self.name}: {error}") from error
        key = None if actor is None else str(actor["id"]).encode()
        return EventMessage(payload, key, timestamp_ms, [*current_headers()], self.topic)


def _declaration(kind: type) -> tuple[str, str | None]:
    """Return name and topic of a class. A subclass does not inherit them."""
    if not is_dataclass(kind) and not hasattr(kind, "model_fields"):
        raise EventError(
            f"a {kind.__name__} is no event: fire a name with attributes, a dataclass, or a pydantic model"
        )
    declared, name, topic = getattr(kind, _DECLARED, (None, "", None))
    if declared is not None and declared.__qualname__ == kind.__qualname__:  # dataclass(slots=True) makes a new class
        return name, topic
    return ".".join(_WORD.split(kind.__name__)).lower(), None


def _stored_user(actor: dict[str, Any]) -> dict[str, Any]:
    created_at = actor["created_at"]
    return {"id": str(actor["id"]), "created_at": None if created_at is None else round(created_at * 1_000_000)}


def _writer(schema: dict[str, Any]) -> Callable[[dict[str, Any]], bytes]:
    try:
        import fastavro
    except ImportError as error:
        raise EventError("typed events require `pip install 'skylog[schemas]'`") from error
    parsed = fastavro.parse_schema(schema)
    write = fastavro.schemaless_writer

    def encode(record: dict[str, Any]) -> bytes:
        out = io.BytesIO()
        write(out, parsed, record)
        return out.getvalue()

    return encode
