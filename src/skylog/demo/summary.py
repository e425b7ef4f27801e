"""Shows the figures of the demo: as a live dashboard in a terminal, otherwise as a line every few seconds."""

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

from skylog.demo.layout import EVENTS, GROUPS, JOBS
from skylog.printable import escape_controls
from skylog.terminal import stdout, write

if TYPE_CHECKING:
    from skylog.demo.failover import ClusterView
    from skylog.demo.figures import Figures

LINE_EVERY_S: Final = 5.0
_HAPPENINGS: Final = 8


class Summary(Protocol):
    """Shows figures. `phase` describes what the demo is doing. `show_cluster` may be called from another thread."""

    def show(self, figures: Figures, phase: str, news: Iterable[str] = ()) -> None: ...
    def show_cluster(self, view: ClusterView) -> None: ...


@contextmanager
def open_summary() -> Iterator[Summary]:
    """Return a dashboard if the output is a terminal, or lines otherwise."""
    if stdout.is_terminal:
        with Live(console=stdout, auto_refresh=False, vertical_overflow="crop") as live:
            yield _Dashboard(live)
    else:
        yield _Lines()


class _Dashboard:
    def __init__(self, live: Live) -> None:
        self._live = live
        self._shown: RenderableType = ""
        self._view: ClusterView | None = None

    def show(self, figures: Figures, phase: str, news: Iterable[str] = ()) -> None:
        self._shown = dashboard(figures, phase, news)
        self._refresh()

    def show_cluster(self, view: ClusterView) -> None:
        self._view = view
        self._refresh()

    def _refresh(self) -> None:
        below = () if self._view is None else ("", cluster_table(self._view))
        self._live.update(Group(self._shown, *below), refresh=True)


class _Lines:
    def __init__(self) -> None:
        self._due = 0.0
        self._last_phase = ""
        self._happenings = 0

    def show_cluster(self, view: ClusterView) -> None:
        """Print what has happened since the last call."""
        for happening in view.happenings[self._happenings :]:
            write(escape_controls(happening) + "\n")
        self._happenings = len(view.happenings)
        sys.stdout.flush()

    def show(self, figures: Figures, phase: str, news: Iterable[str] = ()) -> None:
        """Print a line every `LINE_EVERY_S`, and when the phase changes."""
        if phase == self._last_phase and time.monotonic() < self._due:
            return
        self._due, self._last_phase = time.monotonic() + LINE_EVERY_S, phase
        write(line(figures, phase) + "\n")
        sys.stdout.flush()


def line(figures: Figures, phase: str) -> str:
    """Return the figures in one line."""
    parts = [f"{figures.elapsed_s:4.0f} s  {phase}: {figures.stored:,} events, {figures.stored_per_s:,.0f}/s"]
    lags = [f"{name} {figures.groups[name].lag:,}" for name in GROUPS if name in figures.groups]
    if lags:
        parts.append(f"lag: {', '.join(lags)}")
    parts.append(f"files landed: {figures.files:,}")
    if figures.visits:
        name, visits = figures.visits[0]
        parts.append(f"most visits: {name} {visits:,}")
    if figures.rising:
        first = figures.rising[0]
        parts.append(f"rising: {first.page} {first.views:,} for {first.expected:,.0f}")
    if figures.feed.count:
        parts.append(f"feed: {figures.feed.count:,} deliveries")
    if figures.suspicions:
        worst = figures.suspicions[0]
        parts.append(f"suspicious: {worst.who} {worst.failures:,} failed logins")
    return escape_controls("; ".join(parts))


def dashboard(figures: Figures, phase: str, news: Iterable[str] = ()) -> RenderableType:
    """Return all figures, for a terminal."""
    heading = Text.assemble(("skylog demo", "bold"), f"  {figures.elapsed_s:,.0f} s  ", (phase, "cyan"))
    results = [_visits(figures), _rising(figures), _feed(figures), _suspicions(figures)]
    below = Columns(results, padding=(0, 4))
    feed = Text("\n".join(["NEWS FEED", *map(escape_controls, news)]), style="dim", no_wrap=True, overflow="ellipsis")
    return Group(heading, "", _groups(figures), "", below, "", feed)


def _groups(figures: Figures) -> Table:
    table = _table("", "EVENTS", "PER SECOND", "LAG", "")
    table.add_row("website", f"{figures.stored:,}", f"{figures.stored_per_s:,.0f}", "", "→ topic page_views")
    for name in GROUPS:
        group = figures.groups.get(name)
        remark = (
            f"Spark, {figures.files:,} Parquet files"
            if name == "land"
            else "Spark"
            if name in JOBS
            else "consumer group"
        )
        if group is None:
            table.add_row(name, "-", "-", "-", remark)
        else:
            behind = Text(f"{group.lag:,}", style="yellow" if group.lag else "green")
            table.add_row(name, f"{group.done:,}", f"{group.per_s:,.0f}", behind, remark)
    return table


def cluster_table(view: ClusterView) -> RenderableType:
    """Return the leaders and replicas of the events' topic, and what has happened last."""
    table = _table("PARTITION", "LEADER", "IN SYNC", "")
    for each in view.partitions:
        in_sync = ", ".join(map(str, sorted(each.in_sync_replicas)))
        is_whole = set(each.in_sync_replicas) == set(each.replicas)
        leader = Text("none", style="red") if each.leader < 0 else Text(f"broker {each.leader}")
        table.add_row(f"{EVENTS}-{each.index}", leader, Text(in_sync, style="green" if is_whole else "yellow"), "")
    lines = map(escape_controls, view.happenings[-_HAPPENINGS:])
    return Group(table, Text("\n".join(lines), style="dim", no_wrap=True, overflow="ellipsis"))


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


def _feed(figures: Figures) -> Table:
    table = _table("FEED OF", "POSTS")
    for reader, posts in figures.feed.readers:
        table.add_row(Text(escape_controls(f"reader {reader}")), f"{posts:,}")
    return table


def _suspicions(figures: Figures) -> Table:
    table = _table("SUSPICIOUS LOGINS", "FAILED", "OF OTHERS")
    for each in figures.suspicions:
        table.add_row(Text(escape_controls(each.who)), f"{each.failures:,}", f"{each.others:,}")
    return table


def _table(*columns: str) -> Table:
    """Return a table whose first column and untitled columns are left-aligned, and the others right-aligned."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number and column else "left", min_width=8)
    return table
