"""Rates over windows: bursts, waits, and what a client that obeys can send in the long run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skylog.windowed_rate import WindowedRate

COUNT = 11


def test_a_burst_of_all_but_one_window_is_free_and_more_is_not() -> None:
    rate = WindowedRate(COUNT, 1.0)
    rate.record(1000, 5.0)
    assert rate.rate(5.0) == 100
    assert rate.excess_s(100, 5.0) == 0
    rate.record(100, 5.0)
    assert rate.excess_s(100, 5.0) == pytest.approx(1.0)
    assert rate.burst(100) == 1000


def test_windows_are_forgotten_and_what_is_taken_back_does_not_count() -> None:
    rate = WindowedRate(3, 2.0)
    rate.record(10, 0.0)
    rate.record(5, 2.0)
    assert not rate.is_quiet(5.9)
    assert rate.rate(6.0) == pytest.approx(5 / 4)
    rate.record(-5, 2.5)
    assert rate.is_quiet(8.1)
    assert rate.rate(8.1) == 0


@given(
    sizes=st.lists(st.integers(1, 100), min_size=1, max_size=200),
    pauses=st.lists(st.floats(0, 0.5), min_size=200, max_size=200),
    count=st.integers(2, 20),
)
def test_a_client_that_waits_as_it_must_keeps_to_the_limit(sizes: list[int], pauses: list[float], count: int) -> None:
    limit, now_s, sent = 100.0, 0.0, 0
    rate = WindowedRate(count, 1.0)
    for size, pause_s in zip(sizes, pauses, strict=False):
        rate.record(size, now_s)
        sent += size
        now_s += rate.excess_s(limit, now_s) + pause_s
        assert sent <= limit * (now_s + count)  # a burst of `count` windows at most, at any time


@given(steps=st.lists(st.tuples(st.floats(0, 3), st.integers(0, 50)), max_size=100))
def test_a_client_below_the_limit_never_waits(steps: list[tuple[float, int]]) -> None:
    rate, now_s = WindowedRate(COUNT, 1.0), 0.0
    for pause_s, size in steps:
        now_s += max(pause_s, size / 100)  # at most 100 per second
        rate.record(size, now_s)
        assert rate.excess_s(120.0, now_s) == 0


@given(
    steps=st.lists(st.tuples(st.floats(0, 5), st.integers(0, 1000)), min_size=1, max_size=60), count=st.integers(1, 8)
)
def test_the_sum_is_that_of_the_windows_which_count(steps: list[tuple[float, int]], count: int) -> None:
    """Against a list of everything that was recorded."""
    rate, now_s = WindowedRate(count, 1.0), 0.0
    windows: list[tuple[float, float]] = []
    for pause_s, size in steps:
        now_s += pause_s
        rate.record(size, now_s)
        windows = [each for each in windows if each[0] > now_s - count]
        if windows and now_s - windows[-1][0] < 1.0:
            windows[-1] = windows[-1][0], windows[-1][1] + size
        else:
            windows.append((now_s, size))
        total = sum(each[1] for each in windows)
        passed_s = now_s - windows[0][0]
        span_s = max(passed_s + max(count - 1 - int(passed_s), 0), 0.001)
        assert rate.rate(now_s) == pytest.approx(total / span_s)
