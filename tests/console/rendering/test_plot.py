from __future__ import annotations

from xml.etree import ElementTree

from skylog.console.rendering.formatting import count
from skylog.console.rendering.plot import HEIGHT, WIDTH, Line, line_plot


def polylines(svg: str) -> list[list[tuple[float, float]]]:
    root = ElementTree.fromstring(svg)
    return [
        [(float(x), float(y)) for x, y in (place.split(",") for place in (line.get("points") or "").split())]
        for line in root.iter("polyline")
    ]


def test_a_plot_is_sound_svg_with_every_point_inside() -> None:
    points = [(number * 5000, float(number % 7)) for number in range(720)]
    lines = polylines(line_plot("Rate", [Line("in", points)], count))
    assert len(lines) == 1
    assert 300 <= len(lines[0]) <= 360
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in lines[0])


def test_no_peak_is_lost_when_points_are_thinned_out() -> None:
    points = [(number * 5000, 1000.0 if number == 333 else 1.0) for number in range(720)]
    [line] = polylines(line_plot("Rate", [Line("in", points)], count))
    assert min(y for _, y in line) < HEIGHT / 2


def test_there_is_no_line_over_a_gap() -> None:
    points = [(0, 1.0), (5000, 1.0), (600_000, 1.0), (605_000, 1.0)]
    assert [len(line) for line in polylines(line_plot("Rate", [Line("in", points)], count))] == [2, 2]


def test_the_label_for_screen_readers_has_the_latest_values_and_the_highest() -> None:
    svg = line_plot("Lag", [Line("g", [(0, 50.0), (5000, 7.0)])], count)
    assert 'aria-label="Lag: now g 7; highest 50"' in svg


def test_hostile_labels_are_text() -> None:
    label = "<script>alert(1)</script>"
    svg = line_plot(label, [Line(label, [(0, 1.0)])], count)
    assert "<script" not in svg
    assert ElementTree.fromstring(svg).findtext("figcaption") == label


def test_a_plot_without_points_is_a_note() -> None:
    assert "no data yet" in line_plot("Lag", [Line("a", [])], count)


def test_zeroes_are_a_line_at_the_bottom() -> None:
    [line] = polylines(line_plot("Lag", [Line("a", [(0, 0.0), (5000, 0.0)])], count))
    assert {y for _, y in line} == {line[0][1]}


def test_points_that_are_always_far_apart_are_a_line() -> None:
    points = [(number * 60_000, 1.0) for number in range(30)]
    assert [len(line) for line in polylines(line_plot("Rate", [Line("in", points)], count))] == [30]


def test_a_time_that_no_calendar_has_does_no_harm() -> None:
    assert "Lag" in line_plot("Lag", [Line("a", [(0, 1.0), (10**18, 2.0)])], count)
