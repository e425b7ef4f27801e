"""A message from a form, and from a program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from skylog.testing import consume
from tests.console.messages.conftest import Topic

MakeTopic = Callable[..., Topic]


def send_json(topic: Topic, **fields: Any) -> httpx.Response:
    headers = {"accept": "application/json"}
    return topic.console.client.post(topic.path, json={"action": "produce", **fields}, headers=headers)


def test_a_form_stores_a_message_and_leads_to_it(make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    response = topic.console.post(
        topic.path, action="produce", key="k", value="one\r\ntwo", headers="a=1\r\nb=x=y", partition="2"
    )
    assert response.status_code == 303, response.text
    page = topic.console.get(response.headers["location"]).text
    assert "Stored in partition 2 at offset 0" in page
    [message] = consume(topic.bootstrap, topic.name)
    assert (message.key, message.value, message.partition) == (b"k", b"one\ntwo", 2)
    assert message.headers == (("a", b"1"), ("b", b"x=y"))


def test_a_program_stores_bytes_and_gets_the_offset(make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    first = send_json(topic, value="/wA=", value_encoding="base64", headers=["a=1", "b=2"])
    assert first.json() == {"topic": topic.name, "partition": 0, "offset": 0}
    assert send_json(topic, value="line\r\n").json()["offset"] == 1
    stored = consume(topic.bootstrap, topic.name)
    assert [message.value for message in stored] == [b"\xff\x00", b"line\r\n"]
    assert stored[0].key is None
    assert stored[0].headers == (("a", b"1"), ("b", b"2"))


def test_a_tombstone_has_no_value_and_an_empty_value_is_one(make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    topic.console.post(topic.path, action="produce", key="k", value="", tombstone="on")
    topic.console.post(topic.path, action="produce", key="k", value="")
    assert [message.value for message in consume(topic.bootstrap, topic.name)] == [None, b""]


def test_keys_go_where_other_clients_send_them(make_topic: MakeTopic) -> None:
    topic = make_topic(5)
    for number in range(3):
        topic.send([number], key=f"key-{number}")
    for number in range(3):
        send_json(topic, key=f"key-{number}", value=str(number))
    places: dict[bytes | None, set[int]] = {}
    for message in consume(topic.bootstrap, topic.name):
        places.setdefault(message.key, set()).add(message.partition)
    assert all(len(partitions) == 1 for partitions in places.values())


@pytest.fixture(scope="module")
def small_topic(console: Any) -> Topic:
    return Topic(console, "takes-little", 1)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"value": "x", "partition": 7}, "no partition 7"),
        ({"value": "x", "partition": -1}, "at least 0"),
        ({"value": "x", "headers": "no separator"}, "NAME=VALUE"),
        ({"value": "x", "tombstone": True}, "no value"),
        ({"value": "???", "value_encoding": "base64"}, "not base64"),
        ({"value": {"an": "object"}}, "must be a string"),
        ({"value": "x", "action": "destroy"}, "must be one of produce"),
    ],
)
def test_what_cannot_be_sent_is_refused_with_a_reason(
    small_topic: Topic, fields: dict[str, Any], expected: str
) -> None:
    response = send_json(small_topic, **fields)
    assert response.status_code == 400
    assert expected in response.json()["error"]


def test_a_message_that_the_broker_does_not_take_is_reported(make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    topic.console.post(f"/topics/{topic.name}", action="set_config", key="max.message.bytes", value="1000")
    response = send_json(topic, value="x" * 10_000)
    assert response.status_code == 400
    assert "was not delivered" in response.json()["error"]
