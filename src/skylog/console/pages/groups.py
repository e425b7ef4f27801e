"""`/groups` and `/group`: consumer groups and their lag, offset resets, deletion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter, itemgetter
from typing import Any, Final

from starlette.requests import Request

from skylog.client import ConsumerGroup, GroupActiveError, GroupMember, GroupPartition, ResetPlan
from skylog.console.cluster import offset_reset
from skylog.console.cluster.client_pool import Clients
from skylog.console.monitoring.figures import COMMITTED, LAG
from skylog.console.monitoring.history import History
from skylog.console.monitoring.pace import PACES, GroupProgress, judge, progress_document
from skylog.console.rendering.formatting import link
from skylog.console.rendering.pagination import paginate
from skylog.console.rendering.sorting import Columns, sort_rows
from skylog.console.server.fields import FieldError, Fields, body, query
from skylog.console.server.page import ActionResult, Page, Route, console_of
from skylog.model import TopicPartition

_PLOTTED: Final = 6
_PARTITIONS_PER_PAGE: Final = 200
_MAX_NAME_BYTES: Final = 32_000  # with names longer than the protocol allows, librdkafka hangs
_COLUMNS: Final[Columns[dict[str, Any]]] = {
    "name": itemgetter("name"),
    "type": itemgetter("type"),
    "state": itemgetter("state"),
    "members": itemgetter("member_count"),
    "lag": itemgetter("lag"),
    "behind": itemgetter("lag_ms"),
    "pace": lambda row: PACES.index(row["pace"]),
    "reads": itemgetter("commits_per_s"),
    "left": itemgetter("left_ms"),
    "topics": lambda row: row["topics"][:1],
}
_PARTITION_COLUMNS: Final[Columns[GroupPartition]] = {
    "partition": attrgetter("partition"),
    "committed": attrgetter("committed_offset"),
    "start": lambda each: each.offsets.start_offset if each.offsets is not None else None,
    "end": lambda each: each.offsets.end_offset if each.offsets is not None else None,
    "lag": attrgetter("lag"),
    "reader": lambda each: each.member.client_id if each.member else None,
}


async def groups(request: Request) -> Page:
    console = console_of(request)
    await console.monitor.first_attempt()
    snapshot, history = console.monitor.latest, console.monitor.history
    fields = query(request)
    text = fields.text("q", "").strip()
    pace = fields.choice("pace", PACES) if fields.has("pace") else ""
    progress = console.monitor.progress
    rows = [
        _summary(group, progress.get(group.name), history)
        for _, group in sorted(snapshot.groups.items())
        if _matches(group, text.lower())
    ]
    found, sort = sort_rows([row for row in rows if _has_pace(row, pace)], fields, _COLUMNS, "-lag")
    shown, paging = paginate(found, fields)
    document = {
        "as_of_ms": snapshot.taken_at_ms,
        "filter": {"q": text, "sort": sort} | ({"pace": pace} if pace else {}),
        "paces": PACES,
        "groups": shown,
        "known": len(snapshot.groups),
        "paging": paging,
    }
    return Page("groups.html", "Groups", document)


async def group(request: Request) -> Page | ActionResult:
    """Serve the page of a group. Its forms post to the same path."""
    fields = query(request)
    name = _name(fields)
    if request.method == "POST":
        return await _change(request, name, await body(request))
    console = console_of(request)
    [found] = await console.cluster.run(lambda clients: clients.groups.describe_groups([name]))
    history = console.monitor.history
    progress = judge(found, history)
    ordered, sort = sort_rows(found.partitions, fields, _PARTITION_COLUMNS, "partition")
    ordered.sort(key=lambda each: each.partition not in progress.stalled)
    partitions, paging = paginate(ordered, fields, _PARTITIONS_PER_PAGE)
    furthest = sorted(found.partitions, key=lambda each: -(each.lag or 0))[:_PLOTTED]
    document = {
        **_summary(found, progress, history),
        "filter": {"name": name, "sort": sort},
        "members": [_member(each) for each in found.members],
        "partitions": [
            _partition(each, name, history) | {"is_stalled": each.partition in progress.stalled} for each in partitions
        ],
        "paging": paging,
        "lag_history": {
            "group": history.points((LAG, name)),
            "partitions": {str(each.partition): history.points(_key(LAG, name, each)) for each in furthest},
        },
        "reset_partitions": fields.optional_integer("reset", low=0),
    }
    return Page("group.html", f"Group {name}", document)


async def _change(request: Request, name: str, fields: Fields) -> Page | ActionResult:
    console = console_of(request)
    match fields.choice("action", ("preview", "reset", "delete")):
        case "preview":
            reset = offset_reset.ResetRequest.parse(fields)
            plan = await console.cluster.run(lambda clients: offset_reset.plan(clients, name, reset))
            return Page("group_reset.html", f"Reset group {name}", _preview(plan))
        case "reset":
            moves = fields.all("move")

            def do(clients: Clients) -> ResetPlan:
                plan = offset_reset.confirmed(clients, name, moves)
                clients.groups.reset(plan)
                return plan

            plan = await console.cluster.run(do)
            await console.monitor.refresh()
            return ActionResult(link("/group", name=name, reset=len(plan.moves)), {"reset": True, **_preview(plan)})
        case _:
            if fields.text("confirm", "") != name:
                raise FieldError(f"to delete the group, 'confirm' must be its name: {name}")
            await console.cluster.run(lambda clients: clients.groups.delete_groups([name]))
            await console.monitor.refresh()
            return ActionResult("/groups", {"deleted": name})


def _name(fields: Fields) -> str:
    name = fields.text("name")
    if "\0" in name or len(name.encode()) > _MAX_NAME_BYTES:
        raise FieldError(f"the name of a group must have no zero byte and at most {_MAX_NAME_BYTES} bytes")
    return name


def _has_pace(row: Mapping[str, Any], pace: str) -> bool:
    """Whether a group has a pace, if one is chosen. One that is stuck in some partitions counts as stuck."""
    return not pace or row["pace"] == pace or (pace == "stuck" and bool(row["stalled"]))


def _matches(group: ConsumerGroup, text: str) -> bool:
    return text in group.name.lower() or any(text in each.partition.topic.lower() for each in group.partitions)


# -- documents


def _summary(group: ConsumerGroup, progress: GroupProgress | None, history: History) -> dict[str, Any]:
    return {
        "name": group.name,
        "type": group.type,
        "state": group.state,
        "protocol": group.protocol,
        "epoch": group.epoch,
        "target_epoch": group.target_epoch,
        "member_count": len(group.members),
        "topics": sorted({each.partition.topic for each in group.partitions}),
        "lag": group.lag,
        **progress_document(progress),
        "commit_unchanged_ms": history.unchanged_ms((COMMITTED, group.name)),
    }


def _member(member: GroupMember) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "client_id": member.client_id,
        "host": member.host,
        "instance_id": member.instance_id,
        "partitions": _by_topic(member.partitions),
        "target": None if member.target is None else _by_topic(member.target),
        "epoch": member.epoch,
    }


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for key in partitions:
        topics.setdefault(key.topic, []).append(key.partition)
    return topics


def _partition(each: GroupPartition, name: str, history: History) -> dict[str, Any]:
    is_monitored = each.committed_offset is not None and history.last(_key(COMMITTED, name, each)) is not None
    return {
        **each.partition._asdict(),
        "committed_offset": each.committed_offset,
        "start_offset": each.offsets.start_offset if each.offsets is not None else None,
        "end_offset": each.offsets.end_offset if each.offsets is not None else None,
        "lag": each.lag,
        "member_id": each.member.member_id if each.member else None,
        "client_id": each.member.client_id if each.member else None,
        "commit_unchanged_ms": history.unchanged_ms(_key(COMMITTED, name, each)) if is_monitored else None,
    }


def _key(figure: str, name: str, each: GroupPartition) -> tuple[str, ...]:
    return (figure, name, each.partition.topic, str(each.partition.partition))


def _preview(plan: ResetPlan) -> dict[str, Any]:
    moves = [offset_reset.move_document(move) for move in plan.moves]
    return {
        "name": plan.group.name,
        "refusal": str(GroupActiveError(plan.group)) if plan.group.members else None,
        "moves": moves,
        "skipped": sum(move["skipped"] or 0 for move in moves),
        "repeated": sum(move["repeated"] or 0 for move in moves),
    }


ROUTES: Final[tuple[Route, ...]] = (("/groups", groups, ["GET"]), ("/group", group, ["GET", "POST"]))
