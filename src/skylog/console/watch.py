"""Looks at the cluster every few seconds, keeps the last look for the pages and its figures for the plots.

A page that is open costs the cluster nothing more: it is drawn from what was seen last. A look that takes long comes
less often, so that looking never takes more than a tenth of the time; one that failed is tried again soon.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from skylog.client import ConsumerGroup, OffsetRange, Topic
from skylog.console.cluster import Clients, Cluster
from skylog.console.history import INTERVAL_S, History, Key
from skylog.console.metric_reader import MetricReader
from skylog.errors import SkylogError
from skylog.metric import Metric, Sample
from skylog.model import TopicPartition

logger = logging.getLogger(__name__)

_SHARE: Final = 10
_SHORTEST_REST_S: Final = 1.0
MESSAGES_IN: Final = "messages_in"
BYTES_IN: Final = "bytes_in"
BYTES_OUT: Final = "bytes_out"
REQUESTS: Final = "requests"
P99_MS: Final = "p99_ms"
LAG: Final = "lag"
COMMITTED: Final = "committed"
CONNECTIONS: Final = "connections"


class MetricSource(Protocol):
    """A broker that tells its metrics to the console beside it. Raises SkylogError where it does not answer."""

    async def metrics(self, *, brief: bool = False) -> list[Metric]:
        """`brief` leaves out what is by group and partition, which the cluster itself tells."""
        ...


@dataclass(frozen=True)
class Look:
    """The cluster at one moment. `metrics` are empty where no broker tells them."""

    taken_at_ms: int
    topics: Mapping[str, Topic] = field(default_factory=dict)
    offsets: Mapping[TopicPartition, OffsetRange] = field(default_factory=dict)
    groups: Mapping[str, ConsumerGroup] = field(default_factory=dict)
    metrics: MetricReader = field(default_factory=MetricReader)

    def messages(self, topic: Topic) -> int:
        """How many offsets the topic holds."""
        return sum(len(self.offsets[key]) for key in topic.topic_partitions if key in self.offsets)

    def messages_since(self, before: Look, topic: Topic) -> int:
        """How many have come since an earlier look, in the partitions that were seen in both."""
        both = [key for key in topic.topic_partitions if key in self.offsets and key in before.offsets]
        return sum(max(self.offsets[key].end_offset - before.offsets[key].end_offset, 0) for key in both)


class Watch:
    """`latest` is the last look that succeeded; `problem` says why the very last one did not, if so."""

    def __init__(self, cluster: Cluster, broker: MetricSource | None) -> None:
        self.history = History()
        self.latest = Look(0)
        self.problem: str | None = None
        self._cluster = cluster
        self._broker = broker
        self._first = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            began = time.monotonic()
            await self.look()
            took_s = time.monotonic() - began
            rest_s = 0.0 if self.problem else took_s * (_SHARE - 1)
            await asyncio.sleep(max(INTERVAL_S - took_s, rest_s, _SHORTEST_REST_S))

    async def first_look(self) -> None:
        """Wait until there has been a look, or an attempt at one."""
        await self._first.wait()

    async def look(self) -> None:
        problem: str | None = None
        try:
            look = await self._cluster.look(_look)
            if self._broker is not None:
                try:
                    look = replace(look, metrics=MetricReader(await self._broker.metrics(brief=True)))
                except SkylogError as error:
                    problem = str(error)  # what the cluster itself has told is still worth having
            before, self.latest = self.latest, look
            self.history.record(look.taken_at_ms, figures(before, look))
        except SkylogError as error:
            problem = str(error)
        except Exception:
            logger.exception("looking at the cluster failed and is tried again")
            problem = "looking at the cluster failed; the console's log says why"
        if problem and not self.problem:
            logger.warning("cannot look at the cluster: %s", problem)
        self.problem = problem
        self._first.set()

    def metrics(self) -> list[Metric]:
        """What can be told of a cluster whose brokers tell nothing themselves."""
        look = self.latest
        ends, starts, lags = [], [], []
        for key, offsets in look.offsets.items():
            labels = {"topic": key.topic, "partition": str(key.partition)}
            ends.append(Sample(offsets.end_offset, labels))
            starts.append(Sample(offsets.start_offset, labels))
        for group in look.groups.values():
            for each in group.partitions:
                if each.lag is not None:
                    topic, partition = each.partition.topic, str(each.partition.partition)
                    labels = {"consumergroup": group.name, "topic": topic, "partition": partition}
                    lags.append(Sample(each.lag, labels))
        return [
            Metric("skylog_console_cluster_up", "gauge", "Whether the cluster answers.", [Sample(self.is_up, {})]),
            Metric("kafka_log_log_logendoffset", "gauge", "The offset of the next message.", ends),
            Metric("kafka_log_log_logstartoffset", "gauge", "The offset of the oldest message.", starts),
            Metric("kafka_consumergroup_lag", "gauge", "Messages that a group has not read.", lags),
        ]

    @property
    def is_up(self) -> bool:
        return self.problem is None and self.latest.taken_at_ms > 0


def _look(clients: Clients) -> Look:
    groups = clients.groups.list_groups()
    topics = {topic.name: topic for topic in clients.admin.list_topics()}
    partitions = [
        TopicPartition(topic.name, partition.index)
        for topic in topics.values()
        for partition in topic.partitions
        if partition.leader >= 0
    ]
    offsets = clients.admin.reachable_offset_ranges(partitions)
    return Look(int(time.time() * 1000), topics, offsets, {group.name: group for group in groups})


def figures(before: Look, look: Look) -> dict[Key, float]:
    """What a look adds to the history. Rates need an earlier look."""
    values: dict[Key, float] = {}
    for group in look.groups.values():
        values[LAG, group.name] = group.lag
        values[COMMITTED, group.name] = sum(each.committed_offset or 0 for each in group.partitions)
    connections = look.metrics.total("kafka_server_socketservermetrics_connection_count")
    if connections is not None:
        values[(CONNECTIONS,)] = connections
    seconds = (look.taken_at_ms - before.taken_at_ms) / 1000
    if before.taken_at_ms and seconds > 0:
        values |= _message_rates(before, look, seconds)
        values |= _broker_rates(before.metrics, look.metrics, seconds)
    return values | _details(look)


def _details(look: Look) -> dict[Key, float]:
    """Of single partitions; they come last, for where there are so many that not all are kept."""
    values: dict[Key, float] = {}
    for group in look.groups.values():
        for each in group.partitions:
            name = (group.name, each.partition.topic, str(each.partition.partition))
            if each.lag is not None:
                values[LAG, *name] = each.lag
            if each.committed_offset is not None:
                values[COMMITTED, *name] = each.committed_offset
    return values


def _message_rates(before: Look, look: Look, seconds: float) -> dict[Key, float]:
    values: dict[Key, float] = {}
    whole = 0.0
    for name, topic in look.topics.items():
        if name in before.topics:
            rate = look.messages_since(before, topic) / seconds
            values[MESSAGES_IN, name] = rate
            whole += 0 if topic.is_internal else rate
    values[(MESSAGES_IN,)] = whole
    return values


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
