"""A balance as one HTML file that needs nothing else. All that comes from reports is escaped: anyone may write them."""

from __future__ import annotations

import os
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Final

from skylog.audit.verdict import Balance, Verdict

MOST_WINDOWS: Final = 500
"""A topic with more of them shows those that are not complete, the latest ones first to be kept."""

_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 80rem; padding: 0 1rem; }
body { color: #1f2328; background: #fff; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .8rem; border-bottom: 1px solid #d8dee4; text-align: right; white-space: nowrap; }
th:first-child, td:first-child, th:last-child, td:last-child { text-align: left; }
tfoot td { font-weight: 600; }
.complete { color: #1a7f37; } .late { color: #9a6700; } .lost, .duplicated { color: #cf222e; font-weight: 600; }
.open, .unjudged, .note { color: #656d76; }
"""


class HtmlPage:
    """Takes topics one after another; `write` puts the page in its place at once, so that none sees half of it."""

    def __init__(self) -> None:
        self._sections: list[str] = []
        self._verdicts: Counter[Verdict] = Counter()

    def add(self, topic: str, windows: Sequence[Balance]) -> None:
        verdicts = Counter(each.verdict for each in windows)
        self._verdicts += verdicts
        shown = windows
        if len(windows) > MOST_WINDOWS:
            shown = [each for each in windows if each.verdict is not Verdict.COMPLETE][-MOST_WINDOWS:]
        heading = f"<h2>{_text(topic)}</h2>\n<p>{_tally(verdicts)}</p>\n"
        if len(shown) < len(windows):
            heading += f'<p class="note">{len(windows) - len(shown):,} of the windows are not listed.</p>\n'
        self._sections.append(
            f'{heading}<div class="scroll"><table>\n{"".join(_table(windows, shown))}</table></div>\n'
        )

    def write(self, path: Path, conclusion: str, facts: Sequence[str], now_ms: int) -> None:
        """`conclusion` is said at the top, `facts` below it."""
        made = f"{datetime.fromtimestamp(now_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
        lines = [f"Made {made}; times are UTC.", *facts]
        page = (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>Audit: {_text(conclusion)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
            f"<h1>Audit: {_text(conclusion)}</h1>\n<p>{_tally(self._verdicts)}</p>\n"
            + "".join(f'<p class="note">{_text(line)}</p>\n' for line in lines)
            + "".join(self._sections)
            + "</body>\n</html>\n"
        )
        temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        try:
            temporary.write_text(page, encoding="utf-8")
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


def _table(windows: Sequence[Balance], shown: Sequence[Balance]) -> Iterator[str]:
    """The windows that are shown, and the sums of all."""
    groups = sorted({group for each in windows for group in each.consumed})
    tables = sorted({table for each in windows for table in each.landed})
    names = [
        "Produced",
        "Stored",
        *(f"Consumed by {name}" for name in groups),
        *(f"Landed in {name}" for name in tables),
    ]
    yield "<thead><tr><th>Window</th>" + "".join(f"<th>{_text(name)}</th>" for name in names)
    yield "<th>Verdict</th></tr></thead>\n<tbody>\n"
    sums: list[int | None] = [None] * len(names)
    for each in windows:
        numbers = _numbers(each, groups, tables)
        sums = [total if count is None else (total or 0) + count for total, count in zip(sums, numbers, strict=True)]
    for each in shown:
        yield f"<tr><td>{_time(each.window_start_ms)}</td>{_cells(_numbers(each, groups, tables))}"
        yield f'<td class="{each.verdict.value}">{_text(str(each))}</td></tr>\n'
    yield f"</tbody>\n<tfoot><tr><td>All windows</td>{_cells(sums)}<td></td></tr></tfoot>\n"


def _numbers(row: Balance, groups: Sequence[str], tables: Sequence[str]) -> list[int | None]:
    return [row.produced, row.stored, *map(row.consumed.get, groups), *map(row.landed.get, tables)]


def _cells(numbers: Sequence[int | None]) -> str:
    return "".join(f"<td>{'–' if number is None else f'{number:,}'}</td>" for number in numbers)


def _tally(verdicts: Counter[Verdict]) -> str:
    total = verdicts.total()
    parts = [f"{total:,} window{'' if total == 1 else 's'}"]
    parts += [f'<span class="{name.value}">{count:,} {name.value}</span>' for name, count in sorted(verdicts.items())]
    return ", ".join(parts)


def _text(foreign: str) -> str:
    """Without markup, and without characters that are not seen, such as those that turn the direction of writing."""
    return escape("".join(each if each.isprintable() else f"\\u{ord(each):04x}" for each in foreign))


def _time(time_ms: int) -> str:
    try:
        moment = datetime.fromtimestamp(time_ms // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"
    return f"{moment:%Y-%m-%d %H:%M:%S}" + (f".{time_ms % 1000:03d}" if time_ms % 1000 else "")
