"""`/`: whether anything is lost, late or stuck, and how much passes through."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import Request

from skylog.console import verdicts
from skylog.console import watch as figure
from skylog.console.history import History
from skylog.console.page import Page, Route, console_of
from skylog.console.watch import Look
from skylog.errors import SkylogError

_SHOWN_GROUPS: Final = 6
_SHOWN_TOPICS: Final = 8


async def overview(request: Request) -> Page:
    console = console_of(request)
    await console.watch.first_look()
    look, history = console.watch.latest, console.watch.history
    told, problem = None, console.watch.problem
    if console.broker is not None:
        try:
            told = await console.broker.health()
        except SkylogError as error:
            problem = str(error)
    audit = await console.audit.summary()
    jobs = await console.jobs.summary()
    found = [
        verdicts.health(problem, told),
        verdicts.lost(audit),
        verdicts.late(audit, look, history, console.watch.problem),
        verdicts.stuck(look, history, console.watch.problem, jobs),
    ]
    document = {
        "taken_at_ms": look.taken_at_ms,
        "verdicts": [verdict.document() for verdict in found],
        "figures": _figures(look, history),
        "requests": _requests(history, look),
        "topics": _topics(look, history),
        "groups": _groups(look),
        "throughput": _series(history, figure.MESSAGES_IN, figure.BYTES_IN, figure.BYTES_OUT, figure.CONNECTIONS),
        "lag": {group["name"]: history.points((figure.LAG, group["name"])) for group in _groups(look)},
        "p99_ms": {api["request"]: history.points((figure.P99_MS, api["request"])) for api in _requests(history, look)},
    }
    return Page("overview.html", "Overview", document)


def _figures(look: Look, history: History) -> dict[str, float | int | None]:
    """The numbers at the top; None for what only a broker beside this console could tell."""
    metrics = look.metrics
    free, total = metrics.total("skylog_disk_free_bytes"), metrics.total("skylog_disk_total_bytes")
    return {
        "messages_in_per_s": history.last((figure.MESSAGES_IN,)),
        "bytes_in_per_s": history.last((figure.BYTES_IN,)),
        "bytes_out_per_s": history.last((figure.BYTES_OUT,)),
        "messages": sum(look.messages(topic) for topic in look.topics.values() if not topic.is_internal),
        "stored_bytes": metrics.total("kafka_log_log_size"),
        "disk_free_bytes": free,
        "disk_total_bytes": total,
        "connections": metrics.total("kafka_server_socketservermetrics_connection_count"),
        "topics": len(look.topics),
        "partitions": sum(len(topic.partitions) for topic in look.topics.values()),
        "groups": len(look.groups),
        "lag": sum(group.lag for group in look.groups.values()),
    }


def _requests(history: History, look: Look) -> list[dict[str, Any]]:
    """Each API that was asked, the busiest first."""
    name = "kafka_network_requestmetrics_requests_total"
    rows = [
        {
            "request": api,
            "total": int(total),
            "per_s": history.last((figure.REQUESTS, api)),
            "p99_ms": history.last((figure.P99_MS, api)),
        }
        for api, total in look.metrics.by(name, "request").items()
        if total
    ]
    return sorted(rows, key=lambda row: (-(row["per_s"] or 0), -row["total"]))


def _topics(look: Look, history: History) -> list[dict[str, Any]]:
    """The topics that most is written to."""
    rows: list[dict[str, Any]] = [
        {"name": name, "messages": look.messages(topic), "per_s": history.last((figure.MESSAGES_IN, name))}
        for name, topic in look.topics.items()
        if not topic.is_internal
    ]
    return sorted(rows, key=lambda row: (-(row["per_s"] or 0), -row["messages"]))[:_SHOWN_TOPICS]


def _groups(look: Look) -> list[dict[str, Any]]:
    """The groups that are furthest behind."""
    rows: list[dict[str, Any]] = [
        {"name": group.name, "state": group.state, "members": len(group.members), "lag": group.lag}
        for group in look.groups.values()
    ]
    return sorted(rows, key=lambda row: -row["lag"])[:_SHOWN_GROUPS]


def _series(history: History, *names: str) -> Mapping[str, list[tuple[int, float]]]:
    return {name: history.points((name,)) for name in names}


ROUTES: Final[tuple[Route, ...]] = (("/", overview, ["GET"]),)
