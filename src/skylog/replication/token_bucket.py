"""A limit of bytes per second, as a token bucket. Pure: the time is passed in, in monotonic seconds."""

from __future__ import annotations

from math import inf
from typing import Final

UNLIMITED: Final = (1 << 63) - 1


class TokenBucket:
    """Holds the bytes that may be moved now: up to one second of the rate.

    `take` may take more than there is. Then the bucket is empty until the rate has paid for it, so that in the long run
    the rate is kept, however large single pieces are.
    """

    __slots__ = ("_filled_s", "_level", "rate")

    def __init__(self, rate: int, now_s: float) -> None:
        self.rate = rate
        self._level = float(rate)
        self._filled_s = now_s

    @property
    def is_limited(self) -> bool:
        return self.rate != UNLIMITED

    def change_rate(self, rate: int, now_s: float) -> None:
        """Use another rate from now on. A debt stays, but not for longer than the new rate needs."""
        self._fill(now_s)
        self.rate = rate
        self._level = min(self._level, float(rate))

    def take(self, amount: int, now_s: float) -> None:
        self._fill(now_s)
        self._level -= amount

    def give_back(self, amount: int, now_s: float) -> None:
        """Return bytes that were taken but not moved."""
        self._fill(now_s)
        self._level = min(self._level + amount, float(self.rate))

    def delay_s(self, now_s: float) -> float:
        """Return how long the bucket stays empty; 0 if something may be taken now."""
        self._fill(now_s)
        if self._level > 0:
            return 0.0
        return (1 - self._level) / self.rate if self.rate else inf

    def _fill(self, now_s: float) -> None:
        passed_s, self._filled_s = now_s - self._filled_s, now_s
        self._level = min(self._level + passed_s * self.rate, float(self.rate))
