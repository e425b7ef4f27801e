"""`/audit`: the counts of every tier by topic and window, and the verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, Final

from starlette.requests import Request

from skylog.audit.balance_document import MEANINGS, balance_document, describe_finding
from skylog.audit.books import DEFAULT_GRACE_MS
from skylog.audit.verdict import SEVERITY, Balance, Verdict
from skylog.console.background.audit_reader import PROBLEMS
from skylog.console.rendering.pagination import paginate
from skylog.console.rendering.sorting import Columns, sort_rows
from skylog.console.server.fields import Fields, query
from skylog.console.server.page import Page, Route, console_of

_COLUMNS: Final[Columns[Balance]] = {
    "window": attrgetter("window_start_ms"),
    "topic": attrgetter("topic"),
    "produced": attrgetter("produced"),
    "stored": attrgetter("stored"),
    "consumed": lambda balance: sum(balance.consumed.values()),
    "landed": lambda balance: sum(balance.landed.values()),
    "verdict": lambda balance: SEVERITY[balance.verdict],
}
_MAX_TOTALS: Final = 500  # use the filter to see others


async def audit(request: Request) -> Page:
    reader = console_of(request).audit
    fields = query(request)
    topic, is_problems, with_unjudged = fields.text("topic", ""), fields.has("problems"), fields.has("unjudged")
    since_ms, until_ms = _time(fields, "since"), _time(fields, "until")
    latest = await reader.snapshot()
    found = [
        balance
        for balance in latest.windows
        if (not topic or balance.topic == topic)
        and (since_ms is None or balance.window_end_ms > since_ms)
        and (until_ms is None or balance.window_start_ms < until_ms)
    ]
    if is_problems:
        shown = [balance for balance in found if balance.verdict in PROBLEMS]
    else:
        shown = [balance for balance in found if with_unjudged or balance.verdict is not Verdict.UNJUDGED]
    judged = [balance for balance in found if with_unjudged or balance.verdict is not Verdict.UNJUDGED]
    ordered, sort = sort_rows(shown, fields, _COLUMNS, "-window")
    rows, paging = paginate(ordered, fields)
    document = {
        "exists": latest.exists,
        "as_of_ms": latest.as_of_ms,
        "progress": reader.progress,
        "problem": reader.problem,
        "begins_ms": latest.begins_ms or None,
        "foreign_count": latest.foreign_count,
        "filter": {
            "topic": topic,
            "since": _iso(since_ms),
            "until": _iso(until_ms),
            "sort": sort,
            **({"problems": 1} if is_problems else {}),
            **({"unjudged": 1} if with_unjudged else {}),
        },
        "known_topics": sorted({balance.topic for balance in latest.windows}),
        "verdicts": {verdict.value: _count(found, verdict.value) for verdict in MEANINGS},
        "folded": {} if with_unjudged else _count_unjudged(found),
        "totals": _totals(judged)[:_MAX_TOTALS],
        "windows": [_window(row) for row in rows],
        "paging": paging,
        "meanings": {verdict.value: meaning for verdict, meaning in MEANINGS.items()},
    }
    return Page("audit.html", "Audit", document)


def _window(balance: Balance) -> dict[str, Any]:
    """Return a row. What an open window lacks may still be reported, so it is not described as a finding."""
    closes_ms = balance.window_end_ms + DEFAULT_GRACE_MS
    is_open = balance.verdict is Verdict.OPEN
    return {
        **balance_document(balance),
        "closes_ms": closes_ms if is_open else None,
        "descriptions": [] if is_open else [describe_finding(each) for each in balance.findings],
    }


def _time(fields: Fields, name: str) -> int | None:
    return fields.time_ms(name) if fields.has(name) else None


def _iso(time_ms: int | None) -> str:
    """Format a time for a `datetime-local` field, in UTC."""
    if time_ms is None:
        return ""
    try:
        return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%dT%H:%M}"
    except (ValueError, OverflowError, OSError):
        return str(time_ms)


def _count_unjudged(found: Iterable[Balance]) -> dict[str, int]:
    """Return the number of windows by topic that cannot be judged."""
    return dict(sorted(Counter(each.topic for each in found if each.verdict is Verdict.UNJUDGED).items()))


def _count(found: Iterable[Balance], verdict: str) -> int:
    return sum(balance.verdict == verdict for balance in found)


def _totals(found: Sequence[Balance]) -> list[dict[str, Any]]:
    """Return the totals of each topic over the given windows, the worst topic first."""
    by_topic: dict[str, list[Balance]] = {}
    for balance in found:
        by_topic.setdefault(balance.topic, []).append(balance)
    totals = sorted(
        by_topic.items(), key=lambda item: (-max(SEVERITY[balance.verdict] for balance in item[1]), item[0])
    )
    return [
        {
            "topic": topic,
            "windows": dict(Counter(balance.verdict.value for balance in balances)),
            "verdict": max((balance.verdict for balance in balances), key=SEVERITY.__getitem__).value,
            "produced": _sum(balance.produced for balance in balances),
            "stored": _sum(balance.stored for balance in balances),
            "consumed": _sums(balance.consumed for balance in balances),
            "landed": _sums(balance.landed for balance in balances),
        }
        for topic, balances in totals
    ]


def _sum(numbers: Iterable[int | None]) -> int | None:
    """Return the sum of the counts; None if there are none."""
    counted = [number for number in numbers if number is not None]
    return sum(counted) if counted else None


def _sums(columns: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total = Counter[str]()
    for column in columns:
        for name, number in column.items():
            total[name] += number
    return dict(sorted(total.items()))


ROUTES: Final[tuple[Route, ...]] = (("/audit", audit, ["GET"]),)
