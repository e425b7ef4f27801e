"""Replays: the preview, the progress, stopping."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from typing import Any

import pytest

from skylog.client import Admin
from skylog.testing import consume, wait_until
from tests.console.messages.conftest import START_MS, Topic

MakeTopic = Callable[..., Topic]


@pytest.fixture
def topic(make_topic: MakeTopic) -> Topic:
    made = make_topic(3)
    made.spread(300, 3)
    return made


def finished(topic: Topic, location: str) -> Any:
    def is_over() -> Any:
        document: Any = topic.console.json(location)
        return document["replay"] if document["replay"]["state"] in ("done", "stopped", "failed") else None

    return wait_until(is_over, "the replay to end")


def values(bootstrap: str, topic: str) -> list[tuple[int, Any]]:
    return sorted((message.partition, message.json()) for message in consume(bootstrap, topic))


def test_a_preview_counts_and_changes_nothing(topic: Topic) -> None:
    into = f"{topic.name}-copy"
    document: Any = topic.console.json(
        f"/topics/{topic.name}/replay?into={into}&since={START_MS + 100_000}&until={START_MS + 160_000}"
    )
    assert document["plan"]["total_offsets"] == 60
    assert (document["plan"]["creates_partitions"], document["plan"]["keeps_partitions"]) == (3, True)
    assert into not in [each.name for each in Admin(topic.bootstrap).list_topics()]


def test_what_was_previewed_is_what_is_sent(topic: Topic) -> None:
    into = f"{topic.name}-copy"
    page = topic.console.get(f"/topics/{topic.name}/replay?into={into}&since={START_MS + 100_000}").text
    form = page[page.index('method="post"') :]
    fields = {name: html.unescape(value) for name, value in re.findall(r'name="(\w+)" value="([^"]*)"', form)}
    topic.spread(50, 3)  # came after the preview
    response = topic.console.post(f"/topics/{topic.name}/replay", **fields)
    assert response.status_code == 303, response.text
    done = finished(topic, response.headers["location"])
    assert (done["state"], done["messages"]) == ("done", 200)
    wanted = [pair for pair in values(topic.bootstrap, topic.name) if 100 <= pair[1] < 300]
    assert values(topic.bootstrap, into) == wanted
    assert "done" in topic.console.get(response.headers["location"]).text


def test_a_stopped_replay_shows_its_progress(topic: Topic) -> None:
    into = f"{topic.name}-copy"
    started = topic.console.post(f"/topics/{topic.name}/replay", action="start", into=into, rate="20")
    location = started.headers["location"]
    topic.console.post(location, action="stop")
    stopped = finished(topic, location)
    assert stopped["state"] == "stopped"
    assert stopped["messages"] < 300
    assert len(consume(topic.bootstrap, into)) == stopped["messages"]
    listed: Any = topic.console.json(f"/topics/{topic.name}/replay")
    assert [each["id"] for each in listed["replays"]] == [stopped["id"]]


def test_programs_start_a_replay_by_offsets(topic: Topic) -> None:
    into = f"{topic.name}-copy"
    fields = {"action": "start", "into": into, "partition": [0, 1], "from": 10, "to": 15}
    answer = topic.console.client.post(f"/topics/{topic.name}/replay.json", json=fields).json()
    assert answer["total_offsets"] == 10
    finished(topic, f"/topics/{topic.name}/replay/{answer['id']}")
    assert len(consume(topic.bootstrap, into)) == 10


def test_a_replay_that_fails_shows_the_reason(make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    topic.send(["a"])
    topic.send_with_unreadable_header(b"b")
    started = topic.console.post(f"/topics/{topic.name}/replay", action="start", into=f"{topic.name}-copy")
    failed = finished(topic, started.headers["location"])
    assert failed["state"] == "failed"
    assert f"{topic.name}-0 at offset 1 has a header whose name is not UTF-8" in failed["error"]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"into": "{topic}"}, "cannot be replayed into itself"),
        ({"into": "a b"}, "may only contain"),
        ({}, "&#39;into&#39; is missing"),
        ({"into": "x", "offsets": "0:5"}, "ranges by partition"),
        ({"into": "x", "offsets": "9:0-5"}, "no partition 9"),
        ({"into": "x", "rate": "0"}, "at least 1"),
        ({"into": "x", "partitioning": "other"}, "must be one of"),
    ],
)
def test_a_replay_that_makes_no_sense_is_refused(numbers: Topic, fields: dict[str, str], expected: str) -> None:
    given = {name: value.format(topic=numbers.name) for name, value in fields.items()}
    response = numbers.console.post(f"/topics/{numbers.name}/replay", action="start", **given)
    assert 400 <= response.status_code < 500
    assert expected in response.text


@pytest.fixture(scope="module")
def numbers(console: Any) -> Topic:
    topic = Topic(console, "replayed-numbers", 1)
    topic.send(range(10))
    return topic


def test_an_unknown_replay_is_not_found(numbers: Topic) -> None:
    assert numbers.console.get(f"/topics/{numbers.name}/replay/abc").status_code == 404
