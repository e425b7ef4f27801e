from __future__ import annotations

import pytest

from skylog.console import history as module
from skylog.console.history import History


def test_a_series_has_the_moments_at_which_it_had_a_value() -> None:
    history = History()
    history.record(1000, {("a",): 1.0})
    history.record(2000, {("b",): 5.0})
    history.record(3000, {("a",): 2.0})
    assert history.points(("a",)) == [(1000, 1.0), (3000, 2.0)]
    assert history.points(("b",)) == [(2000, 5.0)]
    assert history.points(("c",)) == []
    assert (history.last(("a",)), history.last(("b",)), history.last(("c",))) == (2.0, None, None)


def test_only_the_last_moments_are_kept() -> None:
    history = History(3)
    for number in range(1, 8):
        history.record(number * 1000, {("a",): float(number)})
    assert history.points(("a",)) == [(5000, 5.0), (6000, 6.0), (7000, 7.0)]
    assert history.last(("a",)) == 7.0


def test_a_series_without_a_value_for_the_whole_time_is_forgotten() -> None:
    history = History(3)
    history.record(1, {("gone",): 1.0, ("a",): 1.0})
    for time_ms in (2, 3, 4):
        history.record(time_ms, {("a",): 1.0})
    assert history.points(("gone",)) == []
    assert set(history._series) == {("a",)}


def test_no_more_than_so_many_series_are_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SERIES", 2)
    history = History()
    history.record(1, {(name,): 1.0 for name in "abc"})
    assert history.is_full
    assert [history.points((name,)) for name in "abc"] == [[(1, 1.0)], [(1, 1.0)], []]


def test_it_is_known_for_how_long_a_value_has_not_changed() -> None:
    history = History()
    for time_ms, value in ((1000, 7.0), (2000, 8.0), (3000, 8.0), (5000, 8.0)):
        history.record(time_ms, {("a",): value})
    assert history.unchanged_ms(("a",)) == 3000
    assert history.unchanged_ms(("b",)) == 0
