"""Where a figure is heading."""

from __future__ import annotations

import pytest

from skylog.console.trend import trend


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], None),
        ([5], None),
        (list(range(0, 1200, 100)), None),  # 55 seconds
        (list(range(0, 1300, 100)), "growing"),
        ([100, 90, 200, 150, 300, 250, 400, 350, 500, 450, 600, 550, 700], "growing"),  # with ups and downs
        ([0, *[7] * 12], "steady"),  # a few messages
        ([900] * 13, "steady"),
        ([1000, 1100] * 10, "steady"),
        (list(range(1300, 0, -100)), "shrinking"),
        ([*range(10_000, 0, -100), *[5] * 40], "steady"),  # what was more than three minutes ago does not count
    ],
)
def test_a_trend_is_told_of_the_last_minutes(values: list[int], expected: str | None) -> None:
    assert trend([(index * 5000, float(value)) for index, value in enumerate(values)]) == expected
