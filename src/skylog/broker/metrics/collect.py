"""Everything a broker can tell of itself at one moment, put together from what its parts count.

Names are those that Kafka's metrics have behind Prometheus' JMX exporter with its usual rules, in lower case;
consumer groups are called as kafka_exporter does. What Kafka does not have begins with `skylog_` or `process_`.

A broker may have thousands of partitions, and as many groups that read them: metrics are told in pieces of a few
hundred values, and the event loop goes on in between. So the values of one collection are not all of the same instant,
and nobody needs to have all of them in memory.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from skylog import __version__
from skylog.broker.metrics.groups import PIECE_SAMPLES, group_metrics
from skylog.broker.metrics.latency import Latency
from skylog.broker.metrics.process import process_metrics
from skylog.broker.metrics.requests import request_name
from skylog.metric import Kind, Metric, Sample
from skylog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from skylog.broker.broker import Broker
    from skylog.broker.partition import Partition

_AT_ONCE: Final = 50
_NONE: Final[dict[str, str]] = {}


async def stream(broker: Broker, *, brief: bool = False) -> AsyncGenerator[Metric, None]:
    """The broker's metrics in pieces, each of a few milliseconds' work; `brief` is without `kafka_consumergroup_…`.

    A metric with many values comes in several pieces of the same name. Use it on the broker's event loop, between
    `start` and `stop`.
    """
    loop = asyncio.get_running_loop()
    of_process: Awaitable[list[Metric]] = loop.run_in_executor(None, process_metrics, broker.log_dir.path)
    of_logs = await _partitions(broker)
    for metric in (
        *_requests(broker),
        *_broker(broker),
        *_loop(broker),
        *_flushes(broker),
        *_cleaner(broker),
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
    """All of the broker's metrics at once."""
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
    for api_key, versions in requests.asked().items():
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
        Metric(f"{prefix}_requests_total", "counter", "Requests that a handler has taken.", counts),
        Metric(
            f"{prefix}_totaltimems",
            "histogram",
            "Milliseconds from a request's receipt to its answer; as in Kafka, with the time a fetch waits for data.",
            totals,
        ),
        Metric(
            f"{prefix}_localtimems",
            "histogram",
            "Milliseconds from a request's receipt until it was answered or had to wait.",
            locals_,
        ),
        Metric(
            f"{prefix}_errors_total",
            "counter",
            "Errors in answers, one for each partition where an answer is by partition.",
            errors,
        ),
    ]


def _broker(broker: Broker) -> list[Metric]:
    partitions = broker.partitions.all()
    offline = len(broker.partitions.offline) + sum(partition.log.failure is not None for partition in partitions)
    failures = [Sample(job.failures, {"job": name}) for name, job in sorted(broker.background.items())]
    node_id, image = broker.identity.node_id, broker.metadata.image
    led = [each for topic in image.topics.values() for each in topic.partitions if each.leader == node_id]
    short = sum(len(each.in_sync_replicas) < len(each.replicas) for each in led)
    topics, server = "kafka_server_brokertopicmetrics", "kafka_server_replicamanager"
    sockets = "kafka_server_socketservermetrics"
    return [
        _single(
            f"{topics}_failedproducerequests_total",
            "counter",
            "Batches that were refused.",
            broker.requests.failures(ApiKey.PRODUCE),
        ),
        _single(
            f"{topics}_failedfetchrequests_total",
            "counter",
            "Partitions that a fetch could not read.",
            broker.requests.failures(ApiKey.FETCH),
        ),
        _single(f"{server}_partitioncount", "gauge", "Partitions on this broker.", len(partitions)),
        _single(f"{server}_leadercount", "gauge", "Partitions that this broker leads.", len(led)),
        _single(f"{server}_underreplicatedpartitions", "gauge", "Partitions with replicas out of sync.", short),
        _single(f"{server}_offlinereplicacount", "gauge", "Partitions whose log takes no appends.", offline),
        _single(
            "skylog_damaged_ranges",
            "gauge",
            "Ranges of log files that were found to be damaged and are not served.",
            sum(len(partition.log.damages) for partition in partitions),
        ),
        _single("skylog_offline_logs", "gauge", "Logs that take no appends after a failed fsync.", offline),
        _single(
            "kafka_controller_kafkacontroller_activecontrollercount",
            "gauge",
            "1 on the broker that is the controller.",
            int(image.controller_id == node_id),
        ),
        _single(f"{sockets}_connection_count", "gauge", "Clients connected.", len(broker.listener.connections)),
        _single(
            f"{sockets}_connection_creation_total",
            "counter",
            "Connections accepted.",
            broker.listener.accepted_total,
        ),
        _single(
            "kafka_server_fetchsessioncache_numincrementalfetchsessions",
            "gauge",
            "Fetch sessions of consumers.",
            len(broker.fetch_sessions),
        ),
        Metric("skylog_background_failures_total", "counter", "Failures of jobs that nobody waits for.", failures),
        _single("skylog_build_info", "gauge", "1, with the version as a label.", 1, {"version": __version__}),
        _single("process_start_time_seconds", "gauge", "When the broker was started.", broker.started_at_ms / 1000),
    ]


