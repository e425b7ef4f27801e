"""Streams of messages: `…/messages/follow`, `…/messages/search` and `…/messages/export`.

The first two are pages in a browser, which then requests the same address as text/event-stream and gets rows rendered
as HTML. Programs request JSON lines (application/x-ndjson). Responses are produced in the threads of feeds.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any, Final

import orjson
from starlette.requests import Request
from starlette.responses import Response

from skylog.client import OffsetRange
from skylog.console.messages import export as exports
from skylog.console.messages.feed import FeedResponse, TooManyFeedsError, event
from skylog.console.messages.follow import ROWS_PER_S, FollowUpdate, follow, follow_updates
from skylog.console.messages.json_layout import encode
from skylog.console.messages.query import PLACES, Query, parse_places
from skylog.console.messages.search import SearchUpdate, search
from skylog.console.messages.selection import choose, parse_partitions, parse_selection, resolve
from skylog.console.messages.view import FORMS, Row
from skylog.console.server.fields import FieldError, Fields, query
from skylog.console.server.page import Page, Route, console_of, is_json_requested
from skylog.errors import SkylogError
from skylog.model import TopicPartition

EVENTS: Final = "text/event-stream"
LINES: Final = "application/x-ndjson"
HEARTBEAT_S: Final = 10.0
DEFAULT_MATCHES: Final = 100
MAX_MATCHES: Final = 1000
ROWS_PER_EVENT: Final = 50
JSON_SEARCH_S: Final = 20.0  # the limit for a search that returns one document
_UNSAFE_IN_FILE_NAME: Final = re.compile(r"[^a-zA-Z0-9._-]")


def _format(request: Request) -> str:
    """Return the requested format: events, lines, json or html."""
    accepted = request.headers.get("accept", "")
    if EVENTS in accepted:
        return "events"
    if LINES in accepted or request.query_params.get("format") == "ndjson":
        return "lines"
    return "json" if is_json_requested(request) else "html"


async def follow_messages(request: Request) -> Page | Response:
    topic = request.path_params["topic"]
    console = console_of(request)
    partitions = parse_partitions(query(request).all("partition"))
    held = await console.cluster.run(lambda clients: choose(clients.admin, topic, partitions))
    stream_format, form = _format(request), _form(query(request))
    if stream_format == "html":
        document = {"topic": topic, "partitions": list(partitions or ()), "rows_per_s": ROWS_PER_S, "form": form}
        return Page("messages_follow.html", f"Follow {topic}", document)
    starts = {key: offsets.end_offset for key, offsets in held.items()}
    connection = console.cluster.connection()

    def work() -> Iterator[bytes]:
        batches = follow(connection, starts)
        if stream_format == "events":
            return _follow_events(request, topic, follow_updates(batches), form)
        return (lines for messages, _ in batches for lines in exports.json_lines(messages))

    try:
        return FeedResponse(console.feeds.begin(work), EVENTS if stream_format == "events" else LINES)
    except TooManyFeedsError as error:
        return _too_many(error)


def _follow_events(request: Request, topic: str, updates: Iterator[FollowUpdate], form: str) -> Iterator[bytes]:
    yield event("open", topic)
    sent_at = time.monotonic()
    was_unreachable = False
    try:
        for update in updates:
            piece = b""
            if update.is_unreachable != was_unreachable:
                was_unreachable = update.is_unreachable
                reason = f"{console_of(request).cluster.bootstrap} is unreachable; reconnecting"
                piece = event("unreachable", reason) if was_unreachable else event("live", topic)
            if update.rows or update.skipped:
                piece += _rows_event(request, topic, update.rows, form)
                piece += event("count", _json({"shown": len(update.rows), "skipped": update.skipped}))
            if not piece and time.monotonic() - sent_at >= HEARTBEAT_S:
                piece = b": heartbeat\n\n"
            if piece:
                sent_at = time.monotonic()
            yield piece
    except SkylogError as error:
        yield event("problem", str(error))


def _rows_event(request: Request, topic: str, rows: list[Row], form: str) -> bytes:
    return event(
        "rows", console_of(request).fragment(request, "message_rows.html", topic=topic, messages=rows, form=form)
    )


async def search_messages(request: Request) -> Page | Response:
    topic = request.path_params["topic"]
    console = console_of(request)
    fields = query(request)
    selection = parse_selection(fields)
    search_query = _parse_query(fields)
    limit = fields.integer("limit", DEFAULT_MATCHES, low=1, high=MAX_MATCHES)
    ranges = await console.cluster.run(lambda clients: resolve(clients.admin, topic, selection))
    stream_format = _format(request)
    document = _search_document(topic, fields, search_query, limit, ranges)
    if search_query is None:
        if stream_format in ("events", "lines"):
            raise FieldError("'q' is missing: the text to search for, or 'filter'")
        return Page("messages_search.html", f"Search {topic}", document)
    if stream_format == "html":
        return Page("messages_search.html", f"Search {topic}", document, 200 if document["error"] is None else 400)
    connection, predicate = console.cluster.connection(), search_query.predicate()

    def work() -> Iterator[bytes]:
        updates = search(connection, ranges, predicate, limit)
        if stream_format == "events":
            return _search_events(request, topic, updates, document["form"])
        return _search_lines(updates) if stream_format == "lines" else _search_result(updates, document)

    try:
        feed = console.feeds.begin(work)
    except TooManyFeedsError as error:
        return _too_many(error)
    if stream_format == "json":
        return Response(b"".join([piece async for piece in feed]), media_type="application/json")
    return FeedResponse(feed, EVENTS if stream_format == "events" else LINES)


def _parse_query(fields: Fields) -> Query | None:
    if not fields.has("q") and not fields.has("filter"):
        return None
    return Query(fields.text("q", ""), parse_places(fields.all("in")), fields.has("case"), fields.text("filter", ""))


def _search_document(
    topic: str, fields: Fields, search_query: Query | None, limit: int, ranges: dict[TopicPartition, OffsetRange]
) -> dict[str, Any]:
    return {
        "topic": topic,
        "error": _error(search_query),
        "form": _form(fields),
        "asked": {
            "q": search_query.text if search_query else "",
            "filter": search_query.conditions if search_query else "",
            "in": list(search_query.places if search_query else PLACES),
            "case": search_query is not None and search_query.is_case_sensitive,
            "partition": ",".join(fields.all("partition")),
            "since": fields.text("since", ""),
            "until": fields.text("until", ""),
            "from": fields.text("from", ""),
            "to": fields.text("to", ""),
            "limit": limit,
        },
        "total": sum(map(len, ranges.values())),
        "progress": None,
        "messages": [],
    }


def _error(search_query: Query | None) -> str | None:
    """Return why a query is invalid, for the page with the form. Streams raise it."""
    try:
        if search_query is not None:
            search_query.predicate()
    except FieldError as error:
        return str(error)
    return None


def _form(fields: Fields) -> str:
    return fields.choice("form", FORMS, "pretty")


def _search_result(updates: Iterator[SearchUpdate], document: dict[str, Any]) -> Iterator[bytes]:
    """Return the matches found within JSON_SEARCH_S, as one document. `progress.is_complete` if these are all."""
    deadline = time.monotonic() + JSON_SEARCH_S
    matches: list[orjson.Fragment] = []
    progress: dict[str, Any] | None = None
    for update in updates:
        matches += [orjson.Fragment(encode(match.row())) for match in update.matches]
        progress = update.progress.document
        if time.monotonic() > deadline:
            break
        yield b""
    yield orjson.dumps(document | {"messages": matches, "progress": progress})


def _search_events(request: Request, topic: str, updates: Iterator[SearchUpdate], form: str) -> Iterator[bytes]:
    progress = "{}"
    try:
        for update in updates:
            for start in range(0, len(update.matches), ROWS_PER_EVENT):
                rows = [match.row() for match in update.matches[start : start + ROWS_PER_EVENT]]
                yield _rows_event(request, topic, rows, form)
            progress = _json(update.progress.document)
            yield event("progress", progress)
        yield event("end", progress)
    except SkylogError as error:
        yield event("problem", str(error))


def _search_lines(updates: Iterator[SearchUpdate]) -> Iterator[bytes]:
    """Yield lines `{"match": …}` and `{"progress": …}`, and last `{"end": …}` with the progress, or `{"error": …}`."""
    progress: dict[str, Any] = {}
    try:
        for update in updates:
            for match in update.matches:
                yield _line({"match": match.row()})
            progress = update.progress.document
            yield _line({"progress": progress})
        yield _line({"end": progress})
    except SkylogError as error:
        yield _line({"error": str(error)})


async def export_messages(request: Request) -> Page | Response:
    topic = request.path_params["topic"]
    console = console_of(request)
    fields = query(request)
    file_format = fields.choice("as", tuple(exports.FORMATS), "json")
    selection, search_query = parse_selection(fields), _parse_query(fields)
    limit = fields.integer("limit", exports.DEFAULT_LIMIT, low=1, high=exports.MAX_LIMIT)
    predicate = search_query.predicate() if search_query else None
    ranges = await console.cluster.run(lambda clients: resolve(clients.admin, topic, selection))
    connection = console.cluster.connection()

    def work() -> Iterator[bytes]:
        return exports.export(connection, ranges, predicate, limit, file_format)

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
    return encode(document) + b"\n"


ROUTES: Final[tuple[Route, ...]] = (
    ("/topics/{topic}/messages/follow", follow_messages, ["GET"]),
    ("/topics/{topic}/messages/search", search_messages, ["GET"]),
    ("/topics/{topic}/messages/export", export_messages, ["GET"]),
)
