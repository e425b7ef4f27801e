"""`/`: whether anything is not replicated, lost, late or stuck, and the throughput."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import Request

from skylog.console.monitoring import figures as figure
from skylog.console.monitoring import verdicts
from skylog.console.monitoring.cluster_monitor import ClusterMonitor
from skylog.console.monitoring.cluster_snapshot import ClusterSnapshot
from skylog.console.monitoring.history import History
from skylog.console.monitoring.pace import progress_document
from skylog.console.server.page import Page, Route, console_of
from skylog.errors import SkylogError

_SHOWN_GROUPS: Final = 6
_SHOWN_TOPICS: Final = 8


async def overview(request: Request) -> Page:
    console = console_of(request)
    await console.monitor.first_attempt()
    await console.replicas.first_attempt()
    snapshot, history = console.monitor.latest, console.monitor.history
    doubt = console.monitor.doubt
    report, problem = None, doubt
    if console.broker is not None:
        try:
            report = await console.broker.health()
        except SkylogError as error:
            problem = str(error)
    audit = await console.audit.summary()
    jobs = await console.jobs.summary()
    found = [
        verdicts.health(problem, report),
        verdicts.replicas(console.replicas.latest, console.replicas.doubt),
        verdicts.lost(audit),
        verdicts.late(audit, snapshot, console.monitor.progress, doubt),
        verdicts.stuck(snapshot, console.monitor.progress, doubt, jobs),
    ]
    requests, groups = _requests(history, snapshot), _groups(console.monitor)
    document = {
        "taken_at_ms": snapshot.taken_at_ms,
        "verdicts": [verdict.document() for verdict in found],
        "figures": _figures(snapshot, history),
        "measured_broker": console.measured_broker,
        "requests": requests,
        "topics": _topics(snapshot, history),
        "groups": groups,
        "throughput": _series(history, figure.MESSAGES_IN, figure.BYTES_IN, figure.BYTES_OUT, figure.CONNECTIONS),
        "lag": {group["name"]: history.points((figure.LAG, group["name"])) for group in groups},
        "p99_ms": {api["request"]: history.points((figure.P99_MS, api["request"])) for api in requests},
    }
    return Page("overview.html", "Overview", document)


def _figures(snapshot: ClusterSnapshot, history: History) -> dict[str, float | int | None]:
    """Return the numbers at the top. Those that only a parent broker has are None without one."""
    metrics = snapshot.metrics
    free, total = metrics.total("skylog_disk_free_bytes"), metrics.total("skylog_disk_total_bytes")
    return {
        "messages_in_per_s": history.last((figure.MESSAGES_IN,)),
        "bytes_in_per_s": history.last((figure.BYTES_IN,)),
        "bytes_out_per_s": history.last((figure.BYTES_OUT,)),
        "messages": sum(snapshot.messages(topic) for topic in snapshot.topics.values() if not topic.is_internal),
        "stored_bytes": metrics.total("kafka_log_log_size"),
        "disk_free_bytes": free,
        "disk_total_bytes": total,
        "connections": metrics.total("kafka_server_socketservermetrics_connection_count"),
        "topics": len(snapshot.topics),
        "partitions": sum(len(topic.partitions) for topic in snapshot.topics.values()),
        "groups": len(snapshot.groups),
        "lag": sum(group.lag for group in snapshot.groups.values()),
    }


def _requests(history: History, snapshot: ClusterSnapshot) -> list[dict[str, Any]]:
    """Return every API with requests, the busiest first."""
    name = "kafka_network_requestmetrics_requests_total"
    rows = [
        {
            "request": api,
            "total": int(total),
            "per_s": history.last((figure.REQUESTS, api)),
            "p99_ms": history.last((figure.P99_MS, api)),
        }
        for api, total in snapshot.metrics.by(name, "request").items()
        if total
    ]
    return sorted(rows, key=lambda row: (-(row["per_s"] or 0), -row["total"]))


def _topics(snapshot: ClusterSnapshot, history: History) -> list[dict[str, Any]]:
    """Return the topics with the highest rates."""
    rows: list[dict[str, Any]] = [
        {"name": name, "messages": snapshot.messages(topic), "per_s": history.last((figure.MESSAGES_IN, name))}
        for name, topic in snapshot.topics.items()
        if not topic.is_internal
    ]
    return sorted(rows, key=lambda row: (-(row["per_s"] or 0), -row["messages"]))[:_SHOWN_TOPICS]


def _groups(monitor: ClusterMonitor) -> list[dict[str, Any]]:
    """Return the groups with the largest lag."""
    rows: list[dict[str, Any]] = [
        {
            "name": group.name,
            "state": group.state,
            "members": len(group.members),
            "lag": group.lag,
            **progress_document(monitor.progress.get(group.name)),
        }
        for group in monitor.latest.groups.values()
    ]
    return sorted(rows, key=lambda row: -row["lag"])[:_SHOWN_GROUPS]


def _series(history: History, *names: str) -> Mapping[str, list[tuple[int, float]]]:
    return {name: history.points((name,)) for name in names}


ROUTES: Final[tuple[Route, ...]] = (("/", overview, ["GET"]),)
