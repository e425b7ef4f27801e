"""`skylog transactions` as a command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from skylog.errors import ErrorCode
from skylog.transactions import Producer as ProducerId
from tests.transactions.client import TransactionClient

from .conftest import Skylog, running_broker


def open_transaction(skylog: Skylog, topic: str, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": skylog.bootstrap, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=0)
    producer.flush(30)
    return producer


def test_transactions_are_listed_and_described(skylog: Skylog, topic: str) -> None:
    name = f"id-of-{topic}"
    producer = open_transaction(skylog, topic, name)
    rows = {row["transactional_id"]: row for row in json.loads(skylog("transactions", "list", "--json").stdout)}
    assert rows[name]["state"] == "Ongoing"
    assert name in skylog("transactions", "list", "--state", "Ongoing").stdout
    assert name not in skylog("transactions", "list", "--state", "Empty").stdout
    described = json.loads(skylog("transactions", "describe", name, "--json").stdout)
    assert described["state"] == "Ongoing"
    assert described["partitions"] == [{"topic": topic, "partition": 0}]
    assert described["start_ms"] > 0
    text = skylog("transactions", "describe", name).stdout
    assert "Ongoing" in text
    assert "open for" in text
    assert topic in text
    producer.commit_transaction(30)
    assert json.loads(skylog("transactions", "describe", name, "--json").stdout)["start_ms"] is None


def test_an_open_transaction_is_aborted_and_its_producer_fenced(skylog: Skylog, topic: str) -> None:
    name = f"id-of-{topic}"
    producer = open_transaction(skylog, topic, name)
    refused = skylog("transactions", "abort", name, code=1)
    assert "--yes" in refused.stderr
    skylog("transactions", "abort", name, "--yes")
    with pytest.raises(KafkaException) as fenced:
        producer.commit_transaction(30)
    assert fenced.value.args[0].fatal()


def test_what_does_not_exist_is_named(skylog: Skylog, topic: str) -> None:
    assert "no transactional id 'nobody'" in skylog("transactions", "describe", "nobody", code=1).stderr
    assert "no transactional id 'nobody'" in skylog("transactions", "abort", "nobody", "--yes", code=1).stderr
    assert "no state 'Gone'" in skylog("transactions", "list", "--state", "Gone", code=1).stderr
    assert "no topic 'none'" in skylog("transactions", "find-hanging", "--topic", "none", code=1).stderr
    skylog.create(topic)
    options = ["--topic", f"{topic}:0", "--start-offset", "5", "--yes"]
    assert "no transaction begins" in skylog("transactions", "abort", *options, code=1).stderr
    assert "give a transactional id" in skylog("transactions", "abort", "--topic", topic, code=2).stderr


@pytest.fixture
def unverified(tmp_path: Path) -> Iterator[Skylog]:
    """A broker that lets a late batch begin a transaction that nobody ends."""
    option = ("--set", "transaction.partition.verification.enable=false")
    with running_broker(tmp_path / "data", *option) as bootstrap:
        yield Skylog(bootstrap)


def test_a_hanging_transaction_is_found_and_ended(unverified: Skylog) -> None:
    unverified("topics", "create", "orders")
    with TransactionClient(int(unverified.bootstrap.rpartition(":")[2])) as client:
        client.find()
        assert client.produce_in(ProducerId(77, 0), "orders", b"x", b"y", transactional_id="gone") is ErrorCode.NONE
        (found,) = json.loads(unverified("transactions", "find-hanging", "--json").stdout)
        assert (found["topic"], found["partition"], found["start_offset"], found["producer_id"]) == ("orders", 0, 0, 77)
        assert "orders" in unverified("transactions", "find-hanging", "--topic", "orders").stdout
        assert client.list_offset("orders", -1, isolation=1).offset == 0
        unverified("transactions", "abort", "--topic", "orders:0", "--start-offset", "0", "--yes")
        assert client.list_offset("orders", -1, isolation=1).offset == 3
        assert client.committed_values("orders") == []
        assert "no transaction hangs" in unverified("transactions", "find-hanging").stderr


def test_all_hanging_transactions_are_ended_with_one_command(unverified: Skylog) -> None:
    unverified.create("orders", 2)
    with TransactionClient(int(unverified.bootstrap.rpartition(":")[2])) as client:
        client.find()
        for partition in range(2):
            code = client.produce_in(ProducerId(77, 0), "orders", b"x", partition=partition, transactional_id="gone")
            assert code is ErrorCode.NONE
        assert "--yes" in unverified("transactions", "abort", "--hanging", code=1).stderr
        unverified("transactions", "abort", "--hanging", "--topic", "orders:1", "--yes")
        assert [client.list_offset("orders", -1, partition=each, isolation=1).offset for each in range(2)] == [0, 2]
        printed = unverified("transactions", "abort", "--hanging", "--yes")
        assert "the transaction in orders-0 is aborted" in printed.stderr
        assert [client.list_offset("orders", -1, partition=each, isolation=1).offset for each in range(2)] == [2, 2]
        assert "no transaction hangs" in unverified("transactions", "abort", "--hanging").stderr
        assert "give a transactional id" in unverified("transactions", "abort", "id", "--hanging", code=2).stderr
