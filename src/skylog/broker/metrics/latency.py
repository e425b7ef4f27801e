"""A histogram of times: cheap to add to, precise enough for a p99.

There are three buckets per power of ten, at most 2.2 times apart, from 0.05 ms to 60 s.

Reading the clock and finding the bucket would slow down small requests. So the data path times at most one request per
tick of the event loop's clock, a millisecond. Its time also counts for the requests that follow in the same tick, which
cost one addition each. Which request is timed does not depend on its duration, so the distribution stays correct.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Final, Self

from skylog.metric import Sample

_STEPS: Final = (1.0, 2.2, 4.7)
BOUNDS_MS: Final = (
    0.05,
    *(round(step * 10**power, 2) for power in range(-1, 4) for step in _STEPS),
    *(step * 10_000 for step in _STEPS),
    60_000.0,
)
"""The upper bounds of the buckets, inclusive as in Prometheus. Longer times go to one more bucket."""
_BOUNDS_S: Final = tuple(bound / 1000 for bound in BOUNDS_MS)
_LABELS: Final = (*(f"{bound:g}" for bound in BOUNDS_MS), "+Inf")


class Latency:
    """Times by bucket, with their number and sum. Use it on the event loop only.

    A caller that times only some requests stores the tick of the last timed one in `timed_at`, and counts the others in
    `untimed`.
    """

    __slots__ = ("_counts", "_last_bucket", "_last_s", "_sum_s", "timed_at", "untimed")

    def __init__(self) -> None:
        self._counts = [0] * (len(_BOUNDS_S) + 1)
        self._sum_s = 0.0
        self.timed_at = -1.0
        self.untimed = 0
        self._last_bucket = 0
        self._last_s = 0.0

    @property
    def count(self) -> int:
        return sum(self._counts) + self.untimed

    def record(self, seconds: float, times: int = 1) -> None:
        """Add a time, `times` times."""
        if self.untimed:
            self._settle()
        self._last_bucket = bucket = bisect_left(_BOUNDS_S, seconds)
        self._last_s = seconds
        self._counts[bucket] += times
        self._sum_s += seconds * times

    def _settle(self) -> None:
        """Count the requests that were not timed with the last measured time."""
        self._counts[self._last_bucket] += self.untimed
        self._sum_s += self._last_s * self.untimed
        self.untimed = 0

    @classmethod
    def total(cls, parts: Iterable[Self]) -> Self:
        """Return the sum of several histograms."""
        whole = cls()
        for part in parts:
            part._settle()
            whole._counts = [a + b for a, b in zip(whole._counts, part._counts, strict=True)]
            whole._sum_s += part._sum_s
        return whole

    def samples(self, labels: Mapping[str, str]) -> list[Sample]:
        """Return the samples of a Prometheus histogram, in milliseconds. Each bucket includes the lower ones."""
        self._settle()
        samples = []
        reached = 0
        for label, count in zip(_LABELS, self._counts, strict=True):
            reached += count
            samples.append(Sample(reached, {**labels, "le": label}, "_bucket"))
        samples.append(Sample(self._sum_s * 1000, labels, "_sum"))
        samples.append(Sample(reached, labels, "_count"))
        return samples
