"""`/topics/{topic}/replay`: a selection of messages into another topic: counted first, then sent, watched, stopped."""

from __future__ import annotations

import re
from typing import Any, Final

from starlette.requests import Request

from skylog.client import OffsetRange, ReplayPlan, plan_replay
from skylog.console.cluster import Clients
from skylog.console.fields import FieldError, Fields, body, query
from skylog.console.messages.selection import choose, clamp, read_selection, resolve
from skylog.console.page import Done, Page, Route, console_of
from skylog.console.words import link
from skylog.model import TopicPartition, check_topic_name

_RANGES: Final = re.compile(r"\d{1,9}:\d{1,19}-\d{1,19}(?:,\d{1,9}:\d{1,19}-\d{1,19})*", re.ASCII)
_KEEPS: Final = {"auto": None, "keep": True, "key": False}


async def replay(request: Request) -> Page | Done:
    """The form; with `into` also what would be sent. Posted, it starts."""
    topic = request.path_params["topic"]
    console = console_of(request)
    if request.method == "POST":
        return await _start(request, topic, await body(request))
    asked = query(request)
    plan = None
    if asked.has("into"):
        plan = await console.cluster.ask(lambda clients: _plan(clients, topic, asked))
    else:
        await console.cluster.ask(lambda clients: clients.admin.describe_topic(topic))
    document = {
        "topic": topic,
        "asked": {name: asked.text(name, "") for name in ("into", "from", "to", "since", "until", "rate")}
        | {"partition": ",".join(asked.all("partition")), "partitioning": _partitioning(asked)},
        "plan": None if plan is None else _plan_document(plan),
        "replays": [each.document for each in console.replays.of(topic)],
    }
    return Page("topic_replay.html", f"Replay {topic}", document)


async def _start(request: Request, topic: str, fields: Fields) -> Done:
    fields.choice("action", ("start",))
    rate_limit = fields.optional_integer("rate", low=1)
    console = console_of(request)

    def start(clients: Clients) -> dict[str, Any]:
        return console.replays.start(_plan(clients, topic, fields), rate_limit).document

    document = await console.cluster.ask(start)
    return Done(link("/topics", topic, "replay", document["id"]), document)


def _plan(clients: Clients, topic: str, fields: Fields) -> ReplayPlan:
    """From `offsets`, which a preview gives and which is then exactly what is sent, or from a selection."""
    into = fields.text("into").strip()
    check_topic_name(into)
    if into == topic:
        raise FieldError(f"'{topic}' is not replayed into itself: choose another topic")
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
        return resolve(clients.admin, topic, read_selection(fields))
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


async def running_replay(request: Request) -> Page | Done:
    topic, replay_id = request.path_params["topic"], request.path_params["id"]
    found = console_of(request).replays.get(topic, replay_id)
    if found is None:
        told = f"there is no replay {replay_id} of '{topic}'; a console forgets them when it ends"
        return Page("problem.html", "No such replay", {"error": told}, 404)
    if request.method == "POST":
        fields = await body(request)
        fields.choice("action", ("stop",))
        found.stop()
        return Done(link("/topics", topic, "replay", replay_id), found.document)
    return Page("topic_replay_progress.html", f"Replay {topic}", {"topic": topic, "replay": found.document})


ROUTES: Final[tuple[Route, ...]] = (
    ("/topics/{topic}/replay", replay, ["GET", "POST"]),
    ("/topics/{topic}/replay/{id}", running_replay, ["GET", "POST"]),
)
