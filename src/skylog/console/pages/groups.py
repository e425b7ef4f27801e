"""`/groups` and `/group`: who reads what and how far, moving a group to other offsets, deleting it."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request

from skylog.client import ConsumerGroup, GroupActiveError, GroupMember, GroupPartition, ResetPlan
from skylog.console import reset
from skylog.console.cluster import Clients
from skylog.console.fields import FieldError, Fields, body, query
from skylog.console.history import History
from skylog.console.page import Done, Page, Route, console_of
from skylog.console.paging import paged
from skylog.console.trend import LONGEST_MS, trend
from skylog.console.watch import COMMITTED, LAG
from skylog.console.words import link

_PLOTTED: Final = 6
_PARTITIONS_PER_PAGE: Final = 200
_MAX_NAME_BYTES: Final = 32_000  # the protocol has room for a little more; past that librdkafka never answers again
_SORTS: Final = ("name", "lag")


async def groups(request: Request) -> Page:
    console = console_of(request)
    await console.watch.first_look()
    look, history = console.watch.latest, console.watch.history
    asked = query(request)
    wanted, sort = asked.text("q", "").strip(), asked.choice("sort", _SORTS, "name")
    found = [group for group in look.groups.values() if _matches(group, wanted.lower())]
    found.sort(key=lambda group: (-group.lag, group.name) if sort == "lag" else (0, group.name))
    shown, paging = paged(found, asked)
    document = {
        "as_of_ms": look.taken_at_ms,
        "filter": {"q": wanted, "sort": sort},
        "groups": [_summary(group, history) for group in shown],
        "known": len(look.groups),
        "paging": paging,
    }
    return Page("groups.html", "Groups", document)


async def group(request: Request) -> Page | Done:
    """One group; a form of its page is posted to the same path."""
    asked = query(request)
    name = _name(asked)
    if request.method == "POST":
        return await _change(request, name, await body(request))
    console = console_of(request)
    [found] = await console.cluster.ask(lambda clients: clients.groups.describe_groups([name]))
    history = console.watch.history
    partitions, paging = paged(found.partitions, asked, _PARTITIONS_PER_PAGE)
    furthest = sorted(found.partitions, key=lambda each: -(each.lag or 0))[:_PLOTTED]
    document = {
        **_summary(found, history),
        "members": [_member(each) for each in found.members],
        "partitions": [_partition(each, name, history) for each in partitions],
        "paging": paging,
        "lag_history": {
            "group": history.points((LAG, name)),
            "partitions": {str(each.partition): history.points(_key(LAG, name, each)) for each in furthest},
        },
        "reset_partitions": asked.optional_integer("reset", low=0),
    }
    return Page("group.html", f"Group {name}", document)


async def _change(request: Request, name: str, fields: Fields) -> Page | Done:
    console = console_of(request)
    match fields.choice("action", ("preview", "reset", "delete")):
        case "preview":
            wish = reset.Wish.read(fields)
            plan = await console.cluster.ask(lambda clients: reset.plan(clients, name, wish))
            return Page("group_reset.html", f"Reset group {name}", _preview(plan))
        case "reset":
            moves = fields.all("move")

            def do(clients: Clients) -> ResetPlan:
                plan = reset.confirmed(clients, name, moves)
                clients.groups.reset(plan)
                return plan

            plan = await console.cluster.ask(do)
            await console.watch.look()
            return Done(link("/group", name=name, reset=len(plan.moves)), {"reset": True, **_preview(plan)})
        case _:
            if fields.text("confirm", "") != name:
                raise FieldError(f"to delete the group, 'confirm' must be its name: {name}")
            await console.cluster.ask(lambda clients: clients.groups.delete_groups([name]))
            await console.watch.look()
            return Done("/groups", {"deleted": name})


def _name(fields: Fields) -> str:
    name = fields.text("name")
    if "\0" in name or len(name.encode()) > _MAX_NAME_BYTES:
        raise FieldError(f"the name of a group has no zero byte and at most {_MAX_NAME_BYTES} bytes")
    return name


def _matches(group: ConsumerGroup, wanted: str) -> bool:
    return wanted in group.name.lower() or any(wanted in each.partition.topic.lower() for each in group.partitions)


# -- documents


def _summary(group: ConsumerGroup, history: History) -> dict[str, Any]:
    return {
        "name": group.name,
        "state": group.state,
        "protocol": group.protocol,
        "member_count": len(group.members),
        "topics": sorted({each.partition.topic for each in group.partitions}),
        "lag": group.lag,
        "trend": trend(history.points((LAG, group.name), LONGEST_MS)),
        "commit_unchanged_ms": history.unchanged_ms((COMMITTED, group.name)),
    }


def _member(member: GroupMember) -> dict[str, Any]:
    assigned: dict[str, list[int]] = {}
    for key in member.partitions:
        assigned.setdefault(key.topic, []).append(key.partition)
    return {
        "member_id": member.member_id,
        "client_id": member.client_id,
        "host": member.host,
        "instance_id": member.instance_id,
        "partitions": assigned,
    }


def _partition(each: GroupPartition, name: str, history: History) -> dict[str, Any]:
    is_watched = each.committed_offset is not None and history.last(_key(COMMITTED, name, each)) is not None
    return {
        **each.partition._asdict(),
        "committed_offset": each.committed_offset,
        "start_offset": each.offsets.start_offset if each.offsets is not None else None,
        "end_offset": each.offsets.end_offset if each.offsets is not None else None,
        "lag": each.lag,
        "member_id": each.member.member_id if each.member else None,
        "client_id": each.member.client_id if each.member else None,
        "commit_unchanged_ms": history.unchanged_ms(_key(COMMITTED, name, each)) if is_watched else None,
    }


def _key(figure: str, name: str, each: GroupPartition) -> tuple[str, ...]:
    return (figure, name, each.partition.topic, str(each.partition.partition))


def _preview(plan: ResetPlan) -> dict[str, Any]:
    moves = [reset.move_document(move) for move in plan.moves]
    return {
        "name": plan.group.name,
        "refusal": str(GroupActiveError(plan.group)) if plan.group.members else None,
        "moves": moves,
        "skipped": sum(move["skipped"] or 0 for move in moves),
        "repeated": sum(move["repeated"] or 0 for move in moves),
    }


ROUTES: Final[tuple[Route, ...]] = (("/groups", groups, ["GET"]), ("/group", group, ["GET", "POST"]))
