"""A limit of bytes per second: what may be taken when, and that the rate is kept in the long run."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skylog.replication.token_bucket import UNLIMITED, TokenBucket


def test_a_second_of_the_rate_may_be_taken_at_once() -> None:
    bucket = TokenBucket(100, now_s=5.0)
    assert bucket.delay_s(5.0) == 0
    bucket.take(99, 5.0)
    assert bucket.delay_s(5.0) == 0
    bucket.take(1, 5.0)
    assert bucket.delay_s(5.0) > 0


def test_more_than_there_is_may_be_taken_and_is_paid_for_later() -> None:
    bucket = TokenBucket(100, now_s=0.0)
    bucket.take(300, 0.0)
    assert bucket.delay_s(0.0) == pytest.approx(2.01)
    assert bucket.delay_s(1.0) == pytest.approx(1.01)
    assert bucket.delay_s(2.0 + 1 / 50) == 0


def test_what_was_not_moved_is_given_back_but_never_more_than_a_second() -> None:
    bucket = TokenBucket(100, now_s=0.0)
    bucket.take(150, 0.0)
    bucket.give_back(60, 0.0)
    assert bucket.delay_s(0.0) == 0
    bucket.give_back(1000, 0.0)
    bucket.take(100, 0.0)
    assert bucket.delay_s(0.0) > 0


def test_idle_time_is_not_saved_up() -> None:
    bucket = TokenBucket(100, now_s=0.0)
    assert bucket.delay_s(1000.0) == 0
    bucket.take(100, 1000.0)
    assert bucket.delay_s(1000.0) > 0


def test_another_rate_is_in_force_at_once() -> None:
    bucket = TokenBucket(UNLIMITED, now_s=0.0)
    assert not bucket.is_limited
    bucket.change_rate(10, 0.0)
    assert bucket.is_limited
    bucket.take(20, 0.0)
    assert bucket.delay_s(0.0) == pytest.approx(1.1)
    bucket.change_rate(1000, 0.0)
    assert bucket.delay_s(0.0) == pytest.approx(0.011)


def test_a_rate_of_zero_lets_nothing_pass() -> None:
    assert TokenBucket(0, now_s=0.0).delay_s(1e9) == inf


@given(
    rate=st.integers(1, 10_000),
    pieces=st.lists(st.tuples(st.integers(1, 5000), st.floats(0, 3)), min_size=1, max_size=50),
)
def test_who_waits_as_told_never_moves_more_than_the_rate_and_one_piece(
    rate: int, pieces: list[tuple[int, float]]
) -> None:
    bucket = TokenBucket(rate, now_s=0.0)
    now_s, moved, largest = 0.0, 0, 0
    for amount, pause_s in pieces:
        now_s += pause_s + bucket.delay_s(now_s + pause_s)
        bucket.take(amount, now_s)
        moved, largest = moved + amount, max(largest, amount)
        assert moved <= rate * (now_s + 1) + largest + 1
