"""The console with Apache Kafka: everything except the data that only a skylog broker has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from skylog import Admin, Consumer
from skylog.testing import produce, wait_until
from tests.console.conftest import RunningConsole, running_console
from tests.spark.peers.jars import NoJarsError, kafka_jars
from tests.spark.peers.kafka import KafkaProcess


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningConsole]:
    """A console of Apache Kafka with a topic and a group that has read half of it."""
    try:
        jars = kafka_jars()
    except NoJarsError as error:
        pytest.skip(str(error))
    with KafkaProcess(jars, tmp_path_factory.mktemp("kafka")) as kafka:
        Admin(kafka.bootstrap).create_topic("orders", 2, 1)
        produce(kafka.bootstrap, "orders", [f'{{"order": {number}}}' for number in range(20)], partition=1)
        with Consumer("orders", "billing", kafka.bootstrap, commit="manual") as consumer:
            messages: list[object] = []

            def has_ten() -> bool:
                messages.extend(consumer.consume(10 - len(messages), 0.5))
                return len(messages) == 10

            wait_until(has_ten, "ten")
            consumer.commit()
        with running_console(kafka) as console:
            yield console


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/cluster",
        "/topics?internal=1",
        "/topics/orders",
        "/topics/orders/messages",
        "/topics/orders/messages/1/3",
        "/topics/orders/messages/search?q=order",
        "/topics/orders/replay",
        "/groups",
        "/group?name=billing",
        "/audit",
        "/pipelines",
        "/metrics",
        "/health",
    ],
)
def test_every_page_is_there(foreign: RunningConsole, path: str) -> None:
    answer = foreign.client.get(path, headers={"accept": "text/html"})
    assert answer.status_code == 200, answer.text


def test_figures_that_need_a_skylog_broker_are_unknown(foreign: RunningConsole) -> None:
    overview: dict[str, Any] = foreign.json("/?format=json")
    assert overview["figures"]["bytes_in_per_s"] is None
    assert overview["figures"]["messages"] == 20
    assert overview["requests"] == []


def test_the_cluster_is_described(foreign: RunningConsole) -> None:
    document: dict[str, Any] = foreign.json("/cluster.json")
    assert [broker["node_id"] for broker in document["brokers"]] == [document["controller_id"]] == [1]
    assert (document["problems"], document["reassignments_problem"]) == ([], None)


def test_messages_are_read_and_produced(foreign: RunningConsole) -> None:
    document: dict[str, Any] = foreign.json("/topics/orders/messages.json?partition=1&offset=7&limit=2")
    assert [message["value"] for message in document["messages"]] == [{"order": 7}, {"order": 8}]
    answer = foreign.client.post(
        "/topics/orders/messages",
        json={"action": "produce", "value": "x", "partition": 0},
        headers={"accept": "application/json"},
    )
    assert answer.json() == {"topic": "orders", "partition": 0, "offset": 0}


def test_a_group_is_shown_and_reset(foreign: RunningConsole) -> None:
    group: dict[str, Any] = foreign.json("/group?name=billing")
    assert [(each["partition"], each["committed_offset"]) for each in group["partitions"]] == [(0, None), (1, 10)]
    asked = {"action": "reset", "move": "orders:1:4"}
    answer = foreign.client.post("/group?name=billing", json=asked, headers={"accept": "application/json"})
    assert answer.status_code == 200, answer.text
    assert [each["committed_offset"] for each in foreign.json("/group?name=billing")["partitions"]] == [None, 4]  # type: ignore[attr-defined]


def test_topics_are_made_configured_and_deleted(foreign: RunningConsole) -> None:
    def post(path: str, **fields: object) -> int:
        return foreign.client.post(path, json=fields, headers={"accept": "application/json"}).status_code

    assert post("/topics", action="create", name="made-here", partitions=1) == 200
    wait_until(lambda: foreign.get("/topics/made-here.json").status_code == 200, "the topic")
    assert post("/topics/made-here", action="set_config", key="retention.ms", value="1000") == 200
    assert post("/topics/made-here", action="set_config", key="no.such.key", value="1000") == 409
    assert post("/topics/made-here", action="delete", confirm="made-here") == 200
