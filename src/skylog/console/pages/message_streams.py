"""Streams of messages: `…/messages/follow`, `…/messages/search` and `…/messages/export`.

The first two are pages to a browser, which then opens the same address as a stream of events (text/event-stream) with
rows drawn here. Programs ask for lines of JSON (application/x-ndjson).
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, Final

import orjson
from starlette.requests import Request
from starlette.responses import Response

from skylog.client import OffsetRange
from skylog.console.fields import FieldError, Fields, query
from skylog.console.messages import export as exports
from skylog.console.messages.feed import Feed, FeedResponse, TooManyFeedsError, event
from skylog.console.messages.follow import ROWS_PER_S, Glimpse, follow, glimpses
from skylog.console.messages.match import PLACES, Query, read_places
from skylog.console.messages.search import Step, search
from skylog.console.messages.selection import choose, read_partitions, read_selection, resolve
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
    try:
        if wanted == "events":
            shown = console.feeds.begin(lambda: glimpses(follow(connection, starts)))
            return FeedResponse(shown, _follow_events(console, topic, shown), EVENTS)
        lines = console.feeds.begin(lambda: (exports.json_lines(batch) for batch in follow(connection, starts)))
        return FeedResponse(lines, _lines(lines), LINES)
    except TooManyFeedsError as error:
        return _too_many(error)


async def _follow_events(console: Console, topic: str, feed: Feed[Glimpse]) -> AsyncIterator[bytes]:
    yield event("open", topic)
    sent_at = time.monotonic()
    try:
        async for glimpse in feed:
            if glimpse.rows or glimpse.skipped:
                html = console.fragment("message_rows.html", topic=topic, messages=glimpse.rows)
                yield event("rows", html)
                yield event("count", _json({"shown": len(glimpse.rows), "skipped": glimpse.skipped}))
            elif time.monotonic() - sent_at < HEARTBEAT_S:
                continue
            else:
                yield b": nothing new\n\n"
            sent_at = time.monotonic()
    except SkylogError as error:
        yield event("problem", str(error))


async def _lines(feed: Feed[str]) -> AsyncIterator[bytes]:
    async for text in feed:
        yield text.encode(errors="backslashreplace")


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
    try:
        feed = console.feeds.begin(lambda: search(connection, ranges, test, limit))
    except TooManyFeedsError as error:
        return _too_many(error)
    if wanted == "events":
        return FeedResponse(feed, _search_events(console, topic, feed), EVENTS)
    if wanted == "lines":
        return FeedResponse(feed, _search_lines(feed), LINES)
    return Page("messages_search.html", f"Search {topic}", document | await _search_result(feed))


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


async def _search_result(feed: Feed[Step]) -> dict[str, Any]:
    """What is found in WAIT_S, as one document; `progress.is_complete` says whether that is all."""
    deadline = time.monotonic() + WAIT_S
    rows: list[dict[str, Any]] = []
    progress: dict[str, Any] | None = None
    async for step in feed:
        rows += step.rows
        progress = step.progress.document
        if time.monotonic() > deadline:
            feed.stop()
            break
    return {"messages": rows, "progress": progress}


async def _search_events(console: Console, topic: str, feed: Feed[Step]) -> AsyncIterator[bytes]:
    progress = b"{}"
    try:
        async for step in feed:
            if step.rows:
                yield event("rows", console.fragment("message_rows.html", topic=topic, messages=step.rows))
            progress = orjson.dumps(step.progress.document)
            yield event("progress", progress.decode())
        yield event("end", progress.decode())
    except SkylogError as error:
        yield event("problem", str(error))


async def _search_lines(feed: Feed[Step]) -> AsyncIterator[bytes]:
    """`{"match": …}` and `{"progress": …}`, at the end `{"end": …}`, with the progress in it, or `{"error": …}`."""
    progress: dict[str, Any] = {}
    try:
        async for step in feed:
            for match in step.rows:
                yield _line({"match": match})
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
    return FeedResponse(feed, aiter(feed), exports.FORMATS[file_format], headers=headers)


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
