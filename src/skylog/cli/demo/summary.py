"""How the demonstration looks: in a terminal a picture that changes, elsewhere a line every few seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol

from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from skylog.cli.demo.places import GROUPS, JOBS
from skylog.cli.output import stdout, write
from skylog.printable import escape_controls

if TYPE_CHECKING:
    from skylog.cli.demo.figures import Figures

LINE_EVERY_S: Final = 5.0


class Summary(Protocol):
    """Where figures are shown. `doing` says in a few words what is going on."""

    def show(self, figures: Figures, doing: str, news: Iterable[str] = ()) -> None: ...


@contextmanager
def open_summary() -> Iterator[Summary]:
    """A picture in a terminal, lines elsewhere."""
    if stdout.is_terminal:
        with Live(console=stdout, auto_refresh=False, vertical_overflow="crop") as live:
            yield _Picture(live)
    else:
        yield _Lines()


class _Picture:
    def __init__(self, live: Live) -> None:
        self._live = live

    def show(self, figures: Figures, doing: str, news: Iterable[str] = ()) -> None:
        self._live.update(picture(figures, doing, news), refresh=True)


class _Lines:
    def __init__(self) -> None:
        self._due = 0.0
        self._said = ""

    def show(self, figures: Figures, doing: str, news: Iterable[str] = ()) -> None:
        """A line now and then, and whenever something else is going on."""
        if doing == self._said and time.monotonic() < self._due:
            return
        self._due, self._said = time.monotonic() + LINE_EVERY_S, doing
        write(line(figures, doing) + "\n")
        sys.stdout.flush()


def line(figures: Figures, doing: str) -> str:
    """All that fits into one."""
    parts = [f"{figures.elapsed_s:4.0f} s  {doing}: {figures.stored:,} events, {figures.stored_per_s:,.0f}/s"]
    lags = [f"{name} {figures.readers[name].lag:,}" for name in GROUPS if name in figures.readers]
    if lags:
        parts.append(f"lag: {', '.join(lags)}")
    parts.append(f"files landed: {figures.files:,}")
    if figures.visits:
        name, visits = figures.visits[0]
        parts.append(f"most visits: {name} {visits:,}")
    if figures.rising:
        first = figures.rising[0]
        parts.append(f"rising: {first.page} {first.views:,} for {first.expected:,.0f}")
    return escape_controls("; ".join(parts))


def picture(figures: Figures, doing: str, news: Iterable[str] = ()) -> RenderableType:
    """The state of everything, for a terminal."""
    heading = Text.assemble(("skylog demo", "bold"), f"  {figures.elapsed_s:,.0f} s  ", (doing, "cyan"))
    below = Columns([_visits(figures), _rising(figures)], padding=(0, 4))
    feed = Text("\n".join(["NEWS FEED", *map(escape_controls, news)]), style="dim", no_wrap=True, overflow="ellipsis")
    return Group(heading, "", _readers(figures), "", below, "", feed)


def _readers(figures: Figures) -> Table:
    table = _table("", "EVENTS", "PER SECOND", "LAG", "")
    table.add_row("website", f"{figures.stored:,}", f"{figures.stored_per_s:,.0f}", "", "→ topic page_views")
    for name in GROUPS:
        reader = figures.readers.get(name)
        remark = (
            f"Spark, {figures.files:,} Parquet files"
            if name == "land"
            else "Spark"
            if name in JOBS
            else "consumer group"
        )
        if reader is None:
            table.add_row(name, "-", "-", "-", remark)
        else:
            behind = Text(f"{reader.lag:,}", style="yellow" if reader.lag else "green")
            table.add_row(name, f"{reader.done:,}", f"{reader.per_s:,.0f}", behind, remark)
    return table


def _visits(figures: Figures) -> Table:
    table = _table("ORGANISATION", "VISITS")
    for name, visits in figures.visits:
        table.add_row(Text(escape_controls(name)), f"{visits:,}")
    return table


def _rising(figures: Figures) -> Table:
    table = _table("RISING PAGE", "VIEWS", "EXPECTED")
    for each in figures.rising:
        table.add_row(Text(escape_controls(each.page)), f"{each.views:,}", f"{each.expected:,.1f}")
    return table


def _table(*columns: str) -> Table:
    """Names and remarks, at the edges, stand to the left; numbers to the right."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for place, column in enumerate(columns):
        table.add_column(column, justify="right" if place and column else "left", min_width=8)
    return table
