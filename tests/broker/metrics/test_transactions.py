"""Metrics of transactions."""

from __future__ import annotations

from pathlib import Path

from skylog.broker.metrics.transactions import transaction_metrics
from skylog.model import TopicPartition
from tests.broker.conftest import create_topic
from tests.broker.process import BrokerThread
from tests.transactions.client import TransactionClient


def test_transactional_ids_are_counted_by_state_and_the_oldest_transaction_is_timed(tmp_path: Path) -> None:
    settings = {"transaction.state.log.num.partitions": "2"}
    with BrokerThread(tmp_path / "data", settings) as thread, TransactionClient(thread.port) as client:

        def metrics() -> tuple[dict[str, float], float]:
            ids, oldest = thread.run(transaction_metrics(thread.broker))
            (age,) = oldest.samples
            return {sample.labels["state"]: sample.value for sample in ids.samples if sample.value}, age.value

        assert metrics() == ({}, 0)
        client.find()
        create_topic(client, "topic")
        for name in ("a", "b", "c"):
            producer = client.init(name)
            if name != "c":
                client.add(producer, TopicPartition("topic", 0), transactional_id=name)
            if name == "a":
                client.end(producer, True, name)
                client.wait_for("CompleteCommit", name)
        states, age_s = metrics()
        assert states == {"CompleteCommit": 1, "Ongoing": 1, "Empty": 1}
        assert 0 <= age_s < 60
