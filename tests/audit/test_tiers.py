"""All three tiers around a real broker report the same counts."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
from confluent_kafka import Message, TopicPartition

from skylog.audit import AUDIT_TOPIC, ConsumerAudit, ProducerAudit, Report, Tier
from skylog.audit.consumer_tier import ConsumedTier, pending_reports
from skylog.client import Producer
from skylog.testing import BrokerProcess, consume
from tests.audit.test_stored_tier import AuditedBroker, in_force
from tests.broker.conftest import create_topic

MINUTE_MS = 60_000
T = 28_000_000 * MINUTE_MS
COUNT = 3000


def produce(broker: AuditedBroker, journal_dir: Path) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": f"127.0.0.1:{broker.port}", "linger.ms": 5})

    def publish(topic: str, value: bytes, done: Callable[[bool], None]) -> None:
        producer.produce(topic, value, on_delivery=lambda error, _: done(error is None))

    tier = ProducerAudit("shop", journal_dir=journal_dir, interval_s=0).open_producer(publish)

    def delivered(error: object, message: Message) -> None:
        assert error is None
        sent_ms = message.timestamp()[1]
        tier.acknowledged("clicks", sent_ms, sent_ms, len(message))

    for number in range(COUNT):
        sent_ms = T + number * 100
        tier.sent("clicks", sent_ms)
        producer.produce("clicks", b"%d" % number, timestamp=sent_ms, on_delivery=delivered)
        if not number % 500:
            producer.poll(0)
            tier.tick()
    producer.flush()
    tier.close()
    producer.flush()


class Member:
    """A group member like `Consumer`: it commits its offsets with its counts."""

    def __init__(self, broker: AuditedBroker, publish: Callable[[str, bytes, Callable[[bool], None]], None]) -> None:
        config = {"bootstrap.servers": f"127.0.0.1:{broker.port}", "group.id": "billing", "enable.auto.commit": False}
        self.consumer = confluent_kafka.Consumer(config)
        self.tier: ConsumedTier = ConsumerAudit().open_consumer("billing", publish)
        (found,) = self.consumer.committed([TopicPartition("clicks", 0)])
        self.metadata = found.metadata
        self.position = max(found.offset, 0)
        self.consumer.assign([TopicPartition("clicks", 0, self.position)])
        self.tier.assigned("clicks", 0, self.metadata)

    def consume(self, count: int) -> None:
        while count:
            messages = self.consumer.consume(count, 5)
            assert messages
            self.tier.consumed(messages)
            count -= len(messages)
            self.position += len(messages)

    def commit(self) -> None:
        text = self.tier.metadata("clicks", 0, self.position)
        self.consumer.commit(offsets=[TopicPartition("clicks", 0, self.position, metadata=text)], asynchronous=False)


def by_window(reports: list[Report], tier: Tier) -> Counter[int]:
    found: Counter[int] = Counter()
    once = {report.id: report for report in reports if report.tier is tier}
    for row in itertools.chain.from_iterable(report.counts for report in in_force_or_all(list(once.values()))):
        found[row.start_ms] += row.messages
    return found


def in_force_or_all(reports: list[Report]) -> list[Report]:
    return in_force(reports) if reports and reports[0].tier is Tier.STORED else reports


def test_produced_stored_and_consumed_are_the_same_in_every_window(tmp_path: Path) -> None:
    with AuditedBroker(tmp_path / "data") as broker:
        create_topic(broker.client, "clicks")
        create_topic(broker.client, AUDIT_TOPIC)
        produce(broker, tmp_path / "audit")
        assert list((tmp_path / "audit").iterdir()) == []
        consumed: list[Report] = []

        def publish(_: str, value: bytes, done: Callable[[bool], None]) -> None:
            consumed.append(Report.decode(value))
            done(True)

        first = Member(broker, publish)
        first.consume(1000)
        first.commit()  # and dies before it can publish; the next one finds its counts
        first.consumer.close()
        second = Member(broker, publish)
        assert second.position == 1000
        assert [report.end_offset for report in pending_reports(second.metadata)] == [1000]
        second.consume(COUNT - 1000)
        second.commit()
        second.tier.committed("clicks", 0, second.position)
        second.tier.close()
        second.consumer.close()
        reports = [*broker.report(), *consumed]
    truth = Counter((T + number * 100) // MINUTE_MS * MINUTE_MS for number in range(COUNT))
    assert by_window(reports, Tier.PRODUCED) == truth
    assert by_window(reports, Tier.CONSUMED) == truth
    # A batch that crosses the end of a window counts for both: the totals are the same.
    assert by_window(reports, Tier.STORED).total() == COUNT


def test_a_producer_publishes_its_last_reports_although_an_attempt_has_just_failed(tmp_path: Path) -> None:
    with BrokerProcess() as broker:
        producer = Producer(broker.bootstrap, audit=ProducerAudit("shop", journal_dir=tmp_path))
        producer.send("clicks", "one")
        producer.flush()
        assert producer._engine is not None
        producer._engine._tried_topic_at = time.monotonic()  # as if the broker had just been unreachable
        producer.close()
        reports = [Report.decode(message.value or b"") for message in consume(broker.bootstrap, AUDIT_TOPIC)]
    assert [(report.tier, report.counts[0].messages) for report in reports] == [(Tier.PRODUCED, 1)]
