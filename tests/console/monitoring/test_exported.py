"""The metrics that the console exports itself."""

from __future__ import annotations

from skylog.audit.report import Tier
from skylog.audit.verdict import Balance, Finding, Sizes, Verdict
from skylog.client import ClusterBroker, ClusterDescription, ConsumerGroup, GroupMember, GroupPartition, OffsetRange
from skylog.console.monitoring.cluster_snapshot import ClusterSnapshot
from skylog.console.monitoring.exported import LAG, MEMBERS, audit_metrics, cluster_metrics, complete_lags
from skylog.metric import Metric, Sample
from skylog.model import TopicPartition

MEMBER = GroupMember("id", "client", "host", None, ())


def group(name: str, *lags: int) -> ConsumerGroup:
    partitions = tuple(
        GroupPartition(TopicPartition("t", number), None, OffsetRange(0, lag), None) for number, lag in enumerate(lags)
    )
    return ConsumerGroup(name, "Stable", None, (MEMBER,), partitions)


def values(metrics: list[Metric], name: str) -> dict[tuple[str, ...], float]:
    [found] = [metric for metric in metrics if metric.name == name]
    return {tuple(sample.labels.values()): sample.value for sample in found.samples}


def test_members_and_lag_of_groups_and_brokers_of_the_cluster() -> None:
    cluster = ClusterDescription("c", 1, (ClusterBroker(1, "h", 1, None), ClusterBroker(2, "h", 2, None)), ())
    found = cluster_metrics(ClusterSnapshot(1, groups={"g": group("g", 5, 7)}), cluster, is_up=True)
    assert values(found, "kafka_brokers") == {(): 2}
    assert values(found, MEMBERS) == {("g",): 1}
    assert values(found, LAG) == {("g", "t", "0"): 5, ("g", "t", "1"): 7}


def test_the_lag_in_partitions_on_other_brokers_is_added_for_the_groups_of_this_one() -> None:
    own = {"consumergroup": "g", "topic": "t", "partition": "0"}
    metrics = [
        Metric(MEMBERS, "gauge", "", [Sample(1, {"consumergroup": "g"})]),
        Metric(LAG, "gauge", "", [Sample(6, own)]),
    ]
    snapshot = ClusterSnapshot(1, groups={"g": group("g", 5, 7), "elsewhere": group("elsewhere", 9)})
    assert values(complete_lags(metrics, snapshot), LAG) == {("g", "t", "0"): 6, ("g", "t", "1"): 7}


def window(verdict: Verdict, *findings: Finding) -> Balance:
    return Balance("t", 0, 1, 1, 1, {}, {}, Sizes(1, 1, {}, {}), verdict, findings)


def test_the_audit_is_exported_by_verdict_and_what_an_open_window_lacks_is_not_lost() -> None:
    lost = Finding(Tier.STORED, "", Verdict.LOST, 3)
    found = audit_metrics([window(Verdict.COMPLETE), window(Verdict.LOST, lost), window(Verdict.OPEN, lost)])
    windows = values(found, "skylog_audit_windows")
    assert (windows["t", "complete"], windows["t", "lost"], windows["t", "open"], windows["t", "late"]) == (1, 1, 1, 0)
    assert values(found, "skylog_audit_messages") == {("t", "lost"): 3}
