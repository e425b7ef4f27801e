"""Positions in many messages at once, and the reading of Avro's primitive types at all of them.

A message that ends too early, or has an impossible length, is noted as bad, and its cursor goes on over whatever
follows: the caller decodes the good ones again without it. So nothing here may read outside of the buffer.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Rows = NDArray[np.intp]

PADDING_BYTES: Final = 16
"""Zeros after the messages, so that whole words can be read at their end."""

_CONTINUED: Final = np.uint64(0x8080808080808080)
_LAST_SHIFT: Final = 63


class Buffer:
    """The bytes of all messages, with padding."""

    def __init__(self, raw: Any) -> None:
        given = np.frombuffer(raw, np.uint8)
        self.bytes: Bytes = np.zeros(len(given) + PADDING_BYTES, np.uint8)
        self.bytes[: len(given)] = given
        self.end = len(given)
        self.limit = self.end + 1  # the last position of a cursor: beyond the end of every message
        self._views: dict[str, NDArray[Any]] = {}

    def words(self, kind: str) -> NDArray[Any]:
        """Return the buffer as numbers of this numpy type, one at every byte."""
        if kind not in self._views:
            size = np.dtype(kind).itemsize
            count = len(self.bytes) - size + 1
            self._views[kind] = np.ndarray((count,), kind, self.bytes.data, strides=(1,))
        return self._views[kind]


class Cursor:
    """The next position in each of some messages. `rows` are their numbers in `bad` and `slow`, which are shared."""

    __slots__ = ("at", "bad", "buffer", "ends", "rows", "slow")

    def __init__(
        self, buffer: Buffer, at: Integers, ends: Integers, rows: Rows, bad: NDArray[np.bool_], slow: NDArray[np.bool_]
    ) -> None:
        self.buffer = buffer
        self.at = at
        self.ends = ends
        self.rows = rows
        self.bad = bad
        self.slow = slow

    def __len__(self) -> int:
        return len(self.at)

    def select(self, chosen: Rows) -> Cursor:
        return Cursor(self.buffer, self.at[chosen], self.ends[chosen], self.rows[chosen], self.bad, self.slow)

    def rejoin(self, chosen: Rows, part: Cursor) -> None:
        """Take over the positions of a selection."""
        self.at[chosen] = part.at

    def fail(self, wrong: NDArray[np.bool_]) -> None:
        self.bad[self.rows[wrong]] = True

    def give_up(self, wrong: NDArray[np.bool_]) -> None:
        """Note messages that are cheaper to decode one by one."""
        self.slow[self.rows[wrong]] = True

    def read_bytes(self) -> Bytes:
        found = self.buffer.bytes.take(self.at, mode="clip")
        self.skip(1)
        return found

    def read_longs(self) -> Integers:
        """Read variable-length integers."""
        at = self.at
        first = self.buffer.bytes.take(at, mode="clip")
        more = np.flatnonzero(first & 0x80)
        raw = first.astype(np.uint64)
        if not len(more):
            at += 1
        elif 2 * len(more) > len(at):
            raw, sizes = self._long(at)
            at += sizes
        else:
            values, sizes = self._long(at[more])
            at += 1
            raw[more] = values
            at[more] += sizes - 1
        np.minimum(at, self.buffer.limit, out=at)
        return (raw >> np.uint64(1)).view(np.int64) ^ -(raw & np.uint64(1)).view(np.int64)

    def _long(self, at: Integers) -> tuple[NDArray[np.uint64], Integers]:
        """Return integers and their sizes, from words of eight bytes: the bits of all bytes move together in steps."""
        word = self.buffer.words("<u8")[at]
        ends = ~word & _CONTINUED  # the highest bit of every byte that is the last of an integer
        used = ends ^ (ends - np.uint64(1))
        sizes = (((used >> np.uint64(7)) & np.uint64(0x0101010101010101)) * np.uint64(0x0101010101010101)) >> np.uint64(
            56
        )
        word &= used & np.uint64(0x7F7F7F7F7F7F7F7F)
        word = (word & np.uint64(0x007F007F007F007F)) | ((word & np.uint64(0x7F007F007F007F00)) >> np.uint64(1))
        word = (word & np.uint64(0x00003FFF00003FFF)) | ((word & np.uint64(0x3FFF00003FFF0000)) >> np.uint64(2))
        word = (word & np.uint64(0x000000000FFFFFFF)) | ((word & np.uint64(0x0FFFFFFF00000000)) >> np.uint64(4))
        counts = sizes.view(np.int64)
        longer = np.flatnonzero(ends == 0)
        if len(longer):
            word[longer], counts[longer] = self._longest(at[longer], word[longer])
        return word, counts

    def _longest(self, at: Integers, low: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], Integers]:
        """Return integers of nine and ten bytes, given the bits of the first eight. Eleven bytes are no integer."""
        ninth = self.buffer.bytes[at + 8]
        tenth = np.where(ninth & 0x80, self.buffer.bytes[at + 9], 0).astype(np.uint64)
        raw = low | (ninth & 0x7F).astype(np.uint64) << np.uint64(56) | tenth << np.uint64(_LAST_SHIFT)
        sizes = np.where(tenth > 1, 11 + self.buffer.end, np.where(ninth & 0x80, 10, 9))  # beyond the end: bad
        return raw, sizes.astype(np.int64)

    def read_words(self, kind: str) -> NDArray[Any]:
        """Read numbers of a fixed size, of this numpy type."""
        found = self.buffer.words(kind)[self.at]
        self.skip(np.dtype(kind).itemsize)
        return found

    def skip(self, size: int) -> None:
        self.at += size
        np.minimum(self.at, self.buffer.limit, out=self.at)

    def read_spans(self) -> tuple[Integers, Integers]:
        """Read the lengths of strings or bytes; return where they are, and their lengths."""
        lengths = self.read_longs()
        return self.spans(lengths)

    def spans(self, lengths: Integers) -> tuple[Integers, Integers]:
        """Return where the next bytes of these lengths are. Impossible lengths become zero."""
        wrong = (lengths < 0) | (lengths > self.ends - self.at)
        if wrong.any():
            self.fail(wrong)
            lengths = np.where(wrong, 0, lengths)
        starts = self.at.copy()
        self.at += lengths
        return starts, lengths
