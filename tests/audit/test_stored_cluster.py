"""The brokers' tier in a cluster: each message is counted once, by its leader, whatever happens to the leaders."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from skylog.audit import AUDIT_TOPIC, Count, Report, StoredTier, Tier
from skylog.audit.stored_checkpoint import CHECKPOINT
from skylog.audit.stored_reports import REPORTS
from skylog.cluster.image import TopicImage
from skylog.errors import ErrorCode, KafkaError
from skylog.model import TopicPartition
from skylog.records import Record, build_batch
from skylog.testing import ManualClock
from tests.audit.test_stored_tier import T, audit_log, in_force, totals
from tests.broker.local_cluster import LocalCluster
from tests.broker.raw import RawClient
from tests.storage.logs import a_batch

MINUTE_MS = 60_000


class AuditedCluster(LocalCluster):
    """Three brokers, each with a tier that reports on request only."""

    tiers: dict[int, StoredTier]

    def __enter__(self) -> AuditedCluster:
        self.tiers = {}
        super().__enter__()
        return self

    def start(self, *node_ids: int) -> None:
        super().start(*node_ids)
        self.tiers |= {node_id: self.look(node_id, StoredTier) for node_id in node_ids}

    def stop(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self.tiers.pop(node_id)
        super().stop(*node_ids)

    def produce(self, topic: str, partition: int = 0, count: int = 1) -> None:
        batch = bytearray(a_batch(count, timestamp=T))
        self.run(next(iter(self.brokers.values())).leader_client.append(TopicPartition(topic, partition), batch))

    def report(self, *node_ids: int) -> list[Report]:
        """Let the tiers of brokers report at once, by default of all; return all reports."""

        async def all_at_once() -> None:
            await asyncio.gather(*(self.tiers[node_id].report() for node_id in node_ids or self.tiers))

        self.run(all_at_once())
        return self.reports()

    def reports(self) -> list[Report]:
        with RawClient(self.ports[self.leader_of(AUDIT_TOPIC)]) as client:
            return audit_log(client)

    def inject(self, start: int, end: int, topic: str = "clicks") -> None:
        """Append a report as a former leader would whose request was delayed."""
        counts = [Count(T, T + MINUTE_MS, end - start, 0)]
        topic_id = str(next(iter(self.brokers.values())).metadata.image.topics[topic].topic_id)
        report = Report(Tier.STORED, "broker-0", topic, counts, 0, 0, start, end, topic_id=topic_id)
        batch = build_batch([Record(value=report.encode(), timestamp=T)])
        self.run(next(iter(self.brokers.values())).leader_client.append(REPORTS, batch))


def ranges(reports: list[Report], partition: int = 0) -> list[tuple[str, int | None, int | None]]:
    """The reports in force of a partition."""
    return [(one.source, one.start_offset, one.end_offset) for one in in_force(reports) if one.partition == partition]


def counted(reports: list[Report]) -> int:
    return Counter(totals(reports)).total()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[AuditedCluster]:
    with AuditedCluster(tmp_path) as cluster:
        cluster.create(AUDIT_TOPIC, [1, 2])
        cluster.create("clicks", [1, 2, 3], [2, 3, 1], [3, 1, 2])
        yield cluster
        assert not any(tier.failures for tier in cluster.tiers.values())


def test_each_message_is_counted_once_by_its_leader(cluster: AuditedCluster) -> None:
    for partition in range(3):
        cluster.produce("clicks", partition, count=10 + partition)
    reports = cluster.report()
    assert [ranges(reports, partition) for partition in range(3)] == [
        [(f"broker-{partition + 1}", 0, 10 + partition)] for partition in range(3)
    ]
    assert counted(reports) == 33
    assert cluster.report() == reports


def test_a_new_leader_continues_where_the_former_one_ended(cluster: AuditedCluster) -> None:
    cluster.produce("clicks", count=5)
    cluster.report()
    cluster.produce("clicks", count=3)
    cluster.stop(1)
    leader = cluster.leader_of("clicks")
    cluster.produce("clicks", count=2)
    assert ranges(cluster.report()) == [("broker-1", 0, 5), (f"broker-{leader}", 5, 10)]
    cluster.start(1)
    cluster.produce("clicks", count=1)
    reports = cluster.report()
    assert ranges(reports)[-1] == (f"broker-{leader}", 10, 11)
    assert counted(reports) == 11


def test_a_broker_that_comes_back_without_its_checkpoint_reads_the_audit_topic(
    cluster: AuditedCluster, tmp_path: Path
) -> None:
    cluster.produce("clicks", 1, count=5)
    cluster.report()
    cluster.stop(2)
    (tmp_path / "broker-2" / CHECKPOINT).unlink()
    cluster.start(2)
    for topic in (AUDIT_TOPIC, "clicks"):
        cluster.until_all_in_sync(topic)
    cluster.stop(1)
    cluster.stop(3)
    assert cluster.leader_of("clicks", 1) == 2
    cluster.produce("clicks", 1, count=1)
    assert ranges(cluster.report(), 1) == [("broker-2", 0, 5), ("broker-2", 5, 6)]


def test_a_report_that_arrives_late_is_followed_by_a_count_of_the_rest(cluster: AuditedCluster) -> None:
    cluster.produce("clicks", count=5)
    cluster.report()
    cluster.produce("clicks", count=5)
    cluster.report()
    cluster.produce("clicks", count=5)
    cluster.report()
    cluster.inject(5, 7)
    assert ranges(cluster.report()) == [("broker-1", 0, 5), ("broker-0", 5, 7), ("broker-1", 7, 15)]


@pytest.mark.parametrize(("start", "end"), [(7, 9), (12, 14), (40, 50)])
def test_a_report_that_begins_inside_another_or_after_the_end_is_replaced(
    cluster: AuditedCluster, start: int, end: int
) -> None:
    for _ in range(2):
        cluster.produce("clicks", count=6)
        cluster.report()
    cluster.inject(start, end)
    reports = cluster.report()
    assert counted(reports) == 12
    assert all(source == "broker-1" for source, *_ in ranges(reports))
    cluster.produce("clicks")
    assert counted(cluster.report()) == 13


def test_only_what_is_committed_is_counted(cluster: AuditedCluster) -> None:
    cluster.produce("clicks", count=5)

    def append(broker: object) -> None:
        partition = cluster.brokers[1].replicas.leader("clicks", 0)
        partition.append(memoryview(bytearray(a_batch(3, timestamp=T))), T, 1)
        assert partition.high_watermark == 5

    async def append_and_report() -> None:
        append(None)
        await cluster.tiers[1].report()

    cluster.run(append_and_report())
    first = ranges(cluster.reports())
    assert first in ([("broker-1", 0, 5)], [("broker-1", 0, 8)])  # replicated before or after the tier looked
    assert counted(cluster.report()) == 8


def test_an_audit_topic_without_a_leader_is_no_failure_for_a_while(
    cluster: AuditedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier = cluster.tiers[3]
    clock = ManualClock()
    monkeypatch.setattr(tier._outage, "_clock", clock)
    error = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
    tier._note(error)
    assert tier.failures == 0
    clock.advance_ms(29_000)
    tier._note(error)
    assert tier.failures == 0
    clock.advance_ms(2000)
    tier._note(error)
    assert tier.failures == 1
    tier.failures = 0


def test_topics_that_were_deleted_are_forgotten(cluster: AuditedCluster) -> None:
    cluster.create("short-lived", [1])
    cluster.produce("short-lived")
    for _ in range(2):
        cluster.report()
    name = TopicPartition("short-lived", 0)
    assert cluster.tiers[3]._reports.progress(name) is not None
    topic: TopicImage = cluster.brokers[1].metadata.image.topics["short-lived"]
    cluster.run(cluster.brokers[1].topics.delete(topic))
    for _ in range(2):
        cluster.report()
    assert cluster.tiers[3]._reports.progress(name) is None
