"""`/brokers/ID`: the configuration, the log directories and the clients of a broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, Producer

from skylog.testing import BrokerProcess, wait_until
from tests.console.conftest import RunningConsole

FORM = {"sec-fetch-site": "same-origin", "accept": "text/html"}


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[BrokerProcess, httpx.Client]]:
    """A broker with its own console."""
    with BrokerProcess(console=True) as broker, httpx.Client(base_url=broker.console_url, timeout=30) as client:
        yield broker, client


def page(client: httpx.Client) -> Any:
    response = client.get("/brokers/1.json")
    assert response.status_code == 200, response.text
    return response.json()


def config(client: httpx.Client, key: str) -> Any:
    [found] = [each for each in page(client)["configs"] if each["name"] == key]
    return found


def test_who_produces_and_who_reads_is_known_by_client_id_and_address(
    served: tuple[BrokerProcess, httpx.Client],
) -> None:
    broker, client = served
    producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "website"})
    for _ in range(20):
        producer.produce("clicks", b"x")
        producer.flush()
    settings = {"group.id": "g", "auto.offset.reset": "earliest", "client.id": "newsletter"}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, **settings})
    consumer.subscribe(["clicks"])
    wait_until(lambda: consumer.poll(0.1), "a message")
    rows = {each["client_id"]: each for each in page(client)["clients"]}
    assert (rows["website"]["writes"], rows["website"]["reads"]) == (["clicks"], [])
    assert (rows["newsletter"]["writes"], rows["newsletter"]["reads"]) == ([], ["clicks"])
    for name in ("website", "newsletter"):
        assert rows[name]["host"] == "127.0.0.1"
        assert rows[name]["connections"] >= 1
        assert "rdkafka" in rows[name]["software"]
    consumer.close()
    del producer
    wait_until(lambda: "newsletter" not in {each["client_id"] for each in page(client)["clients"]}, "it to be gone")


def test_the_log_directory_shows_its_disk_and_its_topics(served: tuple[BrokerProcess, httpx.Client]) -> None:
    broker, client = served
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("large", b"x" * 100_000)
    producer.flush()
    [directory] = page(client)["directories"]
    assert directory["path"] == str(broker.data_dir)
    assert directory["topics"][0]["name"] == "large"
    assert directory["topics"][0]["share"] > 0.5
    assert 0 < directory["free_bytes"] < directory["total_bytes"]


def test_a_setting_changed_at_run_time_is_shown_as_such_and_can_be_taken_back(
    served: tuple[BrokerProcess, httpx.Client],
) -> None:
    _, client = served
    assert config(client, "max.connections")["is_dynamic"] is False
    form = {"action": "set_config", "key": "max.connections", "value": "5000", "scope": "all"}
    assert client.post("/brokers/1", data=form, headers=FORM).status_code == 303
    found = config(client, "max.connections")
    assert (found["value"], found["source"], found["is_dynamic"]) == ("5000", "all brokers, at run time", True)
    assert page(client)["configs"][0]["name"] == "max.connections"
    reset = {"action": "reset_config", "key": "max.connections", "scope": "all"}
    assert client.post("/brokers/1", data=reset, headers=FORM).status_code == 303
    assert config(client, "max.connections")["is_dynamic"] is False


def test_a_rejected_setting_is_shown_again_with_the_reason(served: tuple[BrokerProcess, httpx.Client]) -> None:
    _, client = served
    form = {"action": "set_config", "key": "max.connections", "value": "no number", "scope": "this"}
    response = client.post("/brokers/1", data=form, headers=FORM)
    assert response.status_code in (400, 409)
    assert 'value="no number"' in response.text
    assert 'role="alert"' in response.text


def test_a_console_that_no_broker_started_says_why_it_does_not_know_the_clients(console: RunningConsole) -> None:
    document: Any = console.json("/brokers/1.json")
    assert document["clients"] is None
    assert "only to the console that it started" in document["clients_problem"]
    assert document["configs"]
    assert len(document["directories"]) == 1


@pytest.mark.parametrize(("path", "status"), [("/brokers/77", 409), ("/brokers/x", 400)])
def test_a_broker_that_is_not_there_is_an_error(console: RunningConsole, path: str, status: int) -> None:
    assert console.get(path).status_code == status