def _loop(broker: Broker) -> list[Metric]:
    probe = broker.pause_probe
    prefix = "skylog_event_loop"
    return [
        _single(
            f"{prefix}_longest_pause_seconds",
            "gauge",
            "Longest time that the event loop stood still, since the start.",
            probe.pauses.longest_s,
        ),
        _single(
            f"{prefix}_longest_pause_last_minute_seconds",
            "gauge",
            "Longest time that the event loop stood still, in the last minute.",
            probe.longest_of_last_minute_s,
        ),
        _single(
            f"{prefix}_long_pauses_total",
            "counter",
            "Times that the event loop stood still for more than 100 ms.",
            probe.pauses.long_pauses,
        ),
    ]


def _flushes(broker: Broker) -> list[Metric]:
    name = "kafka_log_logflushstats_logflushrateandtimems"
    return [Metric(name, "histogram", "Milliseconds of the fsyncs of logs.", broker.flusher.times.samples(_NONE))]


def _cleaner(broker: Broker) -> list[Metric]:
    cleaner = broker.compactor
    recopied = 100 * cleaner.written_bytes / cleaner.read_bytes if cleaner.read_bytes else 0.0
    return [
        _single("skylog_cleaner_runs_total", "counter", "Compactions that were finished.", cleaner.runs),
        _single("skylog_cleaner_read_bytes_total", "counter", "Bytes that compaction has read.", cleaner.read_bytes),
        _single(
            "skylog_cleaner_written_bytes_total", "counter", "Bytes that compaction has kept.", cleaner.written_bytes
        ),
        _single(
            "skylog_cleaner_dropped_records_total",
            "counter",
            "Records that compaction has dropped.",
            cleaner.dropped_records,
        ),
        _single(
            "kafka_log_logcleaner_cleaner_recopy_percent",
            "gauge",
            "Share of the bytes that compaction has read and kept.",
            recopied,
        ),
        _single(
            "kafka_log_logcleanermanager_time_since_last_run_ms",
            "gauge",
            "Milliseconds since logs were last looked through for compaction.",
            cleaner.since_last_look_ms,
        ),
        _single(
            "kafka_log_logcleanermanager_uncleanable_partitions_count",
            "gauge",
            "Logs that are set aside because their compaction fails.",
            len(cleaner.uncleanable),
        ),
    ]


async def _partitions(broker: Broker) -> list[Metric]:
    """By topic what came and went, by partition what its log is like."""
    messages_in: Counter[str] = Counter()
    bytes_in: Counter[str] = Counter()
    bytes_out: Counter[str] = Counter()
    logs: dict[str, list[Sample]] = {"size": [], "logstartoffset": [], "logendoffset": [], "numlogsegments": []}
    for number, partition in enumerate(broker.partitions.all()):
        if number % _AT_ONCE == _AT_ONCE - 1:
            await asyncio.sleep(0)
        topic = partition.name.topic
        messages_in[topic] += partition.messages_in
        bytes_in[topic] += partition.log.appended_bytes
        bytes_out[topic] += partition.bytes_out
        _add_log(logs, partition)
    topics = "kafka_server_brokertopicmetrics"
    return [
        _by_topic(f"{topics}_messagesin_total", "Messages stored since the start.", messages_in),
        _by_topic(f"{topics}_bytesin_total", "Bytes of batches stored since the start.", bytes_in),
        _by_topic(f"{topics}_bytesout_total", "Bytes of batches that fetches were answered with.", bytes_out),
        Metric("kafka_log_log_size", "gauge", "Bytes in the log's segments.", logs["size"]),
        Metric("kafka_log_log_logstartoffset", "gauge", "The first offset that can be read.", logs["logstartoffset"]),
        Metric("kafka_log_log_logendoffset", "gauge", "The offset of the next message.", logs["logendoffset"]),
        Metric("kafka_log_log_numlogsegments", "gauge", "Segments of the log.", logs["numlogsegments"]),
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
