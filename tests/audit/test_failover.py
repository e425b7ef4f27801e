"""The audit of a cluster whose leaders are killed: at the end every message is counted once by every tier."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from skylog.audit import AUDIT_TOPIC, ConsumerAudit, ProducerAudit, Tier
from skylog.audit.verdict import Balance
from skylog.audit_topic import AuditTopic
from skylog.client import Admin, Connection, Consumer, Producer
from skylog.testing import BrokerCluster, wait_until
from tests.proof import proof

TOPIC = "clicks"
GROUP = "readers"
PARTITIONS = 3
END_S = 90.0


@contextmanager
def producing(bootstrap: str, journals: Path) -> Iterator[Producer]:
    """Send audited messages until the end of the block, and wait until all are stored."""
    stopping = threading.Event()
    with Producer(bootstrap, audit=ProducerAudit("shop", journal_dir=journals, interval_s=1)) as producer:

        def send() -> None:
            number = 0
            while not stopping.wait(0.002):
                producer.send(TOPIC, str(number), partition=number % PARTITIONS)
                number += 1

        thread = threading.Thread(target=send)
        thread.start()
        try:
            yield producer
        finally:
            stopping.set()
            thread.join()


def consume_all(bootstrap: str, count: int) -> None:
    with Consumer(TOPIC, GROUP, bootstrap, audit=ConsumerAudit()) as consumer:
        deadline = time.monotonic() + END_S
        while count > 0:
            assert time.monotonic() < deadline, f"{count} messages are missing"
            count -= len(consumer.consume(timeout_s=1))


def balances(bootstrap: str) -> list[Balance]:
    topic = AuditTopic(Connection(bootstrap))
    topic.refresh()
    required = [Tier.PRODUCED, Tier.STORED, Tier.CONSUMED]
    return topic.books(60_000).balance(1 << 62, 0, topics=[TOPIC], groups=[GROUP], required=required)


def bounce(cluster: BrokerCluster, topic: str, producer: Producer) -> None:
    """Kill the leader of a topic, wait until another one has stored messages, and start it again."""
    leader = cluster.leader_of(topic)
    cluster.kill(leader)
    cluster.wait_for_leader(topic, other_than=leader, seconds=60)
    stored = producer.delivered_count
    wait_until(lambda: producer.delivered_count > stored + 100, "messages after the failover", 60)
    cluster.start(leader)
    for each in (AUDIT_TOPIC, TOPIC):
        cluster.wait_until_in_sync(each, seconds=60)


def test_the_books_balance_although_leaders_are_killed_while_messages_are_stored_and_counted(tmp_path: Path) -> None:
    with BrokerCluster(session_timeout_ms=1500) as cluster:
        admin = Admin(Connection(cluster.bootstrap))
        admin.create_topic(AUDIT_TOPIC, 1)
        admin.create_topic(TOPIC, PARTITIONS)
        with producing(cluster.bootstrap, tmp_path) as producer:
            for _ in range(proof(5, 1)):
                for topic in (TOPIC, AUDIT_TOPIC):
                    bounce(cluster, topic, producer)
        assert producer.failed_count == 0
        consume_all(cluster.bootstrap, producer.delivered_count)

        def is_balanced() -> bool:
            found = balances(cluster.bootstrap)
            return bool(found) and all(each.is_balanced for each in found)

        try:
            wait_until(is_balanced, "the books to balance", 60)
        finally:
            found = balances(cluster.bootstrap)
            print(*found, sep="\n")  # pytest shows it if the test fails
        assert sum(each.stored or 0 for each in found) == producer.delivered_count > 500
