"""Placing messages whose window is unknown: as close to the other tiers as possible, and with exact totals."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from skylog.audit.settle import Guide, Series, WindowSpan, align, settle, span_sizes

WINDOWS = 4


def difference(placed: list[int], guides: list[Guide]) -> int:
    limits = [(count, limit) for guide in guides for count, limit in zip(placed, guide, strict=True) if limit]
    return sum(max(limit[0] - count, count - limit[1], 0) for count, limit in limits)


def every_placement(series: Series) -> list[list[int]]:
    choices = [range(span.first, span.last + 1) for span in series.spans for _ in range(span.messages)]
    placements = []
    for choice in product(*choices):
        placed = list(series.exact)
        for window in choice:
            placed[window] += 1
        placements.append(placed)
    return placements


def exactly(*counts: int) -> Guide:
    return [(count, count) for count in counts]


@st.composite
def serieses(draw: st.DrawFn) -> Series:
    """With spans over two windows, as for batches."""
    exact = draw(st.lists(st.integers(0, 3), min_size=WINDOWS, max_size=WINDOWS))
    firsts = draw(st.lists(st.tuples(st.integers(0, WINDOWS - 2), st.integers(1, 3)), max_size=3))
    return Series(exact, [WindowSpan(first, first + 1, messages) for first, messages in firsts])


LIMIT = st.none() | st.tuples(st.integers(0, 6), st.integers(0, 2)).map(lambda limit: (limit[0], sum(limit)))
GUIDE = st.lists(LIMIT, min_size=WINDOWS, max_size=WINDOWS)


@given(serieses(), st.lists(GUIDE, max_size=3))
def test_no_placement_differs_less_from_the_guides(series: Series, guides: list[Guide]) -> None:
    placements = every_placement(series)
    placed = settle(series, guides)
    assert placed in placements
    assert difference(placed, guides) == min(difference(each, guides) for each in placements)


@st.composite
def views(draw: st.DrawFn) -> tuple[list[int], list[Series]]:
    """The actual counts, and those of several tiers: some exact, some as spans of any length."""
    truth = draw(st.lists(st.integers(0, 6), min_size=WINDOWS, max_size=WINDOWS))
    seen = []
    for _ in range(draw(st.integers(2, 4))):
        exact = [draw(st.integers(0, count)) for count in truth]
        spans = []
        for window, count in enumerate(truth):
            for _ in range(count - exact[window]):
                first, last = draw(st.integers(0, window)), draw(st.integers(window, WINDOWS - 1))
                spans.append(WindowSpan(first, last, 1))
        seen.append(Series(exact, spans))
    return truth, seen


@given(views())
def test_tiers_that_counted_the_same_are_aligned_whatever_their_spans_hide(
    seen: tuple[list[int], list[Series]],
) -> None:
    truth, series = seen
    first, *others = align(series, [0] * len(series))
    assert sum(first) == sum(truth)
    assert all(other == first for other in others)


def test_a_loss_is_shown_in_the_window_that_a_second_guide_knows_of() -> None:
    stored = Series([947, 900, 900], [WindowSpan(0, 1, 100), WindowSpan(1, 2, 100)])
    produced, consumed = exactly(1000, 1000, 950), exactly(997, 1000, 950)
    assert settle(stored, [produced, consumed]) == [997, 1000, 950]


def test_what_only_one_guide_has_too_many_of_does_not_move_the_others_messages() -> None:
    stored = Series([950, 900, 950], [WindowSpan(0, 1, 100), WindowSpan(1, 2, 100)])
    produced, consumed = exactly(1000, 1000, 1000), exactly(1500, 1000, 1000)
    assert settle(stored, [produced, consumed]) == [1000, 1000, 1000]


def test_a_difference_is_placed_in_the_latest_possible_window() -> None:
    series = Series([5, 0, 5], [WindowSpan(0, 1, 10), WindowSpan(1, 2, 10)])
    assert settle(series, [exactly(10, 10, 13)]) == [10, 10, 10]
    assert settle(series, [exactly(10, 10, 7)]) == [10, 10, 10]


def test_windows_without_a_guide_take_the_rest() -> None:
    series = Series([0, 0], [WindowSpan(0, 1, 10)])
    assert settle(series, [[None, (4, 4)]]) == [6, 4]


def test_a_span_does_not_reach_beyond_its_windows() -> None:
    series = Series([0, 0, 0], [WindowSpan(0, 1, 10)])
    assert settle(series, [exactly(0, 4, 6)])[2] == 0


def test_an_inactive_series_places_its_messages_as_late_as_possible() -> None:
    whole, late = Series([10, 10], []), Series([0, 6], [WindowSpan(0, 1, 4)])
    assert align([whole, late], [0, 0])[1] == [4, 6]
    assert align([whole, late], [0, 1])[1] == [0, 10]


def test_bytes_are_shared_out_by_the_messages_that_each_window_took() -> None:
    series = Series([1, 1, 1], [WindowSpan(0, 1, 3, 100), WindowSpan(1, 2, 1, 7)])
    assert span_sizes(series, [2, 3, 2]) == [33, 67, 7]
    assert span_sizes(series, [4, 2, 1]) == [100, 7, 0]


@given(st.lists(st.tuples(st.integers(0, WINDOWS - 1), st.integers(0, WINDOWS - 1), st.integers(1, 4))), GUIDE)
def test_no_byte_is_lost_and_none_is_where_no_message_is(raw: list[tuple[int, int, int]], guide: Guide) -> None:
    spans = [WindowSpan(min(a, b), max(a, b), messages, 7 * messages + a) for a, b, messages in raw]
    series = Series([0] * WINDOWS, spans)
    placed = settle(series, [guide])
    sizes = span_sizes(series, placed)
    assert sum(sizes) == sum(span.size_bytes for span in spans)
    assert all(size >= 0 and (count or not size) for count, size in zip(placed, sizes, strict=True))
