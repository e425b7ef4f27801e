"""Finds the start positions of records in batches, and reads their numbers, for many records at once with numpy.

A record only has its own length, so the position of each record follows from the one before. A sequential scan is the
slowest part of reading in Python. Instead, many lanes advance from record to record in step, with one numpy operation
for all of them. Every batch is a lane, and a long batch gets more lanes, which begin at guessed positions inside it. A
guess is a position where two successive records seem to be. Guesses are verified: the lanes of a batch are correct if
each ends exactly where the next begins, because the first begins at the start of the batch. If one is not, all batches
are scanned sequentially.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Bytes = NDArray[np.uint8]

MANY_LANES: Final = 480
"""The target number of lanes, at which the cost of a numpy step per lane is small."""

LONGEST_LANE: Final = 96
"""The maximum of records per lane. The steps of a longer lane cost more than guessing another lane."""

FEWEST_RECORDS: Final = 12_000
"""With fewer records no lanes are guessed: guessing costs more than a sequential scan."""

FEWEST_LANES: Final = 80
"""With fewer lanes, a numpy step costs more than a sequential scan."""

ONE_BY_ONE: Final = 1 << 62
_LARGEST_WINDOW_BYTES: Final = 2048
_SMALLEST_RECORD_BYTES: Final = 6
_SHORT_VARINT_BYTES: Final = 3


def record_starts(
    data: Bytes, raw: memoryview, starts: Integers, ends: Integers, counts: Integers, *, with_lengths: bool = False
) -> Integers:
    """Return the positions of all records, after their lengths. Batch i has `counts[i]` in `starts[i]:ends[i]`.

    With `with_lengths` they are the positions of the lengths. `raw` is a view of `data`. Raises IndexError if a batch
    does not have exactly `counts[i]` records.
    """
    lanes = _guess_lanes(data, starts, ends, counts)
    stops = np.minimum(np.append(lanes[1:], ends[-1]), ends[np.searchsorted(starts, lanes, "right") - 1])
    found = _follow(data, raw, lanes, stops, FEWEST_LANES, with_lengths)
    if found is None:
        found = _follow(data, raw, starts, ends, ONE_BY_ONE, with_lengths)
    if found is None or (np.diff(np.searchsorted(found, ends), prepend=0) != counts).any():
        raise IndexError("its records do not match its size and record count")
    return found


def read_varints(data: Bytes, at: Integers) -> tuple[Integers, Integers]:
    """Return the zigzag varints at these positions, and the positions after them. Raises IndexError if invalid."""
    byte = data[at]
    at = at + 1
    raw = (byte & 0x7F).astype(np.uint64)
    more = np.flatnonzero(byte & 0x80)
    shift = 7
    while len(more):
        if shift > 63:
            raise IndexError("a varint is too long")
        byte = data[at[more]]
        at[more] += 1
        raw[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        more = more[byte >= 0x80]
        shift += 7
    return (raw >> np.uint64(1)).view(np.int64) ^ -(raw & np.uint64(1)).view(np.int64), at


def _follow(
    data: Bytes, raw: memoryview, at: Integers, stops: Integers, fewest_lanes: int, with_lengths: bool
) -> Integers | None:
    """Return all records from each of `at` to its stop, or None if one extends beyond its stop."""
    found: list[Integers] = []
    while len(at) >= fewest_lanes:
        lengths, bodies = _short_lengths(data, at)
        found.append(at if with_lengths else bodies)
        at = bodies + lengths
        going = at < stops
        if not going.all():
            if (at > stops).any():
                return None
            at, stops = at[going], stops[going]
    rest: list[int] = []
    for position, stop in zip(at.tolist(), stops.tolist(), strict=True):
        if not _follow_one(raw, position, stop, rest, with_lengths):
            return None
    found.append(np.array(rest, dtype=np.int64))
    together = np.concatenate(found)
    together.sort()
    return together


def _follow_one(raw: memoryview, position: int, stop: int, found: list[int], with_lengths: bool) -> bool:
    append = found.append
    while position < stop:
        begin = position
        length = raw[position]
        position += 1
        if length > 0x7F:
            high = raw[position]
            position += 1
            length += (high - 1) << 7  # minus one, to remove the high bit of the first byte
            shift = 14
            while high > 0x7F:
                high = raw[position]
                position += 1
                length += (high - 1) << shift
                shift += 7
        append(begin if with_lengths else position)
        position += length >> 1
    return position == stop


def _guess_lanes(data: Bytes, starts: Integers, ends: Integers, counts: Integers) -> Integers:
    """Return the starts of batches, and guessed starts of records inside long batches, sorted."""
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
    """Return, for each probe, the first position after it where a record seems to begin, if any.

    Searches for a zero byte, the value of a record's attributes, after a plausible length. At the end of that record
    there must be another one with the next offset.
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
    """Return the non-negative varints of up to three bytes at these positions, and the positions after them.

    The result is wrong for longer varints and at the end of the data, but never negative: a lane always advances.
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
