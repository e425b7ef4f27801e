"""`/topics`: the list of topics, creation. `/topics/{topic}`: partitions, configuration, groups, deletion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request

from skylog.client import ClusterDescription, ConfigValue, OffsetRange, Partition, Topic
from skylog.console.cluster.client_pool import Clients
from skylog.console.cluster.topic_configs import Values
from skylog.console.monitoring import figures as figure
from skylog.console.monitoring.cluster_snapshot import ClusterSnapshot
from skylog.console.monitoring.history import History
from skylog.console.rendering.formatting import link
from skylog.console.rendering.pagination import paginate
from skylog.console.rendering.sorting import Columns, sort_rows
from skylog.console.server.fields import FieldError, Fields, body, query
from skylog.console.server.page import ActionResult, Page, Route, console_of
from skylog.model import TopicPartition, check_topic_name
from skylog.units import config_value

if TYPE_CHECKING:
    from skylog.console.app import Console

SIZE: Final = "kafka_log_log_size"
SEGMENTS: Final = "kafka_log_log_numlogsegments"
_PARTITIONS_PER_PAGE: Final = 200
_MAX_PARTITIONS: Final = 100_000
_ACTIONS: Final = ("set_config", "reset_config", "add_partitions", "empty", "delete")


async def topics(request: Request) -> Page | ActionResult:
    if request.method == "POST":
        return await _create(request, await body(request))
    console = console_of(request)
    await console.monitor.first_attempt()
    fields = query(request)
    text, with_internal = fields.text("q", "").strip(), fields.has("internal")
    everything = await console.cluster.run(lambda clients: clients.admin.list_topics())
    snapshot = console.monitor.latest
    sizes = snapshot.metrics.by(SIZE, "topic")
    found = [
        topic for topic in everything if text.lower() in topic.name.lower() and (with_internal or not topic.is_internal)
    ]
    is_by_retention = fields.text("sort", "").removeprefix("-") == "retention"
    configs = await console.topic_configs.of(topic.name for topic in found) if is_by_retention else {}
    figures = _TopicFigures(snapshot, console.monitor.history, sizes, sum(sizes.values()), snapshot.topic_lags, configs)
    ordered, sort = sort_rows(found, fields, figures.columns(), "name")
    shown, paging = paginate(ordered, fields)
    document = {
        "filter": {"q": text, "sort": sort} | ({"internal": 1} if with_internal else {}),
        "topics": await _with_configs(console, [figures.row(topic) for topic in shown]),
        "known": len(everything),
        "internal": sum(topic.is_internal for topic in everything),
        "paging": paging,
    }
    return Page("topics.html", "Topics", document)


@dataclass(frozen=True, slots=True)
class _TopicFigures:
    """What the rows of the list are made of. Values are None for a topic that is newer than the snapshot.

    The list is sorted by one value of each topic. Only the topics of the page become rows.
    """

    snapshot: ClusterSnapshot
    history: History
    sizes: Mapping[str, float]
    whole_bytes: float
    lags: Mapping[str, int]
    configs: Mapping[str, Values]

    def columns(self) -> Columns[Topic]:
        return {
            "name": attrgetter("name"),
            "partitions": lambda topic: len(topic.partitions),
            "messages": self._messages,
            "in": lambda topic: self.history.last((figure.MESSAGES_IN, topic.name)),
            "size": lambda topic: self.sizes.get(topic.name),
            "share": lambda topic: self.sizes.get(topic.name),
            "lag": lambda topic: self.lags.get(topic.name),
            "retention": self._retention,
        }

    def _messages(self, topic: Topic) -> int | None:
        known = self.snapshot.topics.get(topic.name)
        return None if known is None else self.snapshot.messages(known)

    def _retention(self, topic: Topic) -> float | None:
        """Return the retention time as a number to sort by: forever is the longest."""
        found = _number(self.configs.get(topic.name, {}).get("retention.ms"))
        return None if found is None else inf if found < 0 else found

    def row(self, topic: Topic) -> dict[str, Any]:
        size_bytes = self.sizes.get(topic.name)
        return {
            "name": topic.name,
            "is_internal": topic.is_internal,
            "partitions": len(topic.partitions),
            "replication_factor": topic.replication_factor,
            "messages": self._messages(topic),
            "messages_in_per_s": self.history.last((figure.MESSAGES_IN, topic.name)),
            "size_bytes": size_bytes,
            "size_share": size_bytes / self.whole_bytes if size_bytes is not None and self.whole_bytes else None,
            "lag": self.lags.get(topic.name),
        }


async def _with_configs(console: Console, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add the retention settings, which are cached."""
    configs = await console.topic_configs.of(row["name"] for row in rows)
    return [
        row
        | {
            "cleanup_policy": config.get("cleanup.policy"),
            "retention_ms": _number(config.get("retention.ms")),
            "retention_bytes": _number(config.get("retention.bytes")),
        }
        for row in rows
        for config in [configs.get(row["name"], {})]
    ]


