"""Streams of messages: `…/messages/follow`, `…/messages/search` and `…/messages/export`.

The first two are pages to a browser, which then opens the same address as a stream of events (text/event-stream) with
rows drawn here. Programs ask for lines of JSON (application/x-ndjson). What is sent is made in the feeds' threads.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import orjson
from starlette.requests import Request
from starlette.responses import Response

from skylog.client import OffsetRange
from skylog.console.fields import FieldError, Fields, query
from skylog.console.messages import export as exports
from skylog.console.messages.feed import FeedResponse, TooManyFeedsError, event
from skylog.console.messages.follow import ROWS_PER_S, Glimpse, follow, glimpses
from skylog.console.messages.match import PLACES, Query, read_places
from skylog.console.messages.search import Step, search
from skylog.console.messages.selection import choose, read_partitions, read_selection, resolve
from skylog.console.messages.view import Row
from skylog.console.page import Page, Route, console_of, wants_json
from skylog.errors import SkylogError
from skylog.model import TopicPartition
from skylog.printable import json_text

if TYPE_CHECKING:
    from skylog.console.app import Console

EVENTS: Final = "text/event-stream"
LINES: Final = "application/x-ndjson"
HEARTBEAT_S: Final = 10.0
DEFAULT_MATCHES: Final = 100
MAX_MATCHES: Final = 1000
ROWS_PER_EVENT: Final = 50
WAIT_S: Final = 20.0  # of a search that is asked for as one document
_UNSAFE_IN_FILE_NAME: Final = re.compile(r"[^a-zA-Z0-9._-]")


def _wanted(request: Request) -> str:
    """In which form a stream is asked for: events, lines, json or html."""
    accepted = request.headers.get("accept", "")
    if EVENTS in accepted:
        return "events"
    if LINES in accepted or request.query_params.get("format") == "ndjson":
        return "lines"
    return "json" if wants_json(request) else "html"


async def follow_messages(request: Request) -> Page | Response:
    topic = request.path_params["topic"]
    console = console_of(request)
    partitions = read_partitions(query(request).all("partition"))
    held = await console.cluster.ask(lambda clients: choose(clients.admin, topic, partitions))
    wanted = _wanted(request)
    if wanted == "html":
        document = {"topic": topic, "partitions": list(partitions or ()), "rows_per_s": ROWS_PER_S}
        return Page("messages_follow.html", f"Follow {topic}", document)
    starts = {key: offsets.end_offset for key, offsets in held.items()}
    connection = console.cluster.connection()

    def work() -> Iterator[bytes]:
        seen = follow(connection, starts)
        if wanted == "events":
            return _follow_events(console, topic, glimpses(seen))
        return (lines for messages, _ in seen for lines in exports.json_lines(messages))

    try:
        return FeedResponse(console.feeds.begin(work), EVENTS if wanted == "events" else LINES)
    except TooManyFeedsError as error:
        return _too_many(error)


def _follow_events(console: Console, topic: str, seen: Iterator[Glimpse]) -> Iterator[bytes]:
    yield event("open", topic)
    sent_at = time.monotonic()
    was_away = False
    try:
        for glimpse in seen:
            piece = b""
            if glimpse.is_away != was_away:
                was_away = glimpse.is_away
                told = f"{console.cluster.bootstrap} cannot be reached; waiting for it to come back"
                piece = event("away", told) if was_away else event("live", topic)
            if glimpse.rows or glimpse.skipped:
                piece += _rows_event(console, topic, glimpse.rows)
                piece += event("count", _json({"shown": len(glimpse.rows), "skipped": glimpse.skipped}))
            if not piece and time.monotonic() - sent_at >= HEARTBEAT_S:
                piece = b": nothing new\n\n"
            if piece:
                sent_at = time.monotonic()
            yield piece
    except SkylogError as error:
        yield event("problem", str(error))


def _rows_event(console: Console, topic: str, rows: list[Row]) -> bytes:
    return event("rows", console.fragment("message_rows.html", topic=topic, messages=rows))


async def search_messages(request: Request) -> Page | Response:
    topic = request.path_params["topic"]
    console = console_of(request)
    asked = query(request)
    selection = read_selection(asked)
    found_query = _read_query(asked)
    limit = asked.integer("limit", DEFAULT_MATCHES, low=1, high=MAX_MATCHES)
    ranges = await console.cluster.ask(lambda clients: resolve(clients.admin, topic, selection))
    wanted = _wanted(request)
    document = _search_document(topic, asked, found_query, limit, ranges)
    if found_query is None:
        if wanted in ("events", "lines"):
            raise FieldError("'q' is missing: what to search for")
        return Page("messages_search.html", f"Search {topic}", document)
    if wanted == "html":
        found_query.test()  # says what is wrong with it
        return Page("messages_search.html", f"Search {topic}", document)
    connection, test = console.cluster.connection(), found_query.test()

    def work() -> Iterator[bytes]:
        steps = search(connection, ranges, test, limit)
        if wanted == "events":
            return _search_events(console, topic, steps)
        return _search_lines(steps) if wanted == "lines" else _search_result(steps, document)

    try:
        feed = console.feeds.begin(work)
    except TooManyFeedsError as error:
        return _too_many(error)
    if wanted == "json":
        return Response(b"".join([piece async for piece in feed]), media_type="application/json")
    return FeedResponse(feed, EVENTS if wanted == "events" else LINES)


def _read_query(asked: Fields) -> Query | None:
    if not asked.has("q"):
        return None
    return Query(asked.text("q"), read_places(asked.all("in")), asked.has("case"))


def _search_document(
    topic: str, asked: Fields, found_query: Query | None, limit: int, ranges: dict[TopicPartition, OffsetRange]
) -> dict[str, Any]:
    return {
        "topic": topic,
        "asked": {
            "q": found_query.text if found_query else "",
            "in": list(found_query.places if found_query else PLACES),
            "case": found_query is not None and found_query.minds_case,
            "partition": ",".join(asked.all("partition")),
            "since": asked.text("since", ""),
            "until": asked.text("until", ""),
            "from": asked.text("from", ""),
            "to": asked.text("to", ""),
            "limit": limit,
        },
        "total": sum(map(len, ranges.values())),
        "progress": None,
        "messages": [],
    }


def _search_result(steps: Iterator[Step], document: dict[str, Any]) -> Iterator[bytes]:
    """What is found in WAIT_S, as one document; `progress.is_complete` says whether that is all."""
    deadline = time.monotonic() + WAIT_S
    matches: list[orjson.Fragment] = []
    progress: dict[str, Any] | None = None
    for step in steps:
        matches += [orjson.Fragment(orjson.dumps(match.row())) for match in step.matches]
        progress = step.progress.document
        if time.monotonic() > deadline:
            break
        yield b""
    yield orjson.dumps(document | {"messages": matches, "progress": progress})


def _search_events(console: Console, topic: str, steps: Iterator[Step]) -> Iterator[bytes]:
    progress = "{}"
    try:
        for step in steps:
            for start in range(0, len(step.matches), ROWS_PER_EVENT):
                rows = [match.row() for match in step.matches[start : start + ROWS_PER_EVENT]]
                yield _rows_event(console, topic, rows)
            progress = _json(step.progress.document)
            yield event("progress", progress)
        yield event("end", progress)
    except SkylogError as error:
        yield event("problem", str(error))


def _search_lines(steps: Iterator[Step]) -> Iterator[bytes]:
    """`{"match": …}` and `{"progress": …}`, at the end `{"end": …}`, with the progress in it, or `{"error": …}`."""
    progress: dict[str, Any] = {}
    try:
        for step in steps:
            for match in step.matches:
                yield _line({"match": match.row()})
            progress = step.progress.document
            yield _line({"progress": progress})
        yield _line({"end": progress})
    except SkylogError as error:
        yield _line({"error": str(error)})


async def export_messages(request: Request) -> Page | Response:
    topic = request.path_params["topic"]
    console = console_of(request)
    asked = query(request)
    file_format = asked.choice("as", tuple(exports.FORMATS), "json")
    selection, found_query = read_selection(asked), _read_query(asked)
    limit = asked.integer("limit", exports.DEFAULT_LIMIT, low=1, high=exports.MAX_LIMIT)
    test = found_query.test() if found_query else None
    ranges = await console.cluster.ask(lambda clients: resolve(clients.admin, topic, selection))
    connection = console.cluster.connection()

    def work() -> Iterator[bytes]:
        return exports.export(connection, ranges, test, limit, file_format)

    try:
        feed = console.feeds.begin(work)
    except TooManyFeedsError as error:
        return _too_many(error)
    name = _UNSAFE_IN_FILE_NAME.sub("_", topic) + (".csv" if file_format == "csv" else ".jsonl")
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return FeedResponse(feed, exports.FORMATS[file_format], headers=headers)


def _too_many(error: TooManyFeedsError) -> Page:
    return Page("problem.html", "Too many streams", {"error": str(error)}, 503)


def _json(document: dict[str, Any]) -> str:
    return orjson.dumps(document).decode()


def _line(document: dict[str, Any]) -> bytes:
    return f"{json_text(document)}\n".encode(errors="backslashreplace")


ROUTES: Final[tuple[Route, ...]] = (
    ("/topics/{topic}/messages/follow", follow_messages, ["GET"]),
    ("/topics/{topic}/messages/search", search_messages, ["GET"]),
    ("/topics/{topic}/messages/export", export_messages, ["GET"]),
)
