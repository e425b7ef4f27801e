"""Collects all metrics of a broker from its parts.

Metrics have Kafka's names in the lower-case form of Prometheus' JMX exporter. Those of consumer groups have the names
of kafka_exporter. Names that Kafka does not have begin with `skylog_` or `process_`.

A broker may have thousands of partitions and groups, so metrics are yielded in pieces of a few hundred values, and the
event loop runs in between. The values of one collection are therefore not all of the same instant, and no caller has
to hold all of them in memory.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from skylog import __version__
from skylog.broker.metrics.groups import PIECE_SAMPLES, group_metrics
from skylog.broker.metrics.latency import Latency
from skylog.broker.metrics.mirrors import mirror_metrics
from skylog.broker.metrics.process import process_metrics
from skylog.broker.metrics.quotas import quota_metrics
from skylog.broker.metrics.replication import replication_metrics
from skylog.broker.metrics.requests import request_name
from skylog.broker.metrics.transactions import transaction_metrics
from skylog.metric import Kind, Metric, Sample
from skylog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from skylog.broker.broker import Broker
    from skylog.broker.partition import Partition

_AT_ONCE: Final = 50
_NONE: Final[dict[str, str]] = {}


async def stream(broker: Broker, *, brief: bool = False) -> AsyncGenerator[Metric, None]:
    """Yield the broker's metrics in pieces of a few milliseconds' work; `brief` omits `kafka_consumergroup_…`.

    A metric with many values is split into several pieces of the same name. Call it on the broker's event loop, between
    `start` and `stop`.
    """
    loop = asyncio.get_running_loop()
    of_process: Awaitable[list[Metric]] = loop.run_in_executor(None, process_metrics, broker.log_dir.path)
    of_logs = await _partitions(broker)
    for metric in (
        *_requests(broker),
        *_broker(broker),
        *_cluster(broker),
        *_loop(broker),
        *_flushes(broker),
        *_cleaner(broker),
        *quota_metrics(broker),
        *await replication_metrics(broker),
        *await transaction_metrics(broker),
        *await mirror_metrics(broker),
        *of_logs,
    ):
        for piece in _in_pieces(metric):
            yield piece
            await asyncio.sleep(0)
    async for piece in group_metrics(broker, brief=brief):
        yield piece
        await asyncio.sleep(0)
    for metric in await of_process:
        yield metric


async def collect(broker: Broker) -> list[Metric]:
    """Return all metrics of the broker."""
    whole: dict[str, Metric] = {}
    samples: dict[str, list[Sample]] = {}
    async for piece in stream(broker):
        whole.setdefault(piece.name, piece)
        samples.setdefault(piece.name, []).extend(piece.samples)
    return [Metric(name, each.kind, each.help, samples[name]) for name, each in whole.items()]


def _in_pieces(metric: Metric) -> Iterator[Metric]:
    for at in range(0, len(metric.samples) or 1, PIECE_SAMPLES):
        yield Metric(metric.name, metric.kind, metric.help, metric.samples[at : at + PIECE_SAMPLES])


def _single(name: str, kind: Kind, help_text: str, value: float, labels: dict[str, str] = _NONE) -> Metric:
    return Metric(name, kind, help_text, [Sample(value, labels)])


def _requests(broker: Broker) -> list[Metric]:
    requests = broker.requests
    counts, totals, locals_ = [], [], []
    for api_key, versions in requests.by_api().items():
        label = {"request": request_name(api_key)}
        for version, times in versions.items():
            counts.append(Sample(times.count, {**label, "version": str(version)}))
        at_once = [times.at_once for times in versions.values()]
        totals += Latency.total([*at_once, *(times.waited for times in versions.values())]).samples(label)
        locals_ += Latency.total([*at_once, *(times.until_parked for times in versions.values())]).samples(label)
    errors = [
        Sample(count, {"request": request_name(api_key), "error": error})
        for (api_key, error), count in sorted(requests.errors.items())
    ]
    prefix = "kafka_network_requestmetrics"
    return [
        Metric(f"{prefix}_requests_total", "counter", "Requests handled.", counts),
        Metric(
            f"{prefix}_totaltimems",
            "histogram",
            "Milliseconds from a request's receipt to its response, including the time a fetch waits for data.",
            totals,
        ),
        Metric(
            f"{prefix}_localtimems",
            "histogram",
            "Milliseconds from a request's receipt to its response or to the start of a wait.",
            locals_,
        ),
        Metric(
            f"{prefix}_errors_total",
            "counter",
            "Errors in responses, counted per partition if the response is by partition.",
            errors,
        ),
    ]


def _broker(broker: Broker) -> list[Metric]:
    partitions = broker.replicas.all()
    offline = len(broker.replicas.offline) + sum(partition.log.failure is not None for partition in partitions)
    failures = [Sample(job.failures, {"job": name}) for name, job in sorted(broker.background.items())]
    topics, server = "kafka_server_brokertopicmetrics", "kafka_server_replicamanager"
    sockets = "kafka_server_socketservermetrics"
    return [
        _single(
            f"{topics}_failedproducerequests_total",
            "counter",
            "Rejected batches.",
            broker.requests.failures(ApiKey.PRODUCE),
        ),
        _single(
            f"{topics}_failedfetchrequests_total",
            "counter",
            "Partitions that fetches could not read.",
            broker.requests.failures(ApiKey.FETCH),
        ),
        _single(f"{server}_partitioncount", "gauge", "Partitions on this broker.", len(partitions)),
        _single(f"{server}_offlinereplicacount", "gauge", "Partitions that are offline or take no appends.", offline),
        _single(
            "skylog_damaged_ranges",
            "gauge",
            "Ranges of log files that are damaged and not served.",
            sum(len(partition.log.damages) for partition in partitions),
        ),
        *_repairs(broker),
        _single(
            "skylog_offline_logs",
            "gauge",
            "Logs that cannot be opened, or take no appends after a failed fsync.",
            offline,
        ),
        _single(f"{sockets}_connection_count", "gauge", "Open client connections.", len(broker.listener.connections)),
        _single(
            f"{sockets}_connection_creation_total",
            "counter",
            "Connections accepted.",
            broker.listener.accepted_total,
        ),
        _single(
            "kafka_server_fetchsessioncache_numincrementalfetchsessions",
            "gauge",
            "Open fetch sessions.",
            len(broker.fetch_sessions),
        ),
        Metric("skylog_background_failures_total", "counter", "Failures of background jobs.", failures),
        _single("skylog_build_info", "gauge", "1, with the version as a label.", 1, {"version": __version__}),
        _single(
            "process_start_time_seconds",
            "gauge",
            "Start time of the broker, in seconds since the epoch.",
            broker.started_at_ms / 1000,
        ),
    ]


def _cluster(broker: Broker) -> list[Metric]:
    """Return what every broker knows of the cluster, under the names of kafka_exporter."""
    image = broker.metadata.image
    partitions = [(name, len(topic.partitions)) for name, topic in image.topics.items()]
    return [
        _single("kafka_brokers", "gauge", "Live brokers of the cluster.", len(image.brokers)),
        Metric(
            "kafka_topic_partitions",
            "gauge",
            "Partitions of the topic.",
            _labelled("topic", partitions),
        ),
    ]


def _repairs(broker: Broker) -> list[Metric]:
    scrubber, repairs = broker.membership.scrubber, broker.membership.repairs
    return [
        _single(
            "skylog_repaired_ranges_total",
            "counter",
            "Damaged ranges of log files that were repaired from another replica.",
            repairs.repaired_ranges if repairs is not None else 0,
        ),
        _single(
            "skylog_scrubbed_bytes_total",
            "counter",
            "Bytes of log files that were read in the background to find damage.",
            scrubber.scrubbed_bytes if scrubber is not None else 0,
        ),
    ]


def _loop(broker: Broker) -> list[Metric]:
    probe = broker.pause_probe
    prefix = "skylog_event_loop"
    return [
        _single(
            f"{prefix}_longest_pause_seconds",
            "gauge",
            "Longest pause of the event loop since startup.",
            probe.pauses.longest_s,
        ),
        _single(
            f"{prefix}_longest_pause_last_minute_seconds",
            "gauge",
            "Longest pause of the event loop in the last minute.",
            probe.longest_of_last_minute_s,
        ),
        _single(
            f"{prefix}_long_pauses_total",
            "counter",
            "Pauses of the event loop of more than 100 ms.",
            probe.pauses.long_pauses,
        ),
    ]


def _flushes(broker: Broker) -> list[Metric]:
    name = "kafka_log_logflushstats_logflushrateandtimems"
    return [Metric(name, "histogram", "Duration of log fsyncs, in milliseconds.", broker.flusher.times.samples(_NONE))]


def _cleaner(broker: Broker) -> list[Metric]:
    cleaner = broker.compactor
    recopied = 100 * cleaner.written_bytes / cleaner.read_bytes if cleaner.read_bytes else 0.0
    return [
        _single("skylog_cleaner_runs_total", "counter", "Finished compaction runs.", cleaner.runs),
        _single("skylog_cleaner_read_bytes_total", "counter", "Bytes read by compaction.", cleaner.read_bytes),
        _single("skylog_cleaner_written_bytes_total", "counter", "Bytes written by compaction.", cleaner.written_bytes),
        _single(
            "skylog_cleaner_dropped_records_total",
            "counter",
            "Records removed by compaction.",
            cleaner.dropped_records,
        ),
        _single(
            "kafka_log_logcleaner_cleaner_recopy_percent",
            "gauge",
            "Bytes written by compaction, as a percentage of the bytes read.",
            recopied,
        ),
        _single(
            "kafka_log_logcleanermanager_time_since_last_run_ms",
            "gauge",
            "Milliseconds since the last check for logs to compact.",
            cleaner.since_last_check_ms,
        ),
        _single(
            "kafka_log_logcleanermanager_uncleanable_partitions_count",
            "gauge",
            "Logs whose compaction fails and is paused.",
            len(cleaner.uncleanable),
        ),
    ]


async def _partitions(broker: Broker) -> list[Metric]:
    """Return the traffic by topic, and the state of the log by partition."""
    messages_in: Counter[str] = Counter()
    bytes_in: Counter[str] = Counter()
    bytes_out: Counter[str] = Counter()
    logs: dict[str, list[Sample]] = {"size": [], "logstartoffset": [], "logendoffset": [], "numlogsegments": []}
    for number, partition in enumerate(broker.replicas.all()):
        if number % _AT_ONCE == _AT_ONCE - 1:
            await asyncio.sleep(0)
        topic = partition.name.topic
        messages_in[topic] += partition.messages_in
        bytes_in[topic] += partition.bytes_in
        bytes_out[topic] += partition.bytes_out
        _add_log(logs, partition)
    topics = "kafka_server_brokertopicmetrics"
    return [
        _by_topic(f"{topics}_messagesin_total", "Messages appended by clients since startup.", messages_in),
        _by_topic(f"{topics}_bytesin_total", "Bytes of batches appended by clients since startup.", bytes_in),
        _by_topic(f"{topics}_bytesout_total", "Bytes of batches returned to clients since startup.", bytes_out),
        Metric("kafka_log_log_size", "gauge", "Size of the log's segments, in bytes.", logs["size"]),
        Metric("kafka_log_log_logstartoffset", "gauge", "The first offset that can be read.", logs["logstartoffset"]),
        Metric("kafka_log_log_logendoffset", "gauge", "The offset of the next message.", logs["logendoffset"]),
        Metric("kafka_log_log_numlogsegments", "gauge", "Number of segments of the log.", logs["numlogsegments"]),
    ]


def _add_log(logs: dict[str, list[Sample]], partition: Partition) -> None:
    labels = {"topic": partition.name.topic, "partition": str(partition.name.partition)}
    segments = partition.log.segments
    logs["size"].append(Sample(sum(segment.size_bytes for segment in segments), labels))
    logs["logstartoffset"].append(Sample(partition.log.log_start_offset, labels))
    logs["logendoffset"].append(Sample(partition.log.log_end_offset, labels))
    logs["numlogsegments"].append(Sample(len(segments), labels))


def _by_topic(name: str, help_text: str, values: Counter[str]) -> Metric:
    return Metric(name, "counter", help_text, _labelled("topic", values.items()))


def _labelled(label: str, values: Iterable[tuple[str, float]]) -> list[Sample]:
    return [Sample(value, {label: name}) for name, value in values]
