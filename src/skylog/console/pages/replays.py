"""`/topics/{topic}/replay`: copy a selection of messages into another topic, with a preview, progress and a stop."""

from __future__ import annotations

import re
from typing import Any, Final

from starlette.requests import Request

from skylog.client import OffsetRange, ReplayPlan, plan_replay
from skylog.console.cluster.client_pool import Clients
from skylog.console.messages.selection import choose, clamp, parse_selection, resolve
from skylog.console.rendering.formatting import link
from skylog.console.server.fields import FieldError, Fields, body, query
from skylog.console.server.page import ActionResult, Page, Route, console_of, is_json_requested, status_of
from skylog.errors import SkylogError
from skylog.model import TopicPartition, check_topic_name

_RANGES: Final = re.compile(r"\d{1,9}:\d{1,19}-\d{1,19}(?:,\d{1,9}:\d{1,19}-\d{1,19})*", re.ASCII)
_KEEPS: Final = {"auto": None, "keep": True, "key": False}


async def replay(request: Request) -> Page | ActionResult:
    """GET shows the form and, with `into`, a preview. POST starts the replay."""
    topic = request.path_params["topic"]
    console = console_of(request)
    if request.method == "POST":
        return await _start(request, topic, await body(request))
    fields = query(request)
    plan, problem = None, None
    await console.cluster.run(lambda clients: clients.admin.describe_topic(topic))
    if fields.has("into"):
        try:
            plan = await console.cluster.run(lambda clients: _plan(clients, topic, fields))
        except SkylogError as error:
            if is_json_requested(request):
                raise
            problem = error
    document = {
        "topic": topic,
        "asked": {name: fields.text(name, "") for name in ("into", "from", "to", "since", "until", "rate")}
        | {"partition": ",".join(fields.all("partition")), "partitioning": fields.text("partitioning", "auto")},
        "plan": None if plan is None else _plan_document(plan),
        "problem": None if problem is None else str(problem),
        "replays": [each.document for each in console.replays.of(topic)],
    }
    return Page("topic_replay.html", f"Replay {topic}", document, 200 if problem is None else status_of(problem))


async def _start(request: Request, topic: str, fields: Fields) -> ActionResult:
    fields.choice("action", ("start",))
    rate_limit = fields.optional_integer("rate", low=1)
    console = console_of(request)

    def start(clients: Clients) -> dict[str, Any]:
        return console.replays.start(_plan(clients, topic, fields), rate_limit).document

    document = await console.cluster.run(start)
    return ActionResult(link("/topics", topic, "replay", document["id"]), document)


def _plan(clients: Clients, topic: str, fields: Fields) -> ReplayPlan:
    """Plan from `offsets` of a preview, which are replayed exactly, or from a selection."""
    into = fields.text("into").strip()
    check_topic_name(into)
    if into == topic:
        raise FieldError(f"'{topic}' cannot be replayed into itself: choose another topic")
    ranges = _ranges(clients, topic, fields)
    return plan_replay(
        clients.admin,
        clients.admin,
        topic,
        into,
        start={key.partition: offsets.start_offset for key, offsets in ranges.items()},
        end={key.partition: offsets.end_offset for key, offsets in ranges.items()},
        keep_partitions=_KEEPS[_partitioning(fields)],
    )


def _partitioning(fields: Fields) -> str:
    return fields.choice("partitioning", tuple(_KEEPS), "auto")


def _ranges(clients: Clients, topic: str, fields: Fields) -> dict[TopicPartition, OffsetRange]:
    if not fields.has("offsets"):
        return resolve(clients.admin, topic, parse_selection(fields))
    text = fields.text("offsets")
    if not _RANGES.fullmatch(text):
        raise FieldError(f"'offsets' must be ranges by partition such as 0:10-40,1:0-7, not '{text}'")
    given = {}
    for part in text.split(","):
        number, _, offsets = part.partition(":")
        start_offset, _, end_offset = offsets.partition("-")
        given[int(number)] = OffsetRange(int(start_offset), int(end_offset))
    held = choose(clients.admin, topic, given)
    return {
        key: OffsetRange(clamp(given[key.partition].start_offset, own), clamp(given[key.partition].end_offset, own))
        for key, own in held.items()
    }


def _plan_document(plan: ReplayPlan) -> dict[str, Any]:
    return {
        "source": plan.source,
        "into": plan.target,
        "creates_partitions": plan.new_partitions,
        "keeps_partitions": plan.keeps_partitions,
        "total_offsets": plan.offset_count,
        "offsets": ",".join(
            f"{key.partition}:{offsets.start_offset}-{offsets.end_offset}" for key, offsets in plan.ranges.items()
        ),
        "partitions": [
            {
                "partition": key.partition,
                "start_offset": offsets.start_offset,
                "end_offset": offsets.end_offset,
                "offsets": len(offsets),
            }
            for key, offsets in plan.ranges.items()
        ],
    }


async def running_replay(request: Request) -> Page | ActionResult:
    topic, replay_id = request.path_params["topic"], request.path_params["id"]
    found = console_of(request).replays.get(topic, replay_id)
    if found is None:
        reason = f"there is no replay {replay_id} of '{topic}'; replays end with the console"
        return Page("problem.html", "No such replay", {"error": reason}, 404)
    if request.method == "POST":
        fields = await body(request)
        fields.choice("action", ("stop",))
        found.stop()
        return ActionResult(link("/topics", topic, "replay", replay_id), found.document)
    return Page("topic_replay_progress.html", f"Replay {topic}", {"topic": topic, "replay": found.document})


ROUTES: Final[tuple[Route, ...]] = (
    ("/topics/{topic}/replay", replay, ["GET", "POST"]),
    ("/topics/{topic}/replay/{id}", running_replay, ["GET", "POST"]),
)
