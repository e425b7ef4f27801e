"""`/topics/{topic}/messages`: browse, one message with all of its value, and a form to produce one."""

from __future__ import annotations

import re
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from skylog.client import Message, OffsetRange, Topic
from skylog.console.cluster import Clients
from skylog.console.fields import FieldError, body, query
from skylog.console.messages import produce
from skylog.console.messages.browse import Cursor, read_one, read_page
from skylog.console.messages.place import Place, cursor_text, read_place
from skylog.console.messages.selection import ALL, choose
from skylog.console.messages.view import Row, row, whole
from skylog.console.page import Done, Page, Route, console_of
from skylog.console.words import link
from skylog.model import TopicPartition

_NUMBER: Final = re.compile(r"\d{1,18}", re.ASCII)
_UNSAFE_IN_FILE_NAME: Final = re.compile(r"[^a-zA-Z0-9._-]")


async def messages(request: Request) -> Page | Done:
    topic = request.path_params["topic"]
    console = console_of(request)
    if request.method == "POST":
        return await _produce(request, topic)
    asked = query(request)
    place = read_place(asked)
    document = await console.cluster.ask(lambda clients: _browse(clients, topic, place))
    stored = place.partitions[0] if place.partitions and place.offset is not None and asked.has("stored") else None
    return Page("messages.html", f"Messages of {topic}", document | {"stored_in_partition": stored}, is_heavy=True)


def _browse(clients: Clients, topic: str, place: Place) -> dict[str, Any]:
    admin = clients.admin
    everything = choose(admin, topic, None)
    chosen = choose(admin, topic, place.partitions) if place.partitions else everything
    cursor = place.cursor(admin, chosen)
    found = read_page(clients.connection.another(), chosen, cursor, place.limit, backward=place.is_backward)
    rows = [row(message) for message in found.messages]
    if place.is_backward != (place.order == "newest"):
        rows.reverse()
    older, newer = (found.outer, cursor) if place.is_backward else (cursor, found.outer)
    return {
        "topic": topic,
        "partition": ",".join(map(str, place.partitions)) if place.partitions else ALL,
        "order": place.order,
        "limit": place.limit,
        "offset": place.offset,
        "time_ms": place.time_ms,
        "messages": rows,
        "is_whole": found.is_whole,
        "older": _older(older, chosen),
        "newer": _newer(newer, chosen),
        "partitions": [
            {"partition": key.partition, "start_offset": offsets.start_offset, "end_offset": offsets.end_offset}
            for key, offsets in everything.items()
        ],
    }


def _older(cursor: Cursor, held: dict[TopicPartition, OffsetRange]) -> str | None:
    """What to give as `before` for the page of older messages; None where there are none."""
    has_more = any(offset > held[key].start_offset for key, offset in cursor.items())
    return cursor_text(cursor) if has_more else None


def _newer(cursor: Cursor, held: dict[TopicPartition, OffsetRange]) -> str | None:
    """The same as `after`, for newer ones."""
    has_more = any(offset < held[key].end_offset for key, offset in cursor.items())
    return cursor_text(cursor) if has_more else None


async def _produce(request: Request, topic: str) -> Done:
    fields = await body(request)
    fields.choice("action", ("produce",))
    is_form = not request.headers.get("content-type", "").startswith("application/json")
    new = produce.read_message(fields, is_form=is_form)
    console = console_of(request)

    def send(clients: Clients) -> dict[str, Any]:
        _check_partition(clients.admin.describe_topic(topic), new.partition)
        stored = produce.send(clients.connection, topic, new)
        return {"topic": topic, "partition": stored.partition, "offset": stored.offset}

    document = await console.cluster.ask(send)
    seek = {"partition": document["partition"], "offset": document["offset"], "stored": 1}
    return Done(link("/topics", topic, "messages", **seek), document)


def _check_partition(topic: Topic, partition: int | None) -> None:
    if partition is not None and partition >= len(topic.partitions):
        raise FieldError(
            f"topic '{topic.name}' has no partition {partition}: it has {len(topic.partitions)}, numbered from 0"
        )


async def message(request: Request) -> Page | Response:
    """One message. `…/value` is its value alone, as a file."""
    topic = request.path_params["topic"]
    partition, offset = _number(request, "partition"), _number(request, "offset")
    console = console_of(request)

    is_file = request.url.path.endswith("/value")

    def ask(clients: Clients) -> tuple[OffsetRange, Message | None, Row]:
        [(key, held)] = choose(clients.admin, topic, [partition]).items()
        is_held = held.start_offset <= offset < held.end_offset
        found = read_one(clients.connection.another(), key, held, offset) if is_held else None
        return held, found, {} if found is None or is_file else whole(found).row()

    held, found, shown = await console.cluster.ask(ask)
    if found is None or found.offset != offset:
        more = f"; the next message is at {found.offset}" if found else ""
        told = f"{topic}-{partition} has no message at offset {offset}: it holds {held.start_offset} up to "
        return Page("problem.html", "No such message", {"error": f"{told}{held.end_offset}{more}"}, 404)
    if is_file:
        name = _UNSAFE_IN_FILE_NAME.sub("_", f"{topic}-{partition}-{offset}.bin")
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(found.value or b"", 200, headers, "application/octet-stream")
    document = {
        "topic": topic,
        "message": shown,
        "older_offset": offset - 1 if offset > held.start_offset else None,
        "newer_offset": offset + 1 if offset + 1 < held.end_offset else None,
    }
    return Page("message.html", f"{topic}, partition {partition}, offset {offset}", document, is_heavy=True)


def _number(request: Request, name: str) -> int:
    text = request.path_params[name]
    if not _NUMBER.fullmatch(text):
        raise FieldError(f"'{name}' must be a number, not '{text}'")
    return int(text)


ROUTES: Final[tuple[Route, ...]] = (
    ("/topics/{topic}/messages", messages, ["GET", "POST"]),
    ("/topics/{topic}/messages/{partition}/{offset}", message, ["GET"]),
    ("/topics/{topic}/messages/{partition}/{offset}/value", message, ["GET"]),
)
