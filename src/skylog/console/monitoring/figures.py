"""The figures that the history records for each snapshot: lag, commits, connections, rates and request times."""

from __future__ import annotations

from typing import Final

from skylog.console.monitoring.cluster_snapshot import ClusterSnapshot
from skylog.console.monitoring.history import Key
from skylog.console.monitoring.metric_reader import MetricReader
from skylog.model import TopicPartition

MESSAGES_IN: Final = "messages_in"
BROKER_MESSAGES_IN: Final = "broker_messages_in"
BYTES_IN: Final = "bytes_in"
BYTES_OUT: Final = "bytes_out"
REQUESTS: Final = "requests"
P99_MS: Final = "p99_ms"
LAG: Final = "lag"
COMMITTED: Final = "committed"
APPENDED: Final = "appended"
READ: Final = "read"
CONNECTIONS: Final = "connections"


def figures(before: ClusterSnapshot, now: ClusterSnapshot) -> dict[Key, float]:
    """Return the values that a snapshot adds to the history. Rates need an earlier snapshot."""
    values: dict[Key, float] = {}
    for group in now.groups.values():
        values[LAG, group.name] = group.lag
        values[COMMITTED, group.name] = sum(each.committed_offset or 0 for each in group.partitions)
    connections = now.metrics.total("kafka_server_socketservermetrics_connection_count")
    if connections is not None:
        values[(CONNECTIONS,)] = connections
    seconds = (now.taken_at_ms - before.taken_at_ms) / 1000
    if before.taken_at_ms and seconds > 0:
        values |= _group_counts(before, now)
        values |= _message_rates(before, now, seconds)
        values |= _broker_rates(before.metrics, now.metrics, seconds)
    return values | _details(now)


def _group_counts(before: ClusterSnapshot, now: ClusterSnapshot) -> dict[Key, float]:
    """Return the messages appended to what each group reads, and those that it committed, since the last snapshot.

    Only partitions in both snapshots count. A group that was moved back has committed nothing.
    """
    values: dict[Key, float] = {}
    for name, group in now.groups.items():
        if name not in before.groups:
            continue
        earlier = {each.partition: each for each in before.groups[name].partitions}
        pairs = [(each, earlier[each.partition]) for each in group.partitions if each.partition in earlier]
        values[APPENDED, name] = sum(
            max(each.offsets.end_offset - was.offsets.end_offset, 0)
            for each, was in pairs
            if each.offsets is not None and was.offsets is not None
        )
        values[READ, name] = sum(
            max(each.committed_offset - was.committed_offset, 0)
            for each, was in pairs
            if each.committed_offset is not None and was.committed_offset is not None
        )
    return values


def _details(now: ClusterSnapshot) -> dict[Key, float]:
    """Return values per partition. They come last, because the history may not have room for all of them."""
    values: dict[Key, float] = {}
    for group in now.groups.values():
        for each in group.partitions:
            name = (group.name, each.partition.topic, str(each.partition.partition))
            if each.lag is not None:
                values[LAG, *name] = each.lag
            if each.committed_offset is not None:
                values[COMMITTED, *name] = each.committed_offset
    return values


def _message_rates(before: ClusterSnapshot, now: ClusterSnapshot, seconds: float) -> dict[Key, float]:
    values: dict[Key, float] = {}
    whole = 0.0
    for name, topic in now.topics.items():
        if name in before.topics:
            rate = now.messages_since(before, topic.topic_partitions) / seconds
            values[MESSAGES_IN, name] = rate
            whole += 0 if topic.is_internal else rate
    values[(MESSAGES_IN,)] = whole
    return values | _leader_rates(before, now, seconds)


def _leader_rates(before: ClusterSnapshot, now: ClusterSnapshot, seconds: float) -> dict[Key, float]:
    """Return the rate of messages in the partitions that each broker leads, internal topics included."""
    led: dict[int, list[TopicPartition]] = {}
    for topic in now.topics.values():
        for key, partition in zip(topic.topic_partitions, topic.partitions, strict=True):
            for node_id in partition.replicas:
                led.setdefault(node_id, [])
            if partition.leader >= 0:
                led.setdefault(partition.leader, []).append(key)
    return {
        (BROKER_MESSAGES_IN, str(node_id)): now.messages_since(before, partitions) / seconds
        for node_id, partitions in led.items()
    }


def _broker_rates(before: MetricReader, now: MetricReader, seconds: float) -> dict[Key, float]:
    values: dict[Key, float] = {}
    for key, name in (
        (BYTES_IN, "kafka_server_brokertopicmetrics_bytesin_total"),
        (BYTES_OUT, "kafka_server_brokertopicmetrics_bytesout_total"),
    ):
        earlier = before.by(name, "topic")
        rates = {topic: (total - earlier.get(topic, 0.0)) / seconds for topic, total in now.by(name, "topic").items()}
        if name in before.metrics and all(rate >= 0 for rate in rates.values()):
            values[(key,)] = sum(rates.values())
            values |= {(key, topic): rate for topic, rate in rates.items()}
    name = "kafka_network_requestmetrics_requests_total"
    earlier = before.by(name, "request")
    for api, total in now.by(name, "request").items():
        grown = total - earlier.get(api, 0.0)
        if name in before.metrics and grown >= 0:
            values[REQUESTS, api] = grown / seconds
            p99_ms = now.quantile("kafka_network_requestmetrics_totaltimems", 0.99, before, request=api)
            if p99_ms is not None:
                values[P99_MS, api] = p99_ms
    return values
