"""Lag has one definition, wherever it is shown."""

from __future__ import annotations

import json

import httpx
from prometheus_client.parser import text_string_to_metric_families

from skylog import Admin, Consumer
from skylog.client import ConsumerGroups, ResetTo
from skylog.testing import BrokerProcess, produce, wait_until
from tests.cli.commands import run_skylog


def printed(broker: BrokerProcess) -> dict[str, int]:
    done = run_skylog("groups", "list", "--json", "--bootstrap", broker.bootstrap)
    assert done.returncode == 0, done.stderr
    return {row["group"]: row["lag"] for row in json.loads(done.stdout)}


def exported(client: httpx.Client) -> dict[str, int]:
    found: dict[str, int] = {}
    for family in text_string_to_metric_families(client.get("/metrics").text):
        for sample in family.samples if family.name == "kafka_consumergroup_lag" else ():
            group = sample.labels["consumergroup"]
            found[group] = found.get(group, 0) + int(sample.value)
    return found


def listed(client: httpx.Client) -> dict[str, int]:
    return {row["name"]: row["lag"] for row in client.get("/groups.json").json()["groups"]}


def test_partitions_without_a_commit_count_alike_in_console_command_and_metrics() -> None:
    with BrokerProcess(console=True) as broker, httpx.Client(base_url=broker.console_url, timeout=30) as client:
        Admin(broker.bootstrap).create_topic("t", 3)
        for partition, count in enumerate((100, 20, 3)):
            produce(broker.bootstrap, "t", [b"x"] * count, partition=partition)
        groups = ConsumerGroups(broker.bootstrap)
        # One subscribes and has committed nothing yet; the other has committed in one partition, without members.
        with Consumer("t", "subscribes", broker.bootstrap, commit="manual") as consumer:
            wait_until(lambda: consumer.consume(timeout_s=0.2), "messages")
            groups.reset(groups.plan_reset("assigns", ResetTo.OFFSET, 40, {"t": [0]}))
            expected = {"subscribes": 123, "assigns": 60}
            assert printed(broker) == expected
            wait_until(lambda: listed(client) == expected, "the same lag in the console's list")
            assert {name: client.get(f"/group.json?name={name}").json()["lag"] for name in expected} == expected
            assert exported(client) == expected
        assert client.get("/topics/t.json").json()["groups"][0]["lag"] == listed(client)["subscribes"]
