"""The format of all events: a JSON object around the application's attributes. Knows no producer.

{"id": "0190f3c1a2b47d1e5a0c9be24f6d7713",     unique; sorts by time
 "event": "post.create",
 "timestamp": 1720791474.868,                  when it happened, in seconds since 1970
 "user": {"id": 7, "created_at": 1700000000.0},  the user; null for an anonymous visitor
 "attributes": {"id": 42, "title": "Hello"},
 "server": "web-1",
 "application": "blog"}
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import date, datetime
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson

from skylog.errors import SkylogError
from skylog.tracing import current_headers

_PLAIN_IDS: Final = (str, int, UUID)
_CONSTANT: Final = frozenset({str, int, float, bool, type(None), UUID, date, datetime})


class EventError(SkylogError):
    """An event that cannot be encoded."""


class FiredEvent(NamedTuple):
    """An event with everything that must be read when it is fired: the user's properties and the current trace."""

    event: str
    actor: dict[str, Any] | None
    attributes: Mapping[str, object]
    timestamp_ms: int
    headers: list[tuple[str, str | bytes | None]]

    @property
    def is_constant(self) -> bool:
        """Whether no value can change any more, so that the event may be encoded later."""
        actor = self.actor
        return _CONSTANT.issuperset(map(type, self.attributes.values())) and (
            actor is None or type(actor["id"]) in _CONSTANT
        )


class EventMessage(NamedTuple):
    """An event that is ready to be sent. The key is the user's id, so that the events of one user stay in order."""

    value: bytes
    key: bytes | None
    timestamp_ms: int
    headers: list[tuple[str, str | bytes | None]]
    topic: str | None = None
    """The topic, if it is another than that of the event log."""


class Envelope:
    """Encodes the events of one application on one server."""

    def __init__(self, application: str, server: str) -> None:
        self._application = application
        self._server = server

    def seal(self, fired: FiredEvent) -> EventMessage:
        """Encode an event. Raises orjson's TypeError, and anything that a `__str__` raises."""
        event, actor, attributes, timestamp_ms, headers = fired
        value = orjson.dumps(
            {
                "id": f"{timestamp_ms:012x}{os.urandom(10).hex()}",
                "event": event,
                "timestamp": timestamp_ms / 1000,
                "user": actor,
                "attributes": attributes,
                "server": self._server,
                "application": self._application,
            },
            _plain,
            orjson.OPT_NON_STR_KEYS,
        )
        key = None if actor is None else str(actor["id"]).encode()
        return EventMessage(value, key, timestamp_ms, headers)


def fired_event(event: str, user: object, attributes: Mapping[str, object], timestamp_ms: int) -> FiredEvent:
    """Note an event. Raises EventError, and anything that a property of `user` raises."""
    actor = None if user is None else actor_of(user)
    return FiredEvent(event, actor, attributes, timestamp_ms, [*current_headers()])


def actor_of(user: Any) -> dict[str, Any] | None:
    """Return the id and the time of creation of a user, or None for an anonymous one. Raises EventError."""
    if isinstance(user, _PLAIN_IDS):
        return {"id": user, "created_at": None}
    get: Callable[[str, None], Any] = user.get if isinstance(user, Mapping) else partial(getattr, user)
    user_id = get("id", None)
    if user_id is None:
        user_id = get("pk", None)
    if user_id is None:
        _check_anonymous(user)
        return None
    created_at = get("created_at", None)
    return {"id": user_id, "created_at": _seconds(get("date_joined", None) if created_at is None else created_at)}


def _check_anonymous(user: Any) -> None:
    """Raise EventError unless `user` is anonymous: an empty mapping, or as in Django, Flask-Login or Starlette."""
    if not isinstance(user, Mapping) and not hasattr(user, "id") and getattr(user, "is_authenticated", True):
        raise EventError(
            f"{type(user).__name__} has neither `id` nor `pk`: pass an object with one, a mapping, or the id itself"
        )


def _seconds(moment: Any) -> float | None:
    if isinstance(moment, str):
        moment = datetime.fromisoformat(moment)
    if isinstance(moment, datetime):
        return moment.timestamp()
    return None if moment is None else float(moment)


def _plain(value: Any) -> Any:
    """Convert types that orjson does not support."""
    if isinstance(value, (set, frozenset)):
        return list(value)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return str(value)
