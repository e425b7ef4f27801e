"""A histogram of times: cheap to add to, precise enough for a p99.

Six buckets for each power of ten, so neighbours are at most 1.5 times apart, from 0.05 ms to 60 s.

Reading the clock and finding the bucket would be felt by small requests. So on the data path at most one request per
tick of the event loop's clock, a millisecond, is timed; it stands for those that follow in the same tick, which cost an
addition. Which one is timed has nothing to do with how long it takes: the shares of the buckets stay right.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Final, Self

from skylog.metric import Sample

_STEPS: Final = (1.0, 1.5, 2.2, 3.3, 4.7, 6.8)
BOUNDS_MS: Final = (
    0.05,
    0.068,
    *(round(step * 10**power, 2) for power in range(-1, 4) for step in _STEPS),
    *(step * 10_000 for step in _STEPS[:-1]),
    60_000.0,
)
"""The upper bounds of the buckets, inclusive as Prometheus has them; one more bucket holds what is longer."""
_BOUNDS_S: Final = tuple(bound / 1000 for bound in BOUNDS_MS)
_LABELS: Final = (*(f"{bound:g}" for bound in BOUNDS_MS), "+Inf")


class Latency:
    """Times by bucket, with their number and sum. Lives on the event loop's thread.

    Who times only some keeps in `timed_at` the tick in which that was, and adds the others to `untimed`.
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
        """Add a time that has been met `times` times."""
        if self.untimed:
            self._settle()
        self._last_bucket = bucket = bisect_left(_BOUNDS_S, seconds)
        self._last_s = seconds
        self._counts[bucket] += times
        self._sum_s += seconds * times

    def _settle(self) -> None:
        """Those that were not timed took as long as the one before them."""
        self._counts[self._last_bucket] += self.untimed
        self._sum_s += self._last_s * self.untimed
        self.untimed = 0

    @classmethod
    def total(cls, parts: Iterable[Self]) -> Self:
        """All times of `parts` in one."""
        whole = cls()
        for part in parts:
            part._settle()
            whole._counts = [a + b for a, b in zip(whole._counts, part._counts, strict=True)]
            whole._sum_s += part._sum_s
        return whole

    def samples(self, labels: Mapping[str, str]) -> list[Sample]:
        """The samples of a Prometheus histogram, in milliseconds: buckets that each include those before."""
        self._settle()
        samples = []
        reached = 0
        for label, count in zip(_LABELS, self._counts, strict=True):
            reached += count
            samples.append(Sample(reached, {**labels, "le": label}, "_bucket"))
        samples.append(Sample(self._sum_s * 1000, labels, "_sum"))
        samples.append(Sample(reached, labels, "_count"))
        return samples
