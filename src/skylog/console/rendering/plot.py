"""Draws line plots over time as SVG, on the server, so that they work without JavaScript and in print."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Final

from markupsafe import Markup

from skylog.console.monitoring.history import INTERVAL_S, Points
from skylog.console.rendering.formatting import utc_time

WIDTH: Final = 640
HEIGHT: Final = 180
_LEFT: Final = 64
_RIGHT: Final = 8
_TOP: Final = 10
_BOTTOM: Final = 22
_GAP: Final = 4  # no line across a gap of this many times the usual distance of points
_MAX_POINTS: Final = 360
_COLOURS: Final = 6


@dataclass(frozen=True, slots=True)
class Line:
    label: str
    points: Points


def lines(series: Mapping[str, Points]) -> list[Line]:
    """Return one line per series, at most as many as there are colours."""
    return [Line(label, points) for label, points in list(series.items())[:_COLOURS]]


def line_plot(title: str, lines: Sequence[Line], number: Callable[[float], str]) -> Markup:
    """Draw an SVG figure. Its label for screen readers has the title, the latest values and the highest value."""
    shown = [line for line in lines if line.points]
    if not shown:
        return Markup('<p class="empty">{}: no data yet.</p>').format(title)
    times = [time_ms for line in shown for time_ms, _ in line.points]
    start, end = min(times), max(max(times), min(times) + 60_000)
    top = _round_up(max(value for line in shown for _, value in line.points))

    def place(time_ms: int, value: float) -> str:
        x = _LEFT + (time_ms - start) / (end - start) * (WIDTH - _LEFT - _RIGHT)
        y = HEIGHT - _BOTTOM - value / top * (HEIGHT - _TOP - _BOTTOM)
        return f"{x:.1f},{y:.1f}"

    parts = [_grid(top, number), _times(start, end)]
    for index, line in enumerate(shown):
        for stretch in _stretches(_thin(line.points)):
            places = " ".join(place(*point) for point in stretch)
            parts.append(Markup('<polyline class="line c{}" points="{}"/>').format(index % _COLOURS, places))
    latest = ", ".join(f"{line.label} {number(line.points[-1][1])}" for line in shown[:_COLOURS])
    highest = number(max(value for line in shown for _, value in line.points))
    return Markup(
        '<figure class="plot"><figcaption>{title}</figcaption><svg viewBox="0 0 {w} {h}" role="img" '
        'aria-label="{label}">{parts}</svg>{legend}</figure>'
    ).format(
        title=title,
        w=WIDTH,
        h=HEIGHT,
        label=f"{title}: now {latest}; highest {highest}",
        parts=Markup("").join(parts),
        legend=_legend(shown, number),
    )


def _grid(top: float, number: Callable[[float], str]) -> Markup:
    rows = []
    for step in range(3):
        y = HEIGHT - _BOTTOM - step / 2 * (HEIGHT - _TOP - _BOTTOM)
        rows.append(
            Markup(
                '<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>'
                '<text x="{}" y="{:.1f}" text-anchor="end">{}</text>'
            ).format(_LEFT, WIDTH - _RIGHT, y, y, _LEFT - 6, y + 4, number(top * step / 2))
        )
    return Markup("").join(rows)


def _times(start: int, end: int) -> Markup:
    parts = []
    for time_ms, x, anchor in ((start, _LEFT, "start"), (end, WIDTH - _RIGHT, "end")):
        clock = utc_time(time_ms)[11:19]
        parts.append(Markup('<text x="{}" y="{}" text-anchor="{}">{}</text>').format(x, HEIGHT - 6, anchor, clock))
    return Markup("").join(parts)


def _legend(lines: Sequence[Line], number: Callable[[float], str]) -> Markup:
    items = [
        Markup('<li><span class="swatch c{}"></span>{} <b>{}</b></li>').format(
            index % _COLOURS, line.label, number(line.points[-1][1])
        )
        for index, line in enumerate(lines)
    ]
    return Markup('<ul class="legend">{}</ul>').format(Markup("").join(items))


def _stretches(points: Points) -> list[Points]:
    """Split the points at gaps."""
    distances = [after - before for (before, _), (after, _) in pairwise(points)]
    longest_ms = _GAP * max(median(distances), INTERVAL_S * 1000) if distances else 0
    stretches: list[Points] = []
    for point in points:
        if stretches and point[0] - stretches[-1][-1][0] <= longest_ms:
            stretches[-1].append(point)
        else:
            stretches.append([point])
    return stretches


def _thin(points: Points) -> Points:
    """Reduce to at most _MAX_POINTS. Keeps the highest of each few points, so that no peak is lost."""
    step = -(-len(points) // _MAX_POINTS)
    if step == 1:
        return points
    return [max(points[start : start + step], key=lambda point: point[1]) for start in range(0, len(points), step)]


def _round_up(value: float) -> float:
    """Round up to 1, 2 or 5 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 1.0
    while power < value:
        power *= 10
    return next(power * part for part in (0.1, 0.2, 0.5, 1.0) if power * part >= value)
