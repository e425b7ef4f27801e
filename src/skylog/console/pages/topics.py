"""`/topics`: all topics, a form to create one; `/topics/{topic}`: its partitions, configuration, readers, its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import Request

from skylog.client import ConfigValue, OffsetRange, Partition, Topic
from skylog.console import watch as figure
from skylog.console.cluster import Clients
from skylog.console.fields import FieldError, Fields, body, query
from skylog.console.history import History
from skylog.console.page import Done, Page, Route, console_of
from skylog.console.paging import paged
from skylog.console.watch import Look
from skylog.console.words import link
from skylog.model import TopicPartition, check_topic_name

SIZE: Final = "kafka_log_log_size"
SEGMENTS: Final = "kafka_log_log_numlogsegments"
_PARTITIONS_PER_PAGE: Final = 200
_MAX_PARTITIONS: Final = 100_000
_ACTIONS: Final = ("set_config", "reset_config", "add_partitions", "delete")


async def topics(request: Request) -> Page | Done:
    if request.method == "POST":
        return await _create(request, await body(request))
    console = console_of(request)
    await console.watch.first_look()
    asked = query(request)
    wanted, with_internal = asked.text("q", "").strip(), asked.has("internal")
    everything = await console.cluster.ask(lambda clients: clients.admin.list_topics())
    found = [
        topic
        for topic in everything
        if wanted.lower() in topic.name.lower() and (with_internal or not topic.is_internal)
    ]
    shown, paging = paged(found, asked)
    configs = await console.topic_configs.of(topic.name for topic in shown)
    look, history = console.watch.latest, console.watch.history
    sizes = look.metrics.by(SIZE, "topic")
    document = {
        "filter": {"q": wanted} | ({"internal": 1} if with_internal else {}),
        "topics": [_summary(topic, look, history, sizes, configs.get(topic.name, {})) for topic in shown],
        "known": len(everything),
        "internal": sum(topic.is_internal for topic in everything),
        "paging": paging,
    }
    return Page("topics.html", "Topics", document)


def _summary(
    topic: Topic, look: Look, history: History, sizes: Mapping[str, float], config: Mapping[str, str | None]
) -> dict[str, Any]:
    """A row of the list. Of a topic that was made since the last look, little is known yet."""
    is_known = topic.name in look.topics
    return {
        "name": topic.name,
        "is_internal": topic.is_internal,
        "partitions": len(topic.partitions),
        "replication_factor": topic.replication_factor,
        "messages": look.messages(look.topics[topic.name]) if is_known else None,
        "messages_in_per_s": history.last((figure.MESSAGES_IN, topic.name)),
        "size_bytes": sizes.get(topic.name),
        "cleanup_policy": config.get("cleanup.policy"),
        "retention_ms": _number(config.get("retention.ms")),
        "retention_bytes": _number(config.get("retention.bytes")),
    }


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.removeprefix("-").isdecimal() else None


async def _create(request: Request, fields: Fields) -> Done:
    fields.choice("action", ("create",))
    name = fields.text("name").strip()
    check_topic_name(name)
    partitions = fields.integer("partitions", -1, high=_MAX_PARTITIONS, low=-1)
    configs = dict(_pair(line) for text in fields.all("configs") for line in text.splitlines() if line.strip())
    await console_of(request).cluster.ask(lambda clients: clients.admin.create_topic(name, partitions, configs=configs))
    return Done(link("/topics", name), {"name": name, "created": True})


def _pair(line: str) -> tuple[str, str]:
    key, separator, value = line.partition("=")
    if not separator or not key.strip():
        raise FieldError(f"a config is a line KEY=VALUE, not '{line}'")
    return key.strip(), value.strip()


@dataclass(frozen=True, slots=True)
class _State:
    """A topic as it is now, not as it was when the cluster was last looked at."""

    topic: Topic
    offsets: Mapping[TopicPartition, OffsetRange]
    configs: list[ConfigValue]


def _ask(clients: Clients, name: str) -> _State:
    topic = clients.admin.describe_topic(name)
    led = [TopicPartition(name, each.index) for each in topic.partitions if each.leader >= 0]
    return _State(topic, clients.admin.offset_ranges(led), clients.admin.describe_configs(name))


async def topic(request: Request) -> Page | Done:
    """One topic; the forms of its page are posted to the same path."""
    name = request.path_params["topic"]
    if request.method == "POST":
        return await _change(request, name, await body(request))
    console = console_of(request)
    await console.watch.first_look()
    state = await console.cluster.ask(lambda clients: _ask(clients, name))
    look, history = console.watch.latest, console.watch.history
    sizes, segments = look.metrics.by(SIZE, "partition", topic=name), look.metrics.by(SEGMENTS, "partition", topic=name)
    shown, paging = paged(state.topic.partitions, query(request), _PARTITIONS_PER_PAGE)
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
        "partitions": [_partition(each, name, state, sizes, segments) for each in shown],
        "paging": paging,
        "configs": [
            {"name": each.name, "value": each.value, "source": each.source, "is_default": each.is_default}
            for each in state.configs
        ],
        "groups": _readers(look, name),
        "history": {
            series: history.points((series, name)) for series in (figure.MESSAGES_IN, figure.BYTES_IN, figure.BYTES_OUT)
        },
    }
    return Page("topic.html", name, document)


def _partition(
    partition: Partition, name: str, state: _State, sizes: Mapping[str, float], segments: Mapping[str, float]
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


def _readers(look: Look, name: str) -> list[dict[str, Any]]:
    """The groups that read the topic, as of the last look, with their lag in it."""
    rows = []
    for group in look.groups.values():
        lags = [each.lag or 0 for each in group.partitions if each.partition.topic == name]
        if lags:
            rows.append({"name": group.name, "state": group.state, "members": len(group.members), "lag": sum(lags)})
    return sorted(rows, key=lambda row: (-row["lag"], row["name"]))


async def _change(request: Request, name: str, fields: Fields) -> Done:
    console = console_of(request)
    action = fields.choice("action", _ACTIONS)
    if action == "delete":
        if fields.text("confirm", "").strip() != name:
            raise FieldError(f"type the name '{name}' as 'confirm' to delete the topic with all its messages")
        await console.cluster.ask(lambda clients: clients.admin.delete_topics([name]))
        console.topic_configs.forget(name)
        return Done("/topics", {"name": name, "deleted": True})
    if action == "add_partitions":
        total = fields.integer("total", low=1, high=_MAX_PARTITIONS)
        await console.cluster.ask(lambda clients: clients.admin.add_partitions(name, total))
        return Done(link("/topics", name), {"name": name, "partitions": total})
    key = fields.text("key").strip()
    value = None if action == "reset_config" else fields.text("value", "").strip()
    await console.cluster.ask(lambda clients: clients.admin.alter_configs(name, {key: value}))
    console.topic_configs.forget(name)
    return Done(link("/topics", name), {"name": name, "key": key, "value": value})


ROUTES: Final[tuple[Route, ...]] = (
    ("/topics", topics, ["GET", "POST"]),
    ("/topics/{topic}", topic, ["GET", "POST"]),
)
