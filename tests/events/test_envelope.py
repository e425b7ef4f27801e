"""The format of an event."""

from __future__ import annotations

import enum
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from skylog.events.envelope import Envelope, EventError, EventMessage, fired_event

JOINED = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
JOINED_S = 1_700_000_000.0
ENVELOPE = Envelope("blog", "web-1")


def message(user: object = None, timestamp_ms: int = 1_720_791_474_868, **attributes: Any) -> EventMessage:
    return ENVELOPE.seal(fired_event("post.show", user, attributes, timestamp_ms))


def sealed(user: object = None, **attributes: Any) -> dict[str, Any]:
    event: dict[str, Any] = orjson.loads(message(user, **attributes).value)
    return event


def test_an_event_has_the_keys_of_the_envelope_and_no_others() -> None:
    event = sealed({"id": 7, "created_at": JOINED}, id=42, title="Hello")
    event_id = event.pop("id")
    assert event == {
        "event": "post.show",
        "timestamp": 1_720_791_474.868,
        "user": {"id": 7, "created_at": JOINED_S},
        "attributes": {"id": 42, "title": "Hello"},
        "server": "web-1",
        "application": "blog",
    }
    assert len(bytes.fromhex(event_id)) == 16


def test_ids_are_unique_and_sort_by_time() -> None:
    same = {orjson.loads(message(timestamp_ms=5).value)["id"] for _ in range(1000)}
    later = orjson.loads(message(timestamp_ms=6).value)["id"]
    assert len(same) == 1000
    assert later > max(same)


@pytest.mark.parametrize(
    "user",
    [
        SimpleNamespace(id=7, created_at=JOINED),
        SimpleNamespace(pk=7, date_joined=JOINED),
        SimpleNamespace(id=None, pk=7, created_at=JOINED_S),
        {"id": 7, "created_at": JOINED.isoformat()},
        {"pk": 7, "date_joined": int(JOINED_S)},
    ],
)
def test_a_user_is_an_object_or_a_mapping_by_the_names_of_the_frameworks(user: object) -> None:
    assert sealed(user)["user"] == {"id": 7, "created_at": JOINED_S}


@pytest.mark.parametrize("user_id", [0, 7, "ada", uuid.UUID(int=7)])
def test_a_user_may_be_a_plain_id(user_id: object) -> None:
    user = sealed(user_id)["user"]
    assert user == {"id": user_id if isinstance(user_id, int) else str(user_id), "created_at": None}


@pytest.mark.parametrize(
    "user", [None, SimpleNamespace(id=None, pk=None), SimpleNamespace(is_authenticated=False), {}, {"id": None}]
)
def test_a_visitor_who_is_not_logged_in_is_null(user: object) -> None:
    assert sealed(user)["user"] is None


def test_an_object_that_is_no_user_is_refused_with_what_to_do() -> None:
    with pytest.raises(EventError, match="object has neither `id` nor `pk`: pass an object with one"):
        sealed(object())


def test_the_key_is_the_id_of_the_user() -> None:
    assert message({"id": 7}).key == b"7"
    assert message().key is None


def test_the_message_carries_the_time_of_the_event() -> None:
    assert message(timestamp_ms=5).timestamp_ms == 5


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    y: int


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (JOINED, "2023-11-14T22:13:20+00:00"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Colour.RED, "red"),
        (Point(1, 2), {"x": 1, "y": 2}),
        (Decimal("1.50"), "1.50"),
        ({1: "one"}, {"1": "one"}),
        (frozenset([1]), [1]),
        ("naïve".encode(), "naïve"),
        (ValueError("odd"), "odd"),
    ],
)
def test_attributes_may_have_common_python_types(value: object, encoded: object) -> None:
    assert sealed(value=value)["attributes"] == {"value": encoded}


def test_attributes_may_be_called_event_and_user() -> None:
    from skylog.events import EventLog
    from tests.events.fake_producer import FakeProducer

    producer = FakeProducer()
    log = EventLog(producer)
    log.fire("a", None, event="b", user="c", self="d")
    log.close()
    assert producer.events[0]["attributes"] == {"event": "b", "user": "c", "self": "d"}
