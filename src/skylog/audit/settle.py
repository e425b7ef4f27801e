"""Assigns messages to windows if their exact window is unknown. Works on plain numbers, without reports and tiers.

A span is a number of messages somewhere in a few neighbouring windows, such as a batch that crosses a window boundary
and of which only the header is known. Other tiers counted the same messages and often know more. So spans are settled
such that the tiers differ as little as possible: if all counted the same, they agree in every window, regardless of the
spans; if one of them has lost messages, the totals differ by exactly that number.

`align` settles several tiers at once, window by window. In each window it takes the largest number of messages that any
tier cannot place later, from every tier, earliest deadline first. It finds an assignment in which the tiers agree if
there is one, but a loss drifts along a chain of spans to its end. `settle` takes one tier and minimizes the sum of its
differences to the others over all windows. Among equal solutions, a difference is placed in the latest possible window:
in the newest windows tiers always differ by the messages in flight, and this must not be blamed on earlier windows.

Bytes are not compared: `span_sizes` assigns them like their messages.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

Guide = Sequence[tuple[int, int] | None]
"""The range of messages that another tier allows in each window: (minimum, maximum); None where it does not matter."""


class WindowSpan(NamedTuple):
    """Messages and bytes in the windows numbered `first` to `last`, both inclusive."""

    first: int
    last: int
    messages: int
    size_bytes: int = 0


class Series(NamedTuple):
    """The messages of a tier that are known to be in each window, and its spans."""

    exact: list[int]
    spans: list[WindowSpan]


def align(series: Sequence[Series], first_active: Sequence[int]) -> list[list[int]]:
    """Return the messages of each series in each window, equal where possible.

    Before its `first_active` window a series is not aligned: its messages are placed as late as possible.
    """
    queues = [_Queue(each) for each in series]
    placed: list[list[int]] = [[] for _ in series]
    for window in range(len(series[0].exact)):
        due = [queue.enter(window) for queue in queues]
        target = max(due)
        for number, queue in enumerate(queues):
            spare = target - due[number] if window >= first_active[number] else 0
            placed[number].append(due[number] + queue.take(spare))
    return placed


class _Queue:
    """The messages of a series that can be placed in the current window, earliest deadline first."""

    def __init__(self, series: Series) -> None:
        self._exact = series.exact
        self._coming = sorted(series.spans, reverse=True)
        self._waiting: list[list[int]] = []  # a heap of [last window, messages]

    def enter(self, window: int) -> int:
        """Advance to the next window; return the number of messages that must be placed there."""
        while self._coming and self._coming[-1].first == window:
            span = self._coming.pop()
            heapq.heappush(self._waiting, [span.last, span.messages])
        due = self._exact[window]
        while self._waiting and self._waiting[0][0] == window:
            due += heapq.heappop(self._waiting)[1]
        return due

    def take(self, count: int) -> int:
        """Place up to `count` more messages there; return how many there were."""
        left = count
        while left > 0 and self._waiting:
            taken = min(left, self._waiting[0][1])
            self._waiting[0][1] -= taken
            left -= taken
            if not self._waiting[0][1]:
                heapq.heappop(self._waiting)
        return max(count - left, 0)


def settle(series: Series, guides: Sequence[Guide]) -> list[int]:
    """Return the messages of a series in each window, as close to the guides as its spans allow.

    The forward pass computes the least sum of differences as a function of the number of span messages placed so far.
    That function is convex and piecewise linear with slopes from -n to n for n guides, so the length of the piece of
    each slope describes it: two such functions are combined by adding lengths. The backward pass reads from the pieces
    how many messages each window gets.

    The number placed so far is bounded by the spans that have ended and those that have started. If a long span
    contains another, this allows slightly more than is possible; totals are exact nevertheless.
    """
    if not series.spans:
        return series.exact
    ended, begun = _limits(series)
    steps: list[_Step | None] = []
    before = [0] * (2 * len(guides) + 1)
    low = 0
    for window, exact in enumerate(series.exact):
        if begun[window] == low:
            steps.append(None)
            continue
        here = _slopes(begun[window] - low, exact, [guide[window] for guide in guides])
        steps.append(_Step(low, before, here))
        both = [left + right for left, right in zip(before, here, strict=True)]
        before = _cut(both, ended[window] - low, begun[window] - ended[window])
        low = ended[window]
    return _walk_back(series.exact, steps, begun[-1])


def span_sizes(series: Series, placed: Sequence[int]) -> list[int]:
    """Return the bytes of spans in each window, after the messages of a series are placed.

    Each message takes its share of its span's bytes; spans that end first are used first. So totals stay exact.
    """
    sizes = [0] * len(placed)
    coming = sorted(series.spans, key=lambda span: (span.last, span.first), reverse=True)
    messages = size_bytes = 0  # the rest of the current span
    for window, (count, exact) in enumerate(zip(placed, series.exact, strict=True)):
        left = count - exact
        while left > 0:
            if not messages:
                _, _, messages, size_bytes = coming.pop()
            taken = min(left, messages)
            share = size_bytes * taken // messages
            sizes[window] += share
            left, messages, size_bytes = left - taken, messages - taken, size_bytes - share
    return sizes


class _Step(NamedTuple):
    """The state before a window: at least `low` messages are placed; the pieces of the function `before` and `here`."""

    low: int
    before: list[int]
    here: list[int]


def _limits(series: Series) -> tuple[list[int], list[int]]:
    """Return the messages in spans that have ended, and in spans that have started, by the end of each window."""
    ended, begun = [0] * len(series.exact), [0] * len(series.exact)
    for span in series.spans:
        begun[span.first] += span.messages
        ended[span.last] += span.messages
    return list(accumulate(ended)), list(accumulate(begun))


def _slopes(room: int, exact: int, limits: Sequence[tuple[int, int] | None]) -> list[int]:
    """Return, for each slope, the length of the piece on which one window's differences grow with that slope."""
    given = [limit for limit in limits if limit is not None]
    turns = sorted(min(max(edge - exact, 0), room) for limit in given for edge in limit)
    outside = [0] * (len(limits) - len(given))
    return outside + [right - left for left, right in pairwise([0, *turns, room])] + outside


def _cut(pieces: Sequence[int], skipped: int, length: int) -> list[int]:
    """Return the pieces without their first `skipped` units, limited to `length`."""
    kept = []
    for piece in pieces:
        gone = min(piece, skipped)
        skipped -= gone
        kept.append(min(piece - gone, length))
        length -= kept[-1]
    return kept


def _walk_back(exact: Sequence[int], steps: Sequence[_Step | None], total: int) -> list[int]:
    """Place the messages from the last window to the first. `total` is the number of messages in all spans."""
    placed = list(exact)
    for window in range(len(steps) - 1, -1, -1):
        step = steps[window]
        if step is None:
            continue
        rest = total - step.low
        earlier = 0
        for slope, (left, right) in enumerate(zip(step.before, step.here, strict=True)):
            taken = min(rest, left + right)
            rest -= taken
            # If there are too few messages, earlier windows are filled first; if too many, they are filled last.
            is_too_many = slope > len(step.here) // 2
            earlier += taken - min(right, taken) if is_too_many else min(left, taken)
        placed[window] += total - step.low - earlier
        total = step.low + earlier
    return placed
