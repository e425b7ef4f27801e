"""The pages of topics, against a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from skylog.client import Admin, Consumer
from skylog.testing import BrokerProcess, produce, wait_until
from tests.console.conftest import RunningConsole, running_console


@pytest.fixture
def topic(console: RunningConsole, topic_name: Callable[[], str]) -> str:
    name = topic_name()
    Admin(console.broker.bootstrap).create_topic(name, 3)
    return name


@pytest.fixture(scope="module")
def read_only(broker: BrokerProcess) -> Iterator[RunningConsole]:
    with running_console(broker, "--read-only") as running:
        yield running


def config(console: RunningConsole, topic: str, key: str) -> dict[str, Any]:
    document: Any = console.json(f"/topics/{topic}")
    return next(each for each in document["configs"] if each["name"] == key)


def listed(console: RunningConsole, query: str = "") -> list[str]:
    document: Any = console.json(f"/topics{query}")
    return [topic["name"] for topic in document["topics"]]


def test_a_topic_that_a_form_creates_is_listed_with_what_it_keeps(
    console: RunningConsole, topic_name: Callable[[], str]
) -> None:
    name = topic_name()
    configs = "retention.ms = 3600000\r\n\r\nretention.bytes=1000"
    response = console.post("/topics", action="create", name=name, partitions="5", configs=configs)
    assert (response.status_code, response.headers["location"]) == (303, f"/topics/{name}")
    document: Any = console.json(f"/topics?q={name.upper()}")
    [row] = document["topics"]
    assert row["partitions"] == 5
    assert (row["retention_ms"], row["retention_bytes"]) == (3_600_000, 1000)
    assert "1 h, at most 1.0 kB per partition" in console.get(f"/topics?q={name}").text


@pytest.mark.parametrize(
    ("fields", "status", "expected"),
    [
        ({"name": "a/b"}, 409, "may only contain"),
        ({}, 400, "is missing"),
        ({"name": "fine", "partitions": "many"}, 400, "whole number"),
        ({"name": "fine", "configs": "retention.ms"}, 400, "KEY=VALUE"),
        ({"name": "fine", "configs": "no.such.key=1"}, 409, "no.such.key"),
    ],
)
def test_what_cannot_be_created_is_refused_with_the_reason(
    console: RunningConsole, fields: dict[str, str], status: int, expected: str
) -> None:
    response = console.post("/topics", action="create", **fields)
    assert response.status_code == status, response.text
    assert expected in response.text


def test_a_new_topic_shows_its_partitions_and_messages_at_once(console: RunningConsole, topic: str) -> None:
    produce(console.broker.bootstrap, topic, ["a", "b"], partition=1)
    document: Any = console.json(f"/topics/{topic}")
    assert document["messages"] == 2
    assert [(each["start_offset"], each["end_offset"]) for each in document["partitions"]] == [(0, 0), (0, 2), (0, 0)]
    assert document["partitions"][0]["in_sync_replicas"] == document["partitions"][0]["replicas"]


def test_a_config_is_set_and_reset_and_defaults_are_marked(console: RunningConsole, topic: str) -> None:
    assert config(console, topic, "segment.bytes")["is_default"]
    console.post(f"/topics/{topic}", action="set_config", key="segment.bytes", value="2000000")
    changed = config(console, topic, "segment.bytes")
    assert (changed["value"], changed["source"], changed["is_default"]) == ("2000000", "topic", False)
    console.post(f"/topics/{topic}", action="reset_config", key="segment.bytes")
    assert config(console, topic, "segment.bytes")["is_default"]


def test_the_broker_explains_what_is_wrong_with_a_config(console: RunningConsole, topic: str) -> None:
    response = console.post(f"/topics/{topic}", action="set_config", key="retention.ms", value="soon")
    assert response.status_code == 409
    assert "retention.ms" in response.text


def test_the_list_shows_a_changed_retention_at_once(console: RunningConsole, topic: str) -> None:
    listed(console, f"?q={topic}")
    console.post(f"/topics/{topic}", action="set_config", key="retention.ms", value="7200000")
    document: Any = console.json(f"/topics?q={topic}")
    assert document["topics"][0]["retention_ms"] == 7_200_000


def test_partitions_are_added_and_never_taken_away(console: RunningConsole, topic: str) -> None:
    console.post(f"/topics/{topic}", action="add_partitions", total="4")
    document: Any = console.json(f"/topics/{topic}")
    assert document["partition_count"] == 4
    assert console.post(f"/topics/{topic}", action="add_partitions", total="2").status_code == 409


def test_a_topic_is_deleted_only_with_its_name_typed(console: RunningConsole, topic: str) -> None:
    refused = console.post(f"/topics/{topic}", action="delete", confirm=topic[:-1])
    assert refused.status_code == 400
    assert topic in listed(console, f"?q={topic}")
    deleted = console.post(f"/topics/{topic}", action="delete", confirm=topic)
    assert (deleted.status_code, deleted.headers["location"]) == (303, "/topics")
    assert topic not in listed(console, f"?q={topic}")
    assert console.get(f"/topics/{topic}").status_code == 404


def test_an_unknown_topic_is_not_found_and_not_created(console: RunningConsole, topic: str) -> None:
    response = console.get(f"/topics/{topic}x.json")
    assert response.status_code == 404
    assert f"did you mean {topic}" in response.json()["error"]
    for path in ("messages", "messages/follow", "messages/search?q=x", "messages/export", "replay"):
        assert console.get(f"/topics/{topic}x/{path}").status_code == 404, path
    assert console.post(f"/topics/{topic}x/messages", action="produce", value="x").status_code == 404
    assert f"{topic}x" not in listed(console, "?internal=1")


def test_internal_topics_are_shown_on_request(console: RunningConsole, topic: str) -> None:
    bootstrap = console.broker.bootstrap
    produce(bootstrap, topic, ["a"])
    with Consumer([topic], f"{topic}-group", bootstrap, start="earliest") as consumer:
        next(iter(consumer))
        consumer.commit()
    assert "__consumer_offsets" not in listed(console)
    assert "__consumer_offsets" in listed(console, "?internal=1&q=consumer_offsets")


def test_the_groups_that_read_a_topic_are_shown_with_their_lag(console: RunningConsole, topic: str) -> None:
    bootstrap = console.broker.bootstrap
    produce(bootstrap, topic, range(5), partition=0)
    group = f"{topic} <b>group</b>"
    with Consumer([topic], group, bootstrap, start="earliest") as consumer:
        for message in consumer:
            if message.offset == 2:
                break
        consumer.commit()

    def readers() -> list[dict[str, Any]]:
        document: Any = console.json(f"/topics/{topic}")
        return [each for each in document["groups"] if each["lag"] in (2, 3)]

    wait_until(readers, "the group's lag to be seen")
    assert readers()[0]["name"] == group
    assert "&lt;b&gt;group&lt;/b&gt;" in console.get(f"/topics/{topic}").text


def test_a_topic_whose_name_ends_in_json_has_its_page(console: RunningConsole) -> None:
    name = "ends-in.json"
    response = console.post("/topics", action="create", name=name)
    page = console.get(response.headers["location"])
    assert page.headers["content-type"].startswith("text/html")
    assert "ends-in.json <small>topic" in page.text
    assert console.json(f"/topics/{name}.json")["name"] == name


def test_with_a_parent_broker_a_topic_shows_its_size_and_segments() -> None:
    with BrokerProcess(console=True) as broker, httpx.Client(base_url=broker.console_url, timeout=30) as client:
        Admin(broker.bootstrap).create_topic("sized", 1, configs={"segment.bytes": "10000"})
        for _ in range(3):
            produce(broker.bootstrap, "sized", [b"x" * 9000])

        def topic() -> Any:
            document = client.get("/topics/sized.json").json()
            return document if document["segments"] == 3 else None

        document = wait_until(topic, "three segments")
        assert document["size_bytes"] == document["partitions"][0]["size_bytes"] > 27_000
        assert document["partitions"][0]["segments"] == 3
        assert client.get("/topics.json").json()["topics"][0]["size_bytes"] == document["size_bytes"]


def test_a_read_only_console_shows_everything_and_offers_nothing(read_only: RunningConsole) -> None:
    name = "shown-read-only"
    Admin(read_only.broker.bootstrap).create_topic(name, 1)
    for path in ("/topics", f"/topics/{name}", f"/topics/{name}/messages", f"/topics/{name}/replay"):
        response = read_only.get(path)
        assert response.status_code == 200
        assert 'method="post"' not in response.text
    assert read_only.post(f"/topics/{name}", action="delete", confirm=name).status_code == 403
    assert read_only.post(f"/topics/{name}/messages", action="produce", value="x").status_code == 403
    assert read_only.post(f"/topics/{name}/replay", action="start", into="other").status_code == 403
