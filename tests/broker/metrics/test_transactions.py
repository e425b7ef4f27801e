"""Metrics of transactions."""

from __future__ import annotations

from pathlib import Path

from skylog.broker.metrics.transactions import LATE_MS, transaction_metrics
from skylog.metric import Metric
from skylog.model import TopicPartition
from tests.broker.conftest import create_topic
from tests.broker.process import BrokerThread
from tests.transactions.client import TransactionClient


def test_transactional_ids_are_counted_by_state_and_the_oldest_transaction_is_timed(tmp_path: Path) -> None:
    settings = {"transaction.state.log.num.partitions": "2"}
    with BrokerThread(tmp_path / "data", settings) as thread, TransactionClient(thread.port) as client:

        def metrics() -> tuple[dict[str, float], float]:
            ids, oldest, _ = thread.run(transaction_metrics(thread.broker))
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


def test_a_partition_with_a_transaction_far_beyond_its_timeout_is_counted(tmp_path: Path) -> None:
    """Nobody else tells of a transaction that hangs: read_committed consumers wait without an error."""
    with BrokerThread(tmp_path / "data") as thread, TransactionClient(thread.port) as client:

        def late() -> float:
            metrics: list[Metric] = thread.run(transaction_metrics(thread.broker))
            (sample,) = metrics[-1].samples
            return sample.value

        client.find()
        create_topic(client, "topic")
        producer = client.init()
        client.add(producer, TopicPartition("topic", 0))
        client.produce_in(producer, "topic", b"x")
        entry = thread.broker.replicas.leader("topic", 0).log.producers.find(producer.producer_id)
        assert entry is not None
        entry.last_seen_ms -= 900_000 + LATE_MS - 60_000
        assert late() == 0
        entry.last_seen_ms -= 60_000
        assert late() == 1
        client.end(producer, True)
        client.wait_for("CompleteCommit")
        entry.last_seen_ms -= 900_000 + LATE_MS
        assert late() == 0
