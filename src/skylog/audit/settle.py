"""Which windows messages belong to that a tier could not tell apart. Plain numbers; knows no reports and no tiers.

A span says that so many messages lie somewhere in a few neighbouring windows, as of a batch that crosses the edge of a
window and of which only the header is known. Other tiers counted the same messages and often know more. So spans are
settled such that the tiers differ as little as they can: if all counted the same, they come out the same in every
window, whatever the spans hide; if one of them has lost some, totals differ by just as many.

`align` settles several tiers at once, window by window: as many messages as one of them has that can wait no longer
are taken from each, those first that can wait least. It finds common ground where there is any, but a loss drifts along
a chain of spans to its end. `settle` takes one tier and finds the least sum of differences to the others, over all
windows together. Where that leaves a choice, a difference stands in the latest window possible: at the end of the books
tiers always differ by what is still on its way, and that must not be blamed on earlier windows.

Bytes are not compared: `span_sizes` lets them follow the messages.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

Guide = Sequence[tuple[int, int] | None]
"""What another tier wants in each window: from so many to so many messages. None where it does not matter."""


class Span(NamedTuple):
    """Messages, and their bytes, in the windows numbered `first` to `last`, both included."""

    first: int
    last: int
    messages: int
    size_bytes: int = 0


class Series(NamedTuple):
    """What a tier has in each window for certain, and its spans beside that."""

    exact: list[int]
    spans: list[Span]


def align(series: Sequence[Series], first_active: Sequence[int]) -> list[list[int]]:
    """The messages of each series in each window, alike where they can be.

    A series takes no part before its `first_active` window: its messages stay as late as they can.
    """
    queues = [_Queue(each) for each in series]
    placed: list[list[int]] = [[] for _ in series]
    for window in range(len(series[0].exact)):
        due = [queue.enter(window) for queue in queues]
        wanted = max(due)
        for number, queue in enumerate(queues):
            spare = wanted - due[number] if window >= first_active[number] else 0
            placed[number].append(due[number] + queue.take(spare))
    return placed


class _Queue:
    """The messages of a series that could be placed in the current window, those first that can wait least."""

    def __init__(self, series: Series) -> None:
        self._exact = series.exact
        self._coming = sorted(series.spans, reverse=True)
        self._waiting: list[list[int]] = []  # a heap of [last window, messages]

    def enter(self, window: int) -> int:
        """Go to the next window; how many messages have to be placed there."""
        while self._coming and self._coming[-1].first == window:
            span = self._coming.pop()
            heapq.heappush(self._waiting, [span.last, span.messages])
        due = self._exact[window]
        while self._waiting and self._waiting[0][0] == window:
            due += heapq.heappop(self._waiting)[1]
        return due

    def take(self, wanted: int) -> int:
        """Place so many more there, or what there is."""
        left = wanted
        while left > 0 and self._waiting:
            taken = min(left, self._waiting[0][1])
            self._waiting[0][1] -= taken
            left -= taken
            if not self._waiting[0][1]:
                heapq.heappop(self._waiting)
        return max(wanted - left, 0)


def settle(series: Series, guides: Sequence[Guide]) -> list[int]:
    """The messages of a series in each window, as near to the guides as its spans allow.

    The least sum of differences is found from left to right, as a function of how many messages of spans have been
    placed so far. That function is convex and made of straight pieces with slopes from -n to n for n guides, so the
    length of the piece of each slope is all there is to know of it: two such functions are joined by adding lengths. On
    the way back the pieces say how many messages each window takes.

    The number placed so far is held between the spans that have ended and those that have begun. Where one long span
    hides another that is inside of it, this is a little more than is possible; totals are right all the same.
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
    """The bytes of spans in each window, once the messages of a series are placed.

    Each message takes its share of its span's bytes along, those first whose span ends first; so totals stay exact.
    """
    sizes = [0] * len(placed)
    coming = sorted(series.spans, key=lambda span: (span.last, span.first), reverse=True)
    messages = size_bytes = 0  # what is left of the span at hand
    for window, (count, exact) in enumerate(zip(placed, series.exact, strict=True)):
        wanted = count - exact
        while wanted > 0:
            if not messages:
                _, _, messages, size_bytes = coming.pop()
            taken = min(wanted, messages)
            share = size_bytes * taken // messages
            sizes[window] += share
            wanted, messages, size_bytes = wanted - taken, messages - taken, size_bytes - share
    return sizes


class _Step(NamedTuple):
    """What is known before a window: at least `low` messages are placed, and the pieces `before` and `here`."""

    low: int
    before: list[int]
    here: list[int]


def _limits(series: Series) -> tuple[list[int], list[int]]:
    """How many messages are in spans that ended, and in spans that began, with each window or before."""
    ended, begun = [0] * len(series.exact), [0] * len(series.exact)
    for span in series.spans:
        begun[span.first] += span.messages
        ended[span.last] += span.messages
    return list(accumulate(ended)), list(accumulate(begun))


def _slopes(room: int, exact: int, wants: Sequence[tuple[int, int] | None]) -> list[int]:
    """For each slope the length of the piece where the differences of one window grow so fast with each message."""
    given = [want for want in wants if want is not None]
    turns = sorted(min(max(edge - exact, 0), room) for want in given for edge in want)
    outside = [0] * (len(wants) - len(given))
    return outside + [right - left for left, right in pairwise([0, *turns, room])] + outside


def _cut(pieces: Sequence[int], skipped: int, length: int) -> list[int]:
    """The pieces without the `skipped` at their beginning, and no longer than `length`."""
    kept = []
    for piece in pieces:
        gone = min(piece, skipped)
        skipped -= gone
        kept.append(min(piece - gone, length))
        length -= kept[-1]
    return kept


def _walk_back(exact: Sequence[int], steps: Sequence[_Step | None], total: int) -> list[int]:
    """`total` is the number of messages in all spans."""
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
            # Too few messages: earlier windows get theirs first. Too many: earlier windows get them last.
            is_too_many = slope > len(step.here) // 2
            earlier += taken - min(right, taken) if is_too_many else min(left, taken)
        placed[window] += total - step.low - earlier
        total = step.low + earlier
    return placed
