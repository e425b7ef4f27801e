"""A broker per module, a new topic per test, and readers for the events in topics."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson
import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from skylog.client import Producer
from skylog.events import EventLog
from tests.broker.process import BrokerProcess

_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("events") / "data") as process:
        yield process


@pytest.fixture
def topic() -> str:
    return f"events{next(_numbers)}"


MakeEvents = Callable[..., EventLog]


@pytest.fixture
def make_events(topic: str) -> Iterator[MakeEvents]:
    """Creates event logs with producers that have these librdkafka settings, and closes them."""
    made = []

    def make(bootstrap: str, settings: Mapping[str, Any] | None = None, application: str = "tests") -> EventLog:
        producer = Producer(bootstrap, config=settings)
        events = EventLog(producer, topic=topic, application=application)
        made.append((events, producer))
        return events

    yield make
    for events, producer in made:
        events.close()
        producer.close(5)


@pytest.fixture
def events(broker: BrokerProcess, make_events: MakeEvents) -> EventLog:
    return make_events(broker.bootstrap)


def messages_in(bootstrap: str, topic: str) -> list[Message]:
    """All messages in the first partition of the topic; an empty list if the topic does not exist."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    try:
        if topic not in consumer.list_topics(timeout=10).topics:
            return []
        _, end_offset = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[Message] = []
        while len(found) < end_offset:
            found += consumer.consume(end_offset - len(found), timeout=1)
        return found
    finally:
        consumer.close()


def events_in(bootstrap: str, topic: str) -> list[dict[str, Any]]:
    return [orjson.loads(message.value() or b"") for message in messages_in(bootstrap, topic)]


def names_in(bootstrap: str, topic: str) -> list[str]:
    return [event["event"] for event in events_in(bootstrap, topic)]
