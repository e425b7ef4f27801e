"""Where the records of a batch begin.

A record says only how long it is, so each can be found from the one before. One after another that is the slowest part
of reading in Python. Instead, many lanes go from record to record in step, one numpy operation for all of them: every
batch is a lane, and a long batch is given more, which begin at guessed places further in. A guess is a place where two
successive records seem to lie. What is guessed is proven: the lanes of a batch are right if each ends exactly where the
next begins, because the first begins at the batch's start. If one does not, everything is done again one by one.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Bytes = NDArray[np.uint8]

MANY_LANES: Final = 480
"""Lanes among which the records are shared out: with so many a step costs little for each of them,"""

LONGEST_LANE: Final = 96
"""and in a lane longer than this the steps are more than guessing another lane would cost."""

FEWEST_RECORDS: Final = 12_000
"""Of fewer records no lanes are guessed: finding a guess costs more than going one by one."""

FEWEST_LANES: Final = 80
"""With fewer lanes than this, a step costs more than going one by one."""

ONE_BY_ONE: Final = 1 << 62
_LARGEST_WINDOW_BYTES: Final = 2048
_SMALLEST_RECORD_BYTES: Final = 6
_SHORT_VARINT_BYTES: Final = 3


def record_starts(data: Bytes, raw: memoryview, starts: Integers, ends: Integers, counts: Integers) -> Integers:
    """Positions of all records after their lengths; batch i has `counts[i]` from `starts[i]` up to `ends[i]`.

    Raises IndexError where a batch does not hold exactly so many. `raw` are the bytes of `data`.
    """
    lanes = _guess_lanes(data, starts, ends, counts)
    stops = np.minimum(np.append(lanes[1:], ends[-1]), ends[np.searchsorted(starts, lanes, "right") - 1])
    found = _follow(data, raw, lanes, stops, FEWEST_LANES)
    if found is None:
        found = _follow(data, raw, starts, ends, ONE_BY_ONE)
    if found is None or (np.diff(np.searchsorted(found, ends), prepend=0) != counts).any():
        raise IndexError("its records do not fill it")
    return found


def _follow(data: Bytes, raw: memoryview, at: Integers, stops: Integers, fewest_lanes: int) -> Integers | None:
    """All records from each of `at` up to its stop; None if one goes past its stop."""
    found: list[Integers] = []
    while len(at) >= fewest_lanes:
        lengths, bodies = _short_lengths(data, at)
        found.append(bodies)
        at = bodies + lengths
        going = at < stops
        if not going.all():
            if (at > stops).any():
                return None
            at, stops = at[going], stops[going]
    rest: list[int] = []
    for position, stop in zip(at.tolist(), stops.tolist(), strict=True):
        if not _follow_one(raw, position, stop, rest):
            return None
    found.append(np.array(rest, dtype=np.int64))
    together = np.concatenate(found)
    together.sort()
    return together


def _follow_one(raw: memoryview, position: int, stop: int, found: list[int]) -> bool:
    append = found.append
    while position < stop:
        length = raw[position]
        position += 1
        if length > 0x7F:
            high = raw[position]
            position += 1
            length += (high - 1) << 7  # less one, to take the first byte's own high bit away
            shift = 14
            while high > 0x7F:
                high = raw[position]
                position += 1
                length += (high - 1) << shift
                shift += 7
        append(position)
        position += length >> 1
    return position == stop


def _guess_lanes(data: Bytes, starts: Integers, ends: Integers, counts: Integers) -> Integers:
    """The starts of the batches and, in long ones, of records further in: sorted, and not certain."""
    total = int(counts.sum())
    shares = np.maximum(counts // min(LONGEST_LANE, max(total // MANY_LANES, 1)), 1)
    if total < FEWEST_RECORDS or not (shares > 1).any():
        return starts
    sizes = ends - starts
    first_lanes = np.cumsum(shares) - shares
    numbers = np.arange(shares.sum()) - np.repeat(first_lanes, shares)
    probes = np.repeat(starts, shares) + numbers * np.repeat(sizes // shares, shares)
    batch_ends = np.repeat(ends, shares)
    within = numbers > 0
    window_bytes = min(int(2 * (sizes // np.maximum(counts, 1)).max()) + 32, _LARGEST_WINDOW_BYTES, len(data))
    return np.union1d(starts, _resume(data, probes[within], batch_ends[within], window_bytes))


def _resume(data: Bytes, probes: Integers, batch_ends: Integers, window_bytes: int) -> Integers:
    """For each probe the first place after it where a record seems to begin, if there is one.

    Looks for a zero, which the attributes of a record are, with the length of a record before it; and at the end of
    that record for another one, whose offset is the next.
    """
    probes = np.minimum(probes, len(data) - window_bytes)
    windows = np.lib.stride_tricks.sliding_window_view(data, window_bytes)[probes]
    lane, column = np.nonzero(windows == 0)
    attributes = probes[lane] + column
    candidates, lanes = [], []
    for size in range(1, _SHORT_VARINT_BYTES + 1):
        begins = attributes - size
        fits = (begins >= probes[lane]) & (data[attributes - 1] < 0x80)
        for back in range(2, size + 1):
            fits &= data[attributes - back] >= 0x80
        candidates.append(begins[fits])
        lanes.append(lane[fits])
    begins, lane = np.concatenate(candidates), np.concatenate(lanes)
    lengths, bodies = _short_lengths(data, begins)
    after = bodies + lengths
    fits = (lengths >= _SMALLEST_RECORD_BYTES) & (after < batch_ends[lane])
    begins, bodies, after, lane = begins[fits], bodies[fits], after[fits], lane[fits]
    _, next_bodies = _short_lengths(data, after)
    fits = _offset_deltas(data, bodies) + 1 == _offset_deltas(data, next_bodies)
    begins, lane = begins[fits], lane[fits]
    order = np.lexsort((begins, lane))
    _, first = np.unique(lane[order], return_index=True)
    found: Integers = begins[order][first]
    return found


def _offset_deltas(data: Bytes, bodies: Integers) -> Integers:
    _, at = _short_lengths(data, bodies + 1)
    return _short_lengths(data, at)[0]


def _short_lengths(data: Bytes, at: Integers) -> tuple[Integers, Integers]:
    """Varints of up to three bytes that stand for no negative number, and the positions after them.

    Gives nonsense for longer ones and at the end of the data, but never a negative number: a lane always moves on.
    """
    raw = data.take(at, mode="clip").astype(np.int64)
    after = at + 1
    more = np.flatnonzero(raw > 0x7F)
    if len(more):
        next_at = after[more]
        second = data.take(next_at, mode="clip").astype(np.int64)
        is_longer = second > 0x7F
        if is_longer.any():
            third = data.take(next_at + 1, mode="clip").astype(np.int64)
            second += np.where(is_longer, (third - 1) << 7, 0)
            next_at += is_longer
        raw[more] += (second - 1) << 7
        after[more] = next_at + 1
    return raw >> 1, after