_PARTITION_COLUMNS: Final[Columns[dict[str, Any]]] = {
    name: itemgetter(name)
    for name in ("partition", "start_offset", "end_offset", "messages", "size_bytes", "segments", "leader")
} | {name: itemgetter(name) for name in ("replicas", "in_sync_replicas")}


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.removeprefix("-").isdecimal() else None


async def _create(request: Request, fields: Fields) -> ActionResult:
    fields.choice("action", ("create",))
    name = fields.text("name").strip()
    check_topic_name(name)
    partitions = fields.integer("partitions", -1, high=_MAX_PARTITIONS, low=-1)
    configs = dict(_pair(line) for text in fields.all("configs") for line in text.splitlines() if line.strip())
    await console_of(request).cluster.run(lambda clients: clients.admin.create_topic(name, partitions, configs=configs))
    return ActionResult(link("/topics", name), {"name": name, "created": True})


def _pair(line: str) -> tuple[str, str]:
    key, separator, value = line.partition("=")
    if not separator or not key.strip():
        raise FieldError(f"a config must be a line KEY=VALUE, not '{line}'")
    return key.strip(), config_value(key.strip(), value.strip())


@dataclass(frozen=True, slots=True)
class _TopicState:
    """The current state of a topic, queried on each request."""

    topic: Topic
    offsets: Mapping[TopicPartition, OffsetRange]
    configs: list[ConfigValue]


def _describe(clients: Clients, name: str) -> _TopicState:
    topic = clients.admin.describe_topic(name)
    led = [TopicPartition(name, each.index) for each in topic.partitions if each.leader >= 0]
    return _TopicState(topic, clients.admin.offset_ranges(led), clients.admin.describe_configs(name))


async def topic(request: Request) -> Page | ActionResult:
    """Serve the page of a topic. Its forms post to the same path."""
    name = request.path_params["topic"]
    if request.method == "POST":
        return await _change(request, name, await body(request))
    console = console_of(request)
    await console.monitor.first_attempt()
    state = await console.cluster.run(lambda clients: _describe(clients, name))
    snapshot, history, cluster = console.monitor.latest, console.monitor.history, console.replicas.latest
    sizes = snapshot.metrics.by(SIZE, "partition", topic=name)
    segments = snapshot.metrics.by(SEGMENTS, "partition", topic=name)
    rows = [
        _partition(each, name, state, sizes, segments) | _placement(each, name, cluster)
        for each in state.topic.partitions
    ]
    ordered, sort = sort_rows(rows, query(request), _PARTITION_COLUMNS, "partition")
    shown, paging = paginate(ordered, query(request), _PARTITIONS_PER_PAGE)
    document = {
        "name": name,
        "is_internal": state.topic.is_internal,
        "replication_factor": state.topic.replication_factor,
        "partition_count": len(state.topic.partitions),
        "messages": sum(map(len, state.offsets.values())),
        "size_bytes": int(sum(sizes.values())) if sizes else None,
        "segments": int(sum(segments.values())) if segments else None,
        "messages_in_per_s": history.last((figure.MESSAGES_IN, name)),
        "bytes_in_per_s": history.last((figure.BYTES_IN, name)),
        "bytes_out_per_s": history.last((figure.BYTES_OUT, name)),
        "partitions": shown,
        "filter": {"sort": sort},
        "measured_broker": console.measured_broker,
        "paging": paging,
        "configs": [
            {"name": each.name, "value": each.value, "source": each.source, "is_default": each.is_default}
            for each in state.configs
        ],
        "groups": _readers(snapshot, name),
        "history": {
            series: history.points((series, name)) for series in (figure.MESSAGES_IN, figure.BYTES_IN, figure.BYTES_OUT)
        },
    }
    return Page("topic.html", name, document)


