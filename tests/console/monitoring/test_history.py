from __future__ import annotations

import pytest

from skylog.console.monitoring import history as module
from skylog.console.monitoring.history import History


def test_a_series_has_the_times_at_which_it_had_a_value() -> None:
    history = History()
    history.record(1000, {("a",): 1.0})
    history.record(2000, {("b",): 5.0})
    history.record(3000, {("a",): 2.0})
    assert history.points(("a",)) == [(1000, 1.0), (3000, 2.0)]
    assert history.points(("b",)) == [(2000, 5.0)]
    assert history.points(("c",)) == []
    assert (history.last(("a",)), history.last(("b",)), history.last(("c",))) == (2.0, None, None)


def test_only_the_latest_values_are_kept() -> None:
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


def test_series_beyond_the_maximum_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SERIES", 2)
    history = History()
    history.record(1, {(name,): 1.0 for name in "abc"})
    assert [history.points((name,)) for name in "abc"] == [[(1, 1.0)], [(1, 1.0)], []]


def test_the_time_since_the_last_change_of_a_value() -> None:
    history = History()
    for time_ms, value in ((1000, 7.0), (2000, 8.0), (3000, 8.0), (5000, 8.0)):
        history.record(time_ms, {("a",): value})
    assert history.unchanged_ms(("a",)) == 3000
    assert history.unchanged_ms(("b",)) == 0


def test_single_partitions_take_no_room_from_groups_and_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_DETAILS", 2)
    history = History()
    details = {("lag", "g", "t", str(number)): 1.0 for number in range(5)}
    history.record(1, details | {("lag", "g"): 5.0})
    assert history.last(("lag", "g")) == 5.0
    assert sum(history.last(key) is not None for key in details) == 2


def test_only_the_requested_time_is_read() -> None:
    history = History()
    for time_ms in range(0, 100_000, 5000):
        history.record(time_ms, {("a",): float(time_ms)})
    assert history.points(("a",), 10_000) == [(85_000, 85_000.0), (90_000, 90_000.0), (95_000, 95_000.0)]
