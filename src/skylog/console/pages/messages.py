"""`/topics/{topic}/messages`: browse messages, show a single message, produce one."""

from __future__ import annotations

import re
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from skylog.client import Message, OffsetRange, Topic
from skylog.console.cluster.client_pool import Clients
from skylog.console.messages import produce
from skylog.console.messages.browse import Cursor, read_one, read_page
from skylog.console.messages.page_request import PageRequest, cursor_text, parse_page_request
from skylog.console.messages.produce_again import NOTHING, again
from skylog.console.messages.schema_reader import SchemaReader, decoded
from skylog.console.messages.selection import ALL, choose
from skylog.console.messages.view import FORMS, SHOWN_VALUE_BYTES, WHOLE_BYTES, Row, row, whole
from skylog.console.rendering.formatting import link
from skylog.console.server.fields import FieldError, body, query
from skylog.console.server.page import ActionResult, Page, Route, console_of
from skylog.model import TopicPartition

_NUMBER: Final = re.compile(r"\d{1,18}", re.ASCII)
_UNSAFE_IN_FILE_NAME: Final = re.compile(r"[^a-zA-Z0-9._-]")


async def messages(request: Request) -> Page | ActionResult:
    topic = request.path_params["topic"]
    console = console_of(request)
    if request.method == "POST":
        return await _produce(request, topic)
    fields = query(request)
    page = parse_page_request(fields)
    document = await console.cluster.run(lambda clients: _browse(clients, console.registry, topic, page))
    stored = page.partitions[0] if page.partitions and page.offset is not None and fields.has("stored") else None
    more = {"stored_in_partition": stored, "form": fields.choice("form", FORMS, "pretty"), "produced": NOTHING}
    return Page("messages.html", f"Messages of {topic}", document | more, is_heavy=True)


def _browse(clients: Clients, registry: SchemaReader | None, topic: str, page: PageRequest) -> dict[str, Any]:
    admin = clients.admin
    everything = choose(admin, topic, None)
    chosen = choose(admin, topic, page.partitions) if page.partitions else everything
    cursor = page.cursor(admin, chosen)
    found = read_page(clients.connection.another(), chosen, cursor, page.limit, backward=page.is_backward)
    rows = [row(message) | decoded(registry, message, SHOWN_VALUE_BYTES) for message in found.messages]
    if page.is_backward != (page.order == "newest"):
        rows.reverse()
    older, newer = (found.outer, cursor) if page.is_backward else (cursor, found.outer)
    return {
        "topic": topic,
        "partition": ",".join(map(str, page.partitions)) if page.partitions else ALL,
        "order": page.order,
        "limit": page.limit,
        "offset": page.offset,
        "time_ms": page.time_ms,
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
    """Return the value of `before` for the page of older messages; None if there are none."""
    has_more = any(offset > held[key].start_offset for key, offset in cursor.items())
    return cursor_text(cursor) if has_more else None


def _newer(cursor: Cursor, held: dict[TopicPartition, OffsetRange]) -> str | None:
    """Return the value of `after` for the page of newer messages; None if there are none."""
    has_more = any(offset < held[key].end_offset for key, offset in cursor.items())
    return cursor_text(cursor) if has_more else None


async def _produce(request: Request, topic: str) -> ActionResult:
    fields = await body(request)
    fields.choice("action", ("produce",))
    is_form = not request.headers.get("content-type", "").startswith("application/json")
    new = produce.parse_message(fields, is_form=is_form)
    console = console_of(request)

    def send(clients: Clients) -> dict[str, Any]:
        _check_partition(clients.admin.describe_topic(topic), new.partition)
        stored = produce.send(clients.connection, topic, new)
        return {"topic": topic, "partition": stored.partition, "offset": stored.offset}

    document = await console.cluster.run(send)
    seek = {"partition": document["partition"], "offset": document["offset"], "stored": 1}
    return ActionResult(link("/topics", topic, "messages", **seek), document)


def _check_partition(topic: Topic, partition: int | None) -> None:
    if partition is not None and partition >= len(topic.partitions):
        raise FieldError(
            f"topic '{topic.name}' has no partition {partition}: it has {len(topic.partitions)}, numbered from 0"
        )


async def message(request: Request) -> Page | Response:
    """Serve the page of a message. `…/value` sends the value alone as a file."""
    topic = request.path_params["topic"]
    partition, offset = _number(request, "partition"), _number(request, "offset")
    console = console_of(request)

    is_file = request.url.path.endswith("/value")

    def read(clients: Clients) -> tuple[OffsetRange, Message | None, Row]:
        [(key, held)] = choose(clients.admin, topic, [partition]).items()
        is_held = held.start_offset <= offset < held.end_offset
        found = read_one(clients.connection.another(), key, held, offset) if is_held else None
        return (
            held,
            found,
            {} if found is None or is_file else whole(found).row() | decoded(console.registry, found, WHOLE_BYTES),
        )

    held, found, shown = await console.cluster.run(read)
    if found is None or found.offset != offset:
        more = f"; the next message is at {found.offset}" if found else ""
        limits = f"its offsets are {held.start_offset} up to {held.end_offset}"
        reason = f"{topic}-{partition} has no message at offset {offset}: {limits}{more}"
        return Page("problem.html", "No such message", {"error": reason}, 404)
    if is_file:
        name = _UNSAFE_IN_FILE_NAME.sub("_", f"{topic}-{partition}-{offset}.bin")
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(found.value or b"", 200, headers, "application/octet-stream")
    document = {
        "topic": topic,
        "message": shown,
        "form": query(request).choice("form", FORMS, "pretty"),
        "again": again(shown),
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