def _partition(
    partition: Partition, name: str, state: _TopicState, sizes: Mapping[str, float], segments: Mapping[str, float]
) -> dict[str, Any]:
    offsets = state.offsets.get(TopicPartition(name, partition.index))
    number = str(partition.index)
    return {
        "partition": partition.index,
        "start_offset": offsets.start_offset if offsets is not None else None,
        "end_offset": offsets.end_offset if offsets is not None else None,
        "messages": len(offsets) if offsets is not None else None,
        "leader": partition.leader,
        "replicas": list(partition.replicas),
        "in_sync_replicas": list(partition.in_sync_replicas),
        "size_bytes": int(sizes[number]) if number in sizes else None,
        "segments": int(segments[number]) if number in segments else None,
    }


def _placement(partition: Partition, name: str, cluster: ClusterDescription | None) -> dict[str, Any]:
    """Return the replicas on missing brokers and those that move, as of the last description of the cluster."""
    live = partition.replicas if cluster is None else cluster.broker_ids
    moving = [each for each in cluster.reassignments if each.partition == (name, partition.index)] if cluster else []
    adding = [node_id for each in moving for node_id in each.adding]
    return {
        "preferred_leader": partition.replicas[0],
        "offline_replicas": [each for each in partition.replicas if each not in live],
        "is_under_replicated": not set(partition.replicas) <= {*partition.in_sync_replicas, *adding},
        "adding_replicas": adding,
        "removing_replicas": [node_id for each in moving for node_id in each.removing],
    }


def _readers(snapshot: ClusterSnapshot, name: str) -> list[dict[str, Any]]:
    """Return the groups that read the topic, with their lag in it, as of the snapshot."""
    rows = []
    for group in snapshot.groups.values():
        lags = [each.lag or 0 for each in group.partitions if each.partition.topic == name]
        if lags:
            rows.append({"name": group.name, "state": group.state, "members": len(group.members), "lag": sum(lags)})
    return sorted(rows, key=lambda row: (-row["lag"], row["name"]))


async def _change(request: Request, name: str, fields: Fields) -> ActionResult:
    console = console_of(request)
    action = fields.choice("action", _ACTIONS)
    if action == "delete":
        if fields.text("confirm", "").strip() != name:
            raise FieldError(f"type the name '{name}' as 'confirm' to delete the topic with all its messages")
        await console.cluster.run(lambda clients: clients.admin.delete_topics([name]))
        console.topic_configs.forget(name)
        return ActionResult("/topics", {"name": name, "deleted": True})
    if action == "empty":
        if fields.text("confirm", "").strip() != name:
            raise FieldError(f"type the name '{name}' as 'confirm' to delete all messages of the topic")
        deleted = await console.cluster.run(lambda clients: _empty(clients, name))
        await console.monitor.refresh()
        return ActionResult(link("/topics", name), {"name": name, "deleted_messages": deleted})
    if action == "add_partitions":
        total = fields.integer("total", low=1, high=_MAX_PARTITIONS)
        await console.cluster.run(lambda clients: clients.admin.add_partitions(name, total))
        return ActionResult(link("/topics", name), {"name": name, "partitions": total})
    key = fields.text("key").strip()
    value = None if action == "reset_config" else config_value(key, fields.text("value", "").strip())
    await console.cluster.run(lambda clients: clients.admin.alter_configs(name, {key: value}))
    console.topic_configs.forget(name)
    return ActionResult(link("/topics", name), {"name": name, "key": key, "value": value})


def _empty(clients: Clients, name: str) -> int:
    """Delete the messages that a topic has now, and return their number."""
    offsets = clients.admin.offset_ranges(clients.admin.describe_topic(name).topic_partitions)
    held = {key.partition: each.end_offset for key, each in offsets.items() if len(each)}
    if held:
        clients.admin.delete_records(name, held)
    return sum(map(len, offsets.values()))


ROUTES: Final[tuple[Route, ...]] = (
    ("/topics", topics, ["GET", "POST"]),
    ("/topics/{topic}", topic, ["GET", "POST"]),
)
