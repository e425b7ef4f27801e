"""Event classes: from `fire` to framed Avro in a topic, with a registry that is there, away, or refuses."""

from __future__ import annotations

import dataclasses
import io
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import fastavro
import orjson
import pytest
from pydantic import BaseModel

from skylog.client import Producer
from skylog.events import EventError, EventLog, event
from skylog.schemas.framing import unframe
from skylog.schemas.registry_client import IncompatibleSchemaError, RegistryClient
from skylog.schemas.registry_http import RegistryUnreachableError
from skylog.testing.waiting import wait_until
from tests.broker.process import BrokerProcess
from tests.registry.registry_process import RegistryProcess, running_registry

from .conftest import messages_in
from .fake_producer import FakeProducer

NOWHERE = "http://127.0.0.1:1"


@dataclass
class PostCreate:
    id: int
    title: str
    draft: bool = False


@event("like", topic="likes")
@dataclass(slots=True)
class PostLiked:
    post: int


class CommentCreate(BaseModel):
    body: str
    at: datetime | None = None


@pytest.fixture(scope="module")
def registry(broker: BrokerProcess) -> Iterator[RegistryProcess]:
    with running_registry(broker.bootstrap) as process:
        yield process


def decoded(client: RegistryClient, value: bytes) -> dict[str, Any]:
    schema_id, payload = unframe(value)
    schema = fastavro.parse_schema(orjson.loads(client.schema_by_id(schema_id).text))
    found: Any = fastavro.schemaless_reader(io.BytesIO(payload), schema, None)
    return dict(found)


def test_objects_are_sent_as_framed_avro_and_names_stay_json(registry: RegistryProcess) -> None:
    producer = FakeProducer()
    events = EventLog(producer, topic="blog_log", application="blog", server="web-1", registry=registry.url)
    events.fire(PostCreate(1, "Hello"), {"id": 7, "created_at": 1.5})
    events.fire(PostLiked(1))
    events.fire(CommentCreate(body="first"))
    assert events.flush(30) == 0
    events.fire("page.view", path="/")
    client = RegistryClient(registry.url)
    by_topic = {(topic, key): value for topic, value, key, _ in producer.messages[:3]}
    found = decoded(client, by_topic["blog_log", b"7"])
    assert len(found.pop("id")) == 32
    assert found.pop("timestamp").year >= 2024
    assert found.pop("user")["id"] == "7"
    assert found == {
        "event": "post.create",
        "attributes": {"id": 1, "title": "Hello", "draft": False},
        "server": "web-1",
        "application": "blog",
    }
    assert decoded(client, by_topic["likes", None])["event"] == "like"
    assert orjson.loads(producer.messages[3][1])["event"] == "page.view"
    assert {"blog_log-event.PostCreate", "likes-value"} <= set(client.subjects())
    stats = events.stats()
    assert (stats.fired, stats.handed_over, stats.buffered) == (4, 4, 1)
    events.close()


@dataclass
class Comment:
    answer: Comment | None = None


@dataclass
class Measured:
    value: float


def _circle() -> Comment:
    made = Comment()
    made.answer = made
    return made


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (PostCreate("1", "x"), "event post.create: field 'id' takes an int of at most 64 bits, got str '1'"),  # type: ignore[arg-type]
        (object(), "a object is no event"),
        (_circle(), "event comment: an object contains itself, or is nested too deeply"),
        (Measured(10**400), "event measured: field 'value' takes a float, got int 1000"),
        (Measured(10**5000), "event measured: field 'value' takes a float, got int that cannot be shown: ValueError"),
    ],
)
def test_what_does_not_fit_is_refused_where_it_is_fired(value: object, reason: str) -> None:
    events = EventLog(FakeProducer(), registry=NOWHERE)
    with pytest.raises(EventError, match=reason):
        events.fire(value)
    stats = events.stats()
    assert (stats.fired, stats.dropped["unencodable"], stats.buffered) == (1, 1, 0)
    lenient = EventLog(FakeProducer(), registry=NOWHERE, strict=False)
    lenient.fire(value)
    assert lenient.stats().dropped["unencodable"] == 1


