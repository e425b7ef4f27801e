"""The report of a run: a page with a picture of throughput and faults over time, without scripts and downloads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

from .timeline import Span, Timeline, longest_pause, rates

WIDTH, LEFT, RIGHT = 1000, 150, 20
PLOT_HEIGHT, ROW_HEIGHT, TOP = 220, 18, 20
RECOVERY_S = 10.0
"""A pause within this time after a fault is shown with the fault."""


@dataclass
class Outcome:
    """What a run has shown."""

    seed: int
    timeline: Timeline
    violations: list[str]
    clients: list[str]
    missing: list[str] = field(default_factory=list)
    """What could not be part of it here, and why."""
    figures: list[str] = field(default_factory=list)


def page(outcome: Outcome) -> str:
    """Return the report as HTML."""
    timeline = outcome.timeline
    verdict = f"{len(outcome.violations)} violations" if outcome.violations else "nothing violated"
    acknowledged = timeline.samples[-1].acknowledged if timeline.samples else 0
    facts = [
        f"{timeline.seconds:.0f} s, {len(timeline.spans)} faults, {acknowledged} messages acknowledged",
        f"longest time without an acknowledgement: {longest_pause(timeline.samples):.1f} s",
        *outcome.figures,
        *(f"client: {each}" for each in outcome.clients),
        *(f"not part of this run: {each}" for each in outcome.missing),
    ]
    return "\n".join(
        [
            "<!doctype html><html lang='en'><meta charset='utf-8'>",
            f"<title>chaos {outcome.seed}: {verdict}</title>",
            "<style>body{font:15px system-ui;max-width:1000px;margin:2em auto;padding:0 1em}",
            "table{border-collapse:collapse}",
            "td,th{padding:2px 10px;text-align:left;border-bottom:1px solid #ddd}.bad{color:#b00020}</style>",
            f"<h1>Chaos, seed {outcome.seed}: {verdict}</h1>",
            *(f"<p class='bad'>{escape(line)}</p>" for line in outcome.violations[:50]),
            "<ul>",
            *(f"<li>{escape(fact)}</li>" for fact in facts),
            "</ul>",
            picture(timeline),
            "<h2>Faults</h2>",
            _table(timeline),
            "</html>\n",
        ]
    )


def picture(timeline: Timeline) -> str:
    """Return an SVG: messages per second above, one row of bars for each kind of fault below."""
    rows = sorted({span.name for span in timeline.spans})
    height = TOP + PLOT_HEIGHT + 30 + ROW_HEIGHT * len(rows) + 10
    end = max(timeline.seconds, 1.0)
    points = rates(timeline.samples)
    top = max((max(acknowledged, read) for _, acknowledged, read in points), default=1.0) or 1.0

    def x(at_s: float) -> float:
        return LEFT + at_s / end * (WIDTH - LEFT - RIGHT)

    def line(index: int, colour: str) -> str:
        places = " ".join(f"{x(each[0]):.1f},{TOP + PLOT_HEIGHT * (1 - each[index] / top):.1f}" for each in points)
        return f"<polyline fill='none' stroke='{colour}' stroke-width='1.2' points='{places}'/>"

    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' role='img' font-size='12' "
        f"font-family='system-ui'><title>Throughput and faults over time</title>",
        f"<text x='{LEFT - 8}' y='{TOP + 10}' text-anchor='end'>{top:,.0f}/s</text>",
        f"<text x='{LEFT - 8}' y='{TOP + PLOT_HEIGHT}' text-anchor='end'>0</text>",
        f"<text x='{LEFT + 6}' y='{TOP - 6}' fill='#1a56b0'>acknowledged</text>",
        f"<text x='{LEFT + 110}' y='{TOP - 6}' fill='#c05f00'>read by the group</text>",
    ]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        at = x(end * share)
        parts.append(f"<line x1='{at:.1f}' x2='{at:.1f}' y1='{TOP}' y2='{height - 10}' stroke='#ddd'/>")
        parts.append(f"<text x='{at:.1f}' y='{TOP + PLOT_HEIGHT + 16}' text-anchor='middle'>{end * share:.0f} s</text>")
    for number, name in enumerate(rows):
        y = TOP + PLOT_HEIGHT + 30 + ROW_HEIGHT * number
        parts.append(f"<text x='{LEFT - 8}' y='{y + 12}' text-anchor='end'>{escape(name)}</text>")
        for span in timeline.spans:
            if span.name == name:
                ended = span.ended_s if span.ended_s is not None else end
                width = max(x(ended) - x(span.began_s), 2.0)
                parts.append(
                    f"<rect x='{x(span.began_s):.1f}' y='{y + 2}' width='{width:.1f}' height='{ROW_HEIGHT - 5}' "
                    f"fill='#b00020' fill-opacity='.6'><title>{escape(f'{span.name} {span.victim}')}</title></rect>"
                )
    return "".join([*parts, line(1, "#1a56b0"), line(2, "#c05f00"), "</svg>"])


def _table(timeline: Timeline) -> str:
    by_name: defaultdict[str, list[Span]] = defaultdict(list)
    for span in timeline.spans:
        by_name[span.name].append(span)
    rows = [_row(timeline, name, spans) for name, spans in sorted(by_name.items())]
    head = "<tr><th>fault<th>times<th>victims<th>longest time without an acknowledgement</tr>"
    return f"<table>{head}{''.join(rows)}</table>"


def _row(timeline: Timeline, name: str, spans: Sequence[Span]) -> str:
    victims = ", ".join(sorted({span.victim for span in spans}))
    pause = max(
        longest_pause(timeline.samples, span.began_s - 1, (span.ended_s or timeline.seconds) + RECOVERY_S)
        for span in spans
    )
    return f"<tr><td>{escape(name)}<td>{len(spans)}<td>{escape(victims)}<td>{pause:.1f} s</tr>"
