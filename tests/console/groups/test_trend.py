"""Where a figure is heading."""

from __future__ import annotations

import pytest

from skylog.console.trend import trend


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], None),
        ([5], None),
        (list(range(12)), None),  # 55 seconds
        (list(range(13)), "growing"),
        ([0, *[7] * 12], "growing"),
        ([9] * 13, "steady"),
        (list(range(13, 0, -1)), "shrinking"),
        ([0, 1] * 10, "steady"),
        ([*range(100, 0, -1), *[0] * 13], "steady"),  # what was before the last minute does not count
    ],
)
def test_a_trend_is_told_of_the_last_minute(values: list[int], expected: str | None) -> None:
    assert trend([(index * 5000, float(value)) for index, value in enumerate(values)]) == expected