def test_an_event_class_without_a_registry_is_refused_with_the_fix() -> None:
    with pytest.raises(EventError, match=r"EventLog\(\.\.\., registry="):
        EventLog(FakeProducer()).fire(PostLiked(1))


def test_events_wait_while_no_registry_is_there_and_are_sent_in_order_when_one_is(
    broker: BrokerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    process = RegistryProcess(broker.bootstrap).start()
    process.kill()  # its port stays known
    producer = FakeProducer()
    events = EventLog(producer, topic="late", registry=process.url)
    with caplog.at_level(logging.WARNING, "skylog.events"):
        for number in range(3):
            events.fire(PostCreate(number, "x"))
        assert events.flush(0.01) == 3
        wait_until(lambda: "start one with `skylog registry`" in caplog.text, "the log names the fix")
    assert (events.stats().buffered, producer.messages) == (3, [])
    with pytest.raises(RegistryUnreachableError):
        events.register(PostLiked)
    process.start()
    try:
        wait_until(lambda: events.flush(1) == 0, "all events are sent")
        client = RegistryClient(process.url)
        assert [decoded(client, value)["attributes"]["id"] for _, value, *_ in producer.messages] == [0, 1, 2]
    finally:
        process.stop()


def test_a_schema_that_the_registry_refuses_drops_its_events_with_the_reason(
    registry: RegistryProcess, caplog: pytest.LogCaptureFixture
) -> None:
    other = dataclasses.make_dataclass("PostCreate", [("id", str)])
    EventLog(FakeProducer(), topic="changed", registry=registry.url).register(PostCreate)
    events = EventLog(FakeProducer(), topic="changed", registry=registry.url)
    with pytest.raises(IncompatibleSchemaError):
        events.register(other)
    with caplog.at_level(logging.WARNING, "skylog.events"):
        events.fire(other("1"))
        assert events.flush(30) == 0
    assert events.stats().dropped["schema_refused"] == 1
    assert "the registry refuses the schema of post.create" in caplog.text


KINDS = ("page", "post", "comment", "user", "group", "job", "search", "mail", "ad", "profile", "photo", "invite")
VERBS = ("create", "view", "update", "delete", "share")
TYPES: list[tuple[str, type]] = [
    ("id", int),
    ("title", str),
    ("seconds", float),
    ("tags", list[str]),
    ("counts", dict[str, int]),
    ("at", datetime | None),  # type: ignore[list-item]
]


def test_sixty_event_types_in_one_topic(broker: BrokerProcess, registry: RegistryProcess, topic: str) -> None:
    values: dict[str, Any] = {"id": 5, "title": "t", "seconds": 0.5, "tags": ["a"], "counts": {"b": 1}, "at": None}
    classes = [
        dataclasses.make_dataclass(f"{kind.title()}{verb.title()}", TYPES[number % 3 : 4 + number % 3])
        for number, (kind, verb) in enumerate((kind, verb) for kind in KINDS for verb in VERBS)
    ]
    assert len(classes) == 60
    events = EventLog(Producer(broker.bootstrap), topic=topic, registry=registry.url)
    events.register(*classes[:30])
    fired = {}
    for kind in classes:
        attributes = {each.name: values[each.name] for each in dataclasses.fields(kind)}
        fired[f"{topic}-event.{kind.__name__}"] = attributes
        with events.request():
            events.fire(kind(**attributes), 7)
            events.fire(kind(**attributes))
    assert events.flush(60) == 0
    client = RegistryClient(registry.url)
    found = [decoded(client, message.value() or b"") for message in messages_in(broker.bootstrap, topic)]
    names = {f"{topic}-event.{''.join(map(str.title, each['event'].split('.')))}": each["attributes"] for each in found}
    assert len(found) == 120
    assert names == fired
    assert client.subjects(f"{topic}-") == sorted(fired)
