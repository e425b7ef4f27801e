"""What happened when: throughput, faults, and the pauses that clients saw."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

INTERVAL_S = 0.5


class Sample(NamedTuple):
    """Counts since the beginning, at a time."""

    at_s: float
    acknowledged: int
    read: int


@dataclass
class Span:
    """A fault, from its beginning to its end."""

    name: str
    victim: str
    began_s: float
    ended_s: float | None = None


@dataclass
class Timeline:
    samples: list[Sample] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return self.samples[-1].at_s if self.samples else 0.0


def rates(samples: Sequence[Sample]) -> list[tuple[float, float, float]]:
    """Return (time, acknowledged per second, read per second) between each two samples."""
    found = []
    for before, after in itertools.pairwise(samples):
        seconds = max(after.at_s - before.at_s, 0.001)
        acknowledged = (after.acknowledged - before.acknowledged) / seconds
        found.append((after.at_s, acknowledged, (after.read - before.read) / seconds))
    return found


def longest_pause(samples: Sequence[Sample], since_s: float = 0.0, until_s: float = float("inf")) -> float:
    """Return the longest time in which nothing was acknowledged."""
    longest = 0.0
    last: Sample | None = None
    for sample in samples:
        if not since_s <= sample.at_s <= until_s:
            continue
        if last is None or sample.acknowledged > last.acknowledged:
            last = sample
        longest = max(longest, sample.at_s - last.at_s)
    return longest


class Sampler(threading.Thread):
    """Takes a sample every half a second, until `stop`."""

    def __init__(self, timeline: Timeline, acknowledged: Callable[[], int], read: Callable[[], int]) -> None:
        super().__init__(name="sampler", daemon=True)
        self._timeline = timeline
        self._acknowledged = acknowledged
        self._read = read
        self._stopping = threading.Event()
        self._began = time.monotonic()

    @property
    def now_s(self) -> float:
        return time.monotonic() - self._began

    def run(self) -> None:
        while True:
            self._timeline.samples.append(Sample(self.now_s, self._acknowledged(), self._read()))
            if self._stopping.wait(INTERVAL_S):
                return

    def stop(self) -> None:
        self._stopping.set()
        self.join()
