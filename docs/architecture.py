"""Draws docs/images/architecture.svg from docs/architecture.txt, whose head explains the language.

The picture has its own background and follows the reader's colour scheme, so it is readable on light and dark pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

HERE = Path(__file__).parent
TEXT = HERE / "architecture.txt"
PICTURE = HERE / "images" / "architecture.svg"

BOX_WIDTH, BOX_HEIGHT = 190, 58
GAP = 76  # between columns, for arrows and their labels
MARGIN, TOP, FRAME = 28, 62, 14
INNER_HEIGHT = 346  # of the columns
FOOTER_HEIGHT = 46

STYLE = """
    svg { --page: #ffffff; --edge: #d0d7de; --box: #f6f8fa; --ink: #1f2328; --soft: #59636e; --mark: #0969da;
          --frame: #eef6ff; font-family: system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif; }
    @media (prefers-color-scheme: dark) {
      svg { --page: #0d1117; --edge: #3d444d; --box: #151b23; --ink: #f0f6fc; --soft: #9198a1; --mark: #4493f8;
            --frame: #10203a; }
    }
    .page { fill: var(--page); stroke: var(--edge); }
    .frame { fill: var(--frame); stroke: var(--mark); }
    .box { fill: var(--box); stroke: var(--edge); }
    .name { fill: var(--ink); font-size: 15px; font-weight: 600; }
    .text { fill: var(--soft); font-size: 12.5px; }
    .head { fill: var(--soft); font-size: 13px; font-weight: 600; }
    .framed { fill: var(--mark); }
    .arrow { fill: none; stroke: var(--mark); stroke-width: 1.6; marker-end: url(#head); }
    .tip { fill: var(--mark); }
    .label { fill: var(--mark); font-size: 12px; }
"""


@dataclass
class Box:
    name: str
    title: str
    text: str
    x: float = 0
    y: float = 0

    @property
    def middle(self) -> float:
        return self.y + BOX_HEIGHT / 2


@dataclass
class Column:
    name: str
    title: str
    is_framed: bool
    number: int
    boxes: list[Box] = field(default_factory=list)

    @property
    def x(self) -> float:
        return MARGIN + self.number * (BOX_WIDTH + GAP)

    def edge(self, side: int) -> float:
        """The x where arrows leave (side 1) or arrive (side 0)."""
        reach = FRAME if self.is_framed else 0
        return self.x + BOX_WIDTH + reach if side else self.x - reach


@dataclass
class Picture:
    columns: list[Column] = field(default_factory=list)
    arrows: list[tuple[str, str, str]] = field(default_factory=list)
    footer: tuple[str, str] = ("", "")

    def find(self, name: str) -> tuple[Column, Box | None]:
        for column in self.columns:
            if column.name == name:
                return column, None
            for box in column.boxes:
                if box.name == name:
                    return column, box
        raise ValueError(f"an arrow names '{name}', which is neither a box nor a column")


def parse(text: str) -> Picture:
    picture = Picture()
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if match := re.fullmatch(r"(framed )?column (\w+): (.+)", line):
            picture.columns.append(Column(match[2], match[3], match[1] is not None, len(picture.columns)))
        elif match := re.fullmatch(r"  (\w+): (.+) \| (.+)", line):
            picture.columns[-1].boxes.append(Box(match[1], match[2], match[3]))
        elif match := re.fullmatch(r"footer: (.+) \| (.+)", line):
            picture.footer = match[1], match[2]
        elif match := re.fullmatch(r"(\w+) -> (\w+)(?:: (.+))?", line):
            picture.arrows.append((match[1], match[2], match[3] or ""))
        else:
            raise ValueError(f"not a line of a picture: {line}")
    return picture


def place(picture: Picture) -> None:
    """Spread the boxes of each column over its height."""
    for column in picture.columns:
        count = len(column.boxes)
        step = (INNER_HEIGHT - BOX_HEIGHT) / max(count - 1, 1)
        for number, box in enumerate(column.boxes):
            box.x, box.y = column.x, TOP + (number * step if count > 1 else (INNER_HEIGHT - BOX_HEIGHT) / 2)


def rectangle(kind: str, x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="8"/>'


def centred(kind: str, x: float, y: float, text: str) -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="middle">{escape(text)}</text>'


def draw_box(box: Box) -> Iterator[str]:
    middle = box.x + BOX_WIDTH / 2
    yield rectangle("box", box.x, box.y, BOX_WIDTH, BOX_HEIGHT)
    yield centred("name", middle, box.y + 24, box.title)
    yield centred("text", middle, box.y + 44, box.text)


def draw_column(column: Column) -> Iterator[str]:
    if column.is_framed:
        yield rectangle("frame", column.x - FRAME, TOP - FRAME, BOX_WIDTH + 2 * FRAME, INNER_HEIGHT + 2 * FRAME)
    kind = "head framed" if column.is_framed else "head"
    yield centred(kind, column.x + BOX_WIDTH / 2, TOP - FRAME - 12, column.title)
    for box in column.boxes:
        yield from draw_box(box)


def draw_arrow(picture: Picture, source: str, target: str, label: str) -> Iterator[str]:
    (left, from_box), (right, to_box) = picture.find(source), picture.find(target)
    if left is right:
        assert from_box is not None
        assert to_box is not None
        yield f'<path class="arrow" d="M{from_box.x + BOX_WIDTH / 2:g} {from_box.y + BOX_HEIGHT:g} V{to_box.y - 2:g}"/>'
        return
    start_y = (from_box or to_box or left.boxes[0]).middle
    end_y = (to_box or from_box or right.boxes[0]).middle
    start_x, end_x = left.edge(1), right.edge(0) - 2
    bend = (start_x + end_x) / 2
    curve = f"H{end_x:g}" if start_y == end_y else f"C{bend:g} {start_y:g} {bend:g} {end_y:g} {end_x:g} {end_y:g}"
    yield f'<path class="arrow" d="M{start_x:g} {start_y:g} {curve}"/>'
    if label:
        yield centred("label", bend, (start_y + end_y) / 2 - 7, label)


def draw(picture: Picture) -> Iterator[str]:
    place(picture)
    width = 2 * MARGIN + len(picture.columns) * (BOX_WIDTH + GAP) - GAP
    foot = TOP + INNER_HEIGHT + FRAME + 18
    height = foot + FOOTER_HEIGHT + MARGIN
    titles = ", ".join(column.title for column in picture.columns)
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img">'
    yield f"<title>The architecture of skylog, from left to right: {escape(titles)}</title>"
    yield f"<style>{STYLE}</style>"
    yield '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    yield '<path class="tip" d="M0 0 L8 4 L0 8 z"/></marker></defs>'
    yield rectangle("page", 0.5, 0.5, width - 1, height - 1)
    for column in picture.columns:
        yield from draw_column(column)
    for source, target, label in picture.arrows:
        yield from draw_arrow(picture, source, target, label)
    title, text = picture.footer
    yield rectangle("box", MARGIN, foot, width - 2 * MARGIN, FOOTER_HEIGHT)
    yield f'<text x="{width / 2:g}" y="{foot + 28:g}" text-anchor="middle"><tspan class="name">{escape(title)}</tspan>'
    yield f'<tspan class="text" dx="12">{escape(text)}</tspan></text>'
    yield "</svg>"


def render(text: str) -> str:
    """Return the picture that a description means, as SVG."""
    return "\n".join(draw(parse(text))) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(render(TEXT.read_text()))
