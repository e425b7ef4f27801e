"""The metrics that the console itself exports: of the cluster, its groups and the audit, in kafka_exporter's names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from skylog.audit.verdict import Balance, Verdict
from skylog.client import ClusterDescription, ConsumerGroup
from skylog.console.monitoring.cluster_snapshot import ClusterSnapshot
from skylog.metric import Metric, Sample

LAG: Final = "kafka_consumergroup_lag"
MEMBERS: Final = "kafka_consumergroup_members"
AUDIT_NAMES: Final = ("skylog_audit_windows", "skylog_audit_messages")
_LAG_HELP: Final = (
    "Messages from the group's committed offset, or else from the log's start, to the end of the partition."
)


def cluster_metrics(snapshot: ClusterSnapshot, cluster: ClusterDescription | None, *, is_up: bool) -> list[Metric]:
    """Return the metrics of a cluster for a console that no broker has started."""
    ends, starts = [], []
    for key, offsets in snapshot.offsets.items():
        labels = {"topic": key.topic, "partition": str(key.partition)}
        ends.append(Sample(offsets.end_offset, labels))
        starts.append(Sample(offsets.start_offset, labels))
    groups = list(snapshot.groups.values())
    members = [Sample(len(group.members), {"consumergroup": group.name}) for group in groups]
    partitions = [Sample(len(topic.partitions), {"topic": name}) for name, topic in snapshot.topics.items()]
    found = [
        Metric("skylog_console_cluster_up", "gauge", "Whether the cluster responds.", [Sample(is_up, {})]),
        Metric("kafka_topic_partitions", "gauge", "Partitions of the topic.", partitions),
        Metric("kafka_log_log_logendoffset", "gauge", "The offset of the next message.", ends),
        Metric("kafka_log_log_logstartoffset", "gauge", "The offset of the oldest message.", starts),
        Metric(MEMBERS, "gauge", "Members of the group.", members),
        Metric(LAG, "gauge", _LAG_HELP, [sample for group in groups for sample in _lags(group)]),
    ]
    if cluster is not None:
        brokers = [Sample(len(cluster.brokers), {})]
        found.insert(1, Metric("kafka_brokers", "gauge", "Live brokers of the cluster.", brokers))
    return found


def complete_lags(metrics: Sequence[Metric], snapshot: ClusterSnapshot) -> list[Metric]:
    """Add the lag in partitions that the broker has no replica of, for the groups that it coordinates."""
    coordinated = {
        sample.labels["consumergroup"] for metric in metrics if metric.name == MEMBERS for sample in metric.samples
    }
    completed = []
    for metric in metrics:
        if metric.name == LAG:
            known = {tuple(sample.labels.values()) for sample in metric.samples}
            groups = [group for name, group in snapshot.groups.items() if name in coordinated]
            lags = (sample for group in groups for sample in _lags(group))
            missing = [sample for sample in lags if tuple(sample.labels.values()) not in known]
            metric = Metric(metric.name, metric.kind, metric.help, [*metric.samples, *missing])
        completed.append(metric)
    return completed


def _lags(group: ConsumerGroup) -> list[Sample]:
    return [
        Sample(
            each.lag,
            {
                "consumergroup": group.name,
                "topic": each.partition.topic,
                "partition": str(each.partition.partition),
            },
        )
        for each in group.partitions
        if each.lag is not None
    ]


def audit_metrics(windows: Iterable[Balance]) -> list[Metric]:
    """Return the number of windows by topic and verdict, and the messages that are lost, duplicated or late in them."""
    counts: Counter[tuple[str, str]] = Counter()
    messages: Counter[tuple[str, str]] = Counter()
    for balance in windows:
        for verdict in Verdict:
            counts[balance.topic, verdict.value] += balance.verdict is verdict
        for finding in balance.findings if balance.verdict is not Verdict.OPEN else ():
            messages[balance.topic, finding.verdict.value] += finding.messages
    return [
        Metric(AUDIT_NAMES[0], "gauge", "Windows of the last day by verdict of the audit.", _by_verdict(counts)),
        Metric(AUDIT_NAMES[1], "gauge", "Messages of the last day by finding of the audit.", _by_verdict(messages)),
    ]


def _by_verdict(counts: Counter[tuple[str, str]]) -> list[Sample]:
    return [Sample(count, {"topic": topic, "verdict": verdict}) for (topic, verdict), count in sorted(counts.items())]
