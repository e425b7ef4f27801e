"""Whether a group keeps up: commits against appends, over time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from skylog.client import ConsumerGroup, GroupPartition, OffsetRange
from skylog.console.monitoring.cluster_snapshot import ClusterSnapshot
from skylog.console.monitoring.figures import figures
from skylog.console.monitoring.history import History
from skylog.console.monitoring.pace import GroupProgress, judge
from skylog.model import TopicPartition

Offset = Callable[[int], int | None]
"""An offset by the number of seconds since the start."""


def watched(
    seconds: int, end: Callable[[int], int], committed: Offset, start: Callable[[int], int] = lambda s: 0
) -> GroupProgress:
    history, before = History(), ClusterSnapshot(0)
    for second in range(0, seconds + 1, 5):
        partition = GroupPartition(
            TopicPartition("t", 0), committed(second), OffsetRange(start(second), end(second)), None
        )
        group = ConsumerGroup("g", "Empty", None, (), (partition,))
        snapshot = ClusterSnapshot(1_000_000 + second * 1000, groups={"g": group})
        history.record(snapshot.taken_at_ms, figures(before, snapshot))
        before = snapshot
    return judge(before.groups["g"], history)


@pytest.mark.parametrize(
    ("seconds", "end", "committed", "pace"),
    [
        (300, lambda s: 200 * s, lambda s: 200 * s, "caught up"),
        (0, lambda s: 100, lambda s: 100, "caught up"),
        (50, lambda s: 1000 + 200 * s, lambda s: 200 * s, "unknown"),
        (60, lambda s: 1000 + 200 * s, lambda s: 200 * s, "keeping up"),
        (300, lambda s: 1000 + 200 * s, lambda s: 200 * (s // 60 * 60), "keeping up"),  # a commit per minute
        (480, lambda s: 203_464 + 200 * s, lambda s: 40 * s, "falling behind"),
        (60, lambda s: 203_464 + 200 * s, lambda s: 40 * s, "falling behind"),
        (600, lambda s: 203_464 + 200 * s, lambda s: 195 * s, "falling behind"),  # by 5 per second
        (300, lambda s: 100_000 + 200 * s, lambda s: 300 * s, "catching up"),
        (300, lambda s: 100_000, lambda s: 300 * s, "catching up"),
        (300, lambda s: 100_000 + s, lambda s: 7, "stuck"),
        (300, lambda s: 100_000, lambda s: 7, "stuck"),
        (300, lambda s: 100_000, lambda s: None, "unknown"),  # it may have begun at the end
        (300, lambda s: 100_000 + 9 * s, lambda s: None, "stuck"),
        (900, lambda s: 200 * s, lambda s: 200 * min(s, 600) + 20 * max(s - 600, 0), "falling behind"),  # it was good
        (900, lambda s: 99_000 + 9 * s, lambda s: 9 * s + 90 * max(s - 700, 0), "catching up"),  # it was not
    ],
)
def test_the_pace_follows_from_commits_and_appends(
    seconds: int, end: Callable[[int], int], committed: Offset, pace: str
) -> None:
    assert watched(seconds, end, committed).pace == pace


def test_messages_that_retention_deletes_are_not_read() -> None:
    """The lag does not grow, since the log's start moves as fast as its end."""
    progress = watched(300, lambda s: 20_000 + 200 * s, lambda s: 7 + s, lambda s: 10_000 + 200 * s)
    assert progress.pace == "falling behind"
    assert progress.expired == 10_000 + 200 * 300 - 307


def test_the_lag_in_time_is_measured_where_the_history_reaches() -> None:
    progress = watched(600, lambda s: 200 * s, lambda s: 200 * max(s - 100, 0))
    assert (progress.lag_ms, progress.is_estimated) == (100_000, False)
    assert watched(600, lambda s: 200 * s, lambda s: 200 * s).lag_ms == 0


def test_the_lag_in_time_is_estimated_beyond_the_history_and_unknown_without_appends() -> None:
    progress = watched(300, lambda s: 400_000 + 200 * s, lambda s: 200 * s)
    assert progress.is_estimated
    assert progress.lag_ms == pytest.approx(2_000_000)
    assert watched(300, lambda s: 400_000, lambda s: 10 * s).lag_ms is None


def test_the_time_until_the_lag_is_worked_off() -> None:
    progress = watched(300, lambda s: 100_000 + 200 * s, lambda s: 300 * s)
    assert progress.left_ms == pytest.approx((100_000 - 300 * 100) / 100 * 1000)
    assert progress.commits_per_s == pytest.approx(300)
    assert progress.appends_per_s == pytest.approx(200)
    assert watched(300, lambda s: 100_000 + 200 * s, lambda s: 40 * s).left_ms is None


def test_a_group_that_was_moved_back_has_not_read_backward() -> None:
    progress = watched(120, lambda s: 100_000 + 200 * s, lambda s: 300 * s + 50_000 if s < 60 else 300 * (s - 60))
    assert progress.commits_per_s is not None
    assert progress.commits_per_s > 200
