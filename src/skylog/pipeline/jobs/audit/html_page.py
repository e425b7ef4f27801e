"""Writes a balance as one self-contained HTML file. Anyone can write reports, so the template escapes their content."""

from __future__ import annotations

import os
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from skylog.audit.verdict import Balance, Verdict

MOST_WINDOWS: Final = 500
"""If a topic has more windows, only the latest incomplete ones are listed, at most this many."""

_TEMPLATE: Final = "html_page.html"

Counts = Sequence[int | None]
"""The counts of a window, one per column. None if that tier does not count."""


class _Row(NamedTuple):
    """One window of a topic."""

    start: str
    counts: Counts
    verdict: Verdict
    text: str


@dataclass(frozen=True, slots=True)
class _Section:
    """One topic. `omitted` is the number of windows that are not in `rows`; `totals` include them."""

    topic: str
    verdicts: Counter[Verdict]
    omitted: int
    columns: list[str]
    rows: list[_Row]
    totals: Counts


class HtmlPage:
    """Collects topics one after the other. `write` replaces the file atomically, so readers never see half of it."""

    def __init__(self) -> None:
        self._sections: list[_Section] = []
        self._verdicts: Counter[Verdict] = Counter()

    def add(self, topic: str, windows: Sequence[Balance]) -> None:
        """Add a topic with all its windows."""
        verdicts = Counter(each.verdict for each in windows)
        self._verdicts += verdicts
        shown = windows
        if len(windows) > MOST_WINDOWS:
            shown = [each for each in windows if each.verdict is not Verdict.COMPLETE][-MOST_WINDOWS:]
        groups = sorted({group for each in windows for group in each.consumed})
        tables = sorted({table for each in windows for table in each.landed})
        columns = [
            "Produced",
            "Stored",
            *(f"Consumed by {name}" for name in groups),
            *(f"Landed in {name}" for name in tables),
        ]
        totals: list[int | None] = [None] * len(columns)
        for each in windows:
            counts = _counts(each, groups, tables)
            totals = [
                total if count is None else (total or 0) + count for total, count in zip(totals, counts, strict=True)
            ]
        rows = [
            _Row(_time(each.window_start_ms), _counts(each, groups, tables), each.verdict, str(each)) for each in shown
        ]
        self._sections.append(_Section(topic, verdicts, len(windows) - len(shown), columns, rows, totals))

    def write(self, path: Path, conclusion: str, facts: Sequence[str], now_ms: int) -> None:
        """Write the page, with `conclusion` as the heading and `facts` below it."""
        created = f"{datetime.fromtimestamp(now_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
        page = (
            _environment()
            .get_template(_TEMPLATE)
            .render(
                conclusion=conclusion,
                verdicts=self._verdicts,
                lines=[f"Created {created}. Times are in UTC.", *facts],
                sections=self._sections,
            )
        )
        temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        try:
            temporary.write_text(page, encoding="utf-8")
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(number=_number, visible=_visible)
    return environment


def _counts(row: Balance, groups: Sequence[str], tables: Sequence[str]) -> Counts:
    return [row.produced, row.stored, *map(row.consumed.get, groups), *map(row.landed.get, tables)]


def _number(number: int | None) -> str:
    return "–" if number is None else f"{number:,}"


def _visible(foreign: str) -> str:
    """Make invisible characters visible, such as those that change the direction of text."""
    return "".join(each if each.isprintable() else f"\\u{ord(each):04x}" for each in foreign)


def _time(time_ms: int) -> str:
    try:
        moment = datetime.fromtimestamp(time_ms // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"
    return f"{moment:%Y-%m-%d %H:%M:%S}" + (f".{time_ms % 1000:03d}" if time_ms % 1000 else "")
