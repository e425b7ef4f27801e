"""`/audit`: per topic and window what was produced, stored, consumed and landed, and whether that agrees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from starlette.requests import Request

from skylog.audit.verdict import SEVERITY, Balance
from skylog.console.audit_watch import PROBLEMS
from skylog.console.balance_document import MEANINGS, balance_document, sentence
from skylog.console.fields import Fields, query
from skylog.console.page import Page, Route, console_of
from skylog.console.paging import paged

_MAX_TOPICS: Final = 500  # with totals; more are told by the filter


async def audit(request: Request) -> Page:
    watch = console_of(request).audit
    asked = query(request)
    topic, is_problems = asked.text("topic", ""), asked.has("problems")
    since_ms, until_ms = _time(asked, "since"), _time(asked, "until")
    seen = await watch.books()
    found = [
        balance
        for balance in seen.windows
        if (not topic or balance.topic == topic)
        and (since_ms is None or balance.window_end_ms > since_ms)
        and (until_ms is None or balance.window_start_ms < until_ms)
    ]
    shown = [balance for balance in found if balance.verdict in PROBLEMS] if is_problems else found
    rows, paging = paged(shown, asked)
    document = {
        "exists": seen.exists,
        "as_of_ms": seen.as_of_ms,
        "progress": watch.progress,
        "problem": watch.problem,
        "begins_ms": seen.begins_ms or None,
        "foreign_count": seen.foreign_count,
        "filter": {
            "topic": topic,
            "since": _iso(since_ms),
            "until": _iso(until_ms),
            **({"problems": 1} if is_problems else {}),
        },
        "known_topics": sorted({balance.topic for balance in seen.windows}),
        "verdicts": {verdict.value: _count(found, verdict.value) for verdict in MEANINGS},
        "totals": _totals(found)[:_MAX_TOPICS],
        "windows": [{**balance_document(row), "told": [sentence(each) for each in row.findings]} for row in rows],
        "paging": paging,
        "meanings": {verdict.value: meaning for verdict, meaning in MEANINGS.items()},
    }
    return Page("audit.html", "Audit", document)


def _time(asked: Fields, name: str) -> int | None:
    return asked.time_ms(name) if asked.has(name) else None


def _iso(time_ms: int | None) -> str:
    """As a form's field has it, in UTC."""
    if time_ms is None:
        return ""
    try:
        return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%dT%H:%M}"
    except (ValueError, OverflowError, OSError):
        return str(time_ms)


def _count(found: Iterable[Balance], verdict: str) -> int:
    return sum(balance.verdict == verdict for balance in found)


def _totals(found: Sequence[Balance]) -> list[dict[str, Any]]:
    """Each topic over all windows that were asked for; the worst first."""
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
    """None where nobody has counted at all."""
    counted = [number for number in numbers if number is not None]
    return sum(counted) if counted else None


def _sums(columns: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total = Counter[str]()
    for column in columns:
        for name, number in column.items():
            total[name] += number
    return dict(sorted(total.items()))


ROUTES: Final[tuple[Route, ...]] = (("/audit", audit, ["GET"]),)
