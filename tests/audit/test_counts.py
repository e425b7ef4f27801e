"""Windows and counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skylog.audit.counts import WindowCounts, add_up, check_window, fold
from skylog.audit.report import Count
from skylog.errors import ConfigError

ROWS = st.builds(
    lambda first, length, messages, size: Count(first * 1000, (first + length) * 1000, messages, size),
    st.integers(-5, 100),
    st.integers(1, 4),
    st.integers(0, 1000),
    st.integers(0, 10**6),
)


def test_counts_come_in_the_order_of_their_times_with_spans_in_between() -> None:
    counts = WindowCounts(1000)
    counts.row(7, 7)[:] = [2, 20]
    counts.row(5, 6)[:] = [3, 30]
    counts.row(-1, -1)[:] = [1, 10]
    counts.row(6, 6)
    assert counts.counts() == [Count(-1000, 0, 1, 10), Count(5000, 7000, 3, 30), Count(7000, 8000, 2, 20)]


def test_counts_of_the_same_times_are_added_up() -> None:
    rows = [Count(0, 10, 1, 5), Count(10, 20, 2, 6, 1), Count(0, 10, 3, 7), Count(10, 20, 0, 0, 2)]
    assert add_up(rows) == [Count(0, 10, 4, 12), Count(10, 20, 2, 6, 3)]


@given(st.lists(ROWS, max_size=50), st.integers(1, 20))
def test_folding_keeps_the_sums_and_every_count_inside_a_span(rows: list[Count], limit: int) -> None:
    folded = fold(rows, limit)
    assert len(folded) <= limit
    assert sum(row.messages for row in folded) == sum(row.messages for row in rows)
    assert sum(row.size_bytes for row in folded) == sum(row.size_bytes for row in rows)
    for row in rows:
        assert any(span.start_ms <= row.start_ms and row.end_ms <= span.end_ms for span in folded)


def test_a_window_that_is_too_short_is_refused() -> None:
    assert check_window(100) == 100
    with pytest.raises(ConfigError, match="window_ms=99"):
        check_window(99)
