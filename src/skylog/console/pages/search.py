"""`/search`: queries the full-text index of the job `search`."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from starlette.requests import Request

from skylog.console.server.fields import query
from skylog.console.server.page import Page, Route, console_of
from skylog.search_index import MAX_HITS, SearchError, search

_LIMIT: Final = 20


async def find(request: Request) -> Page:
    fields, path = query(request), console_of(request).settings.search_index
    words = fields.text("q", "").strip()
    limit = fields.integer("limit", _LIMIT, low=1, high=MAX_HITS)
    if path is None:
        raise SearchError("this console has no index: start it with --search-index, see `skylog pipeline run search`")
    document: dict[str, Any] = {"q": words, "limit": limit, "total": None, "hits": []}
    if words:
        answer = await asyncio.to_thread(search, path, words, limit)
        document["total"] = answer.total
        document["hits"] = [{**hit.document(), "parts": list(hit.parts)} for hit in answer.hits]
    return Page("search.html", "Search", document)


ROUTES: Final[tuple[Route, ...]] = (("/search", find, ["GET"]),)
