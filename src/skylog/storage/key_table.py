"""The last record of each key, for compaction: numpy arrays in place of a dictionary.

A key of up to 64 bytes is kept as words of eight bytes and its length, a longer one as a digest of 64 bytes and its
length. The table is sorted by a hash of these. Keys with equal hashes are compared word by word. If they differ, which
a random salt makes as good as impossible, `HashCollisionError` is raised, and the caller begins again with another
salt.

A record is known by its number, counted from the first record that was read, and by its place among the decompressed
records of its batch. So the records of a batch that stay are found without reading its keys a second time.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skylog.records.keyed_records import KeyedRecords
from skylog.records.record_starts import Bytes, Integers

Words = NDArray[np.uint64]
Flags = NDArray[np.bool_]

WORD_BYTES: Final = 8
MAX_WORDS: Final = 8
_MASKS: Final = np.array([(1 << 8 * size) - 1 for size in range(WORD_BYTES + 1)], dtype=np.uint64)
_MIX: Final = (np.array([0xFF51AFD7ED558CCD], dtype=np.uint64), np.array([0xC4CEB9FE1A85EC53], dtype=np.uint64))
_SHIFT: Final = np.uint64(32)


class HashCollisionError(Exception):
    """Two different keys have the same hash."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Some keys: a hash, a length and words of each. Columns of words that are missing are zero."""

    hashes: Words
    lengths: Integers
    words: tuple[Words, ...]

    def __len__(self) -> int:
        return len(self.hashes)

    def select(self, rows: Integers | Flags) -> Keys:
        return Keys(self.hashes[rows], self.lengths[rows], tuple(column[rows] for column in self.words))

    def equal(self, other: Keys) -> Flags:
        """Compare keys row by row."""
        found: Flags = self.lengths == other.lengths
        for index in range(max(len(self.words), len(other.words))):
            found &= self._column(index) == other._column(index)
        return found

    def insert(self, rows: Integers, other: Keys) -> Keys:
        """Insert the keys of `other` before these rows."""
        words = tuple(
            np.insert(self._column(index), rows, other._column(index))
            for index in range(max(len(self.words), len(other.words)))
        )
        return Keys(np.insert(self.hashes, rows, other.hashes), np.insert(self.lengths, rows, other.lengths), words)

    def _column(self, index: int) -> Words:
        return self.words[index] if index < len(self.words) else np.zeros(len(self), dtype=np.uint64)


class KeyReader:
    """Reads the keys of records. The salt makes hashes unpredictable."""

    def __init__(self, salt: bytes) -> None:
        expanded = blake2b(salt, digest_size=64).digest() + blake2b(salt, digest_size=8, person=b"length").digest()
        self._salts = np.frombuffer(expanded, dtype="<u8").astype(np.uint64)

    def read(self, records: KeyedRecords, rows: Integers) -> Keys:
        """Return the keys of these rows, none of which is null."""
        starts, lengths = records.key_starts[rows], records.key_lengths[rows]
        longest = int(lengths.max(initial=0))
        words = _words(records.data, starts, lengths, min(-(-longest // WORD_BYTES), MAX_WORDS))
        if longest > MAX_WORDS * WORD_BYTES:
            _digest_long_keys(records.raw, starts, lengths, words)
        return Keys(self._hash(lengths, words), lengths, tuple(words))

    def _hash(self, lengths: Integers, words: list[Words]) -> Words:
        """Mix each word with its salt and add the results. A word of zero adds nothing, so missing columns do not."""
        hashes = _mixed(lengths.astype(np.uint64) + self._salts[MAX_WORDS])
        for index, column in enumerate(words):
            salt = self._salts[index : index + 1]
            hashes += _mixed(column ^ salt) - _mixed(salt)
        return hashes


def _mixed(values: Words) -> Words:
    mixed = values ^ (values >> _SHIFT)
    for factor in _MIX:
        mixed *= factor
        mixed ^= mixed >> _SHIFT
    return mixed


def _words(data: Bytes, starts: Integers, lengths: Integers, count: int) -> list[Words]:
    """Return the first `count` words of each key. Bytes beyond the end of a key are zero."""
    last = len(data) - WORD_BYTES
    at_any_byte: Words = np.ndarray((last + 1,), dtype="<u8", buffer=data, strides=(1,))
    words = []
    for index in range(count):
        at = starts + index * WORD_BYTES
        read = at_any_byte[np.minimum(at, last)]  # take() would copy the whole array
        beyond = np.flatnonzero(at > last)
        read[beyond] >>= np.minimum((at[beyond] - last) * 8, 63).astype(np.uint64)
        words.append(read & _MASKS[np.clip(lengths - index * WORD_BYTES, 0, WORD_BYTES)])
    return words


def _digest_long_keys(raw: memoryview, starts: Integers, lengths: Integers, words: list[Words]) -> None:
    """Replace the words of keys that have more bytes than words can hold."""
    for row in np.flatnonzero(lengths > MAX_WORDS * WORD_BYTES).tolist():
        start = int(starts[row])
        digest = np.frombuffer(blake2b(raw[start : start + int(lengths[row])]).digest(), dtype="<u8")
        for column, word in zip(words, digest, strict=True):
            column[row] = word


class Places(NamedTuple):
    """Some records: their numbers, and where each begins and ends in its batch."""

    numbers: Integers
    begins: Integers
    ends: Integers

    def select(self, rows: Integers | Flags) -> Places:
        return Places(self.numbers[rows], self.begins[rows], self.ends[rows])


class KeyTable:
    """The keys that a log has in a range of offsets, and the last record of each."""

    def __init__(self) -> None:
        nothing = np.zeros(0, dtype=np.int64)
        self._keys = Keys(nothing.astype(np.uint64), nothing, ())
        self._places = Places(nothing, nothing, nothing)
        self._buckets: _Buckets | None = None

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, keys: Keys, places: Places) -> None:
        """Add the keys of records, which follow those in the table, in their order. Raises HashCollisionError."""
        if not len(keys):
            return
        order = np.argsort(keys.hashes)
        hashes = keys.hashes[order]
        is_repeated = np.concatenate(([False], hashes[1:] == hashes[:-1]))
        firsts = np.flatnonzero(~is_repeated)
        _check_equal(keys.select(order[is_repeated]), keys.select(order[np.flatnonzero(is_repeated) - 1]))
        lasts = np.maximum.reduceat(order, firsts)
        self._merge(keys.select(lasts), places.select(lasts))

    def _merge(self, keys: Keys, places: Places) -> None:
        """Add keys in the order of their hashes, each once."""
        rows, is_known = self._find(keys.hashes)
        known = rows[is_known]
        _check_equal(self._keys.select(known), keys.select(is_known))
        for column, values in zip(self._places, places, strict=True):
            column[known] = values[is_known]
        is_new = ~is_known
        if is_new.any():
            self._buckets = None
            at = rows[is_new]
            self._keys = self._keys.insert(at, keys.select(is_new))
            added = zip(self._places, places.select(is_new), strict=True)
            self._places = Places(*(np.insert(column, at, values) for column, values in added))

    def _find(self, hashes: Words) -> tuple[Integers, Flags]:
        """Return the row of each hash, or where it would be inserted, and whether it is there."""
        rows = np.searchsorted(self._keys.hashes, hashes)
        if not len(self):
            return rows, np.zeros(len(rows), dtype=np.bool_)
        return rows, self._keys.hashes.take(rows, mode="clip") == hashes

    def new_keys(self, keys: Keys) -> Flags:
        """Return which keys are not in the table yet, and not further up among `keys`."""
        _, first = np.unique(keys.hashes, return_index=True)
        is_first = np.zeros(len(keys), dtype=np.bool_)
        is_first[first] = True
        return is_first & ~self._find(keys.hashes)[1]

    def has(self, keys: Keys) -> Flags:
        """Return which keys are in the table."""
        if self._buckets is None:
            self._buckets = _Buckets(self._keys.hashes)
        found = np.zeros(len(keys), dtype=np.bool_)
        records, rows = self._buckets.find(keys.hashes)
        found[records] = self._keys.select(rows).equal(keys.select(records))
        return found

    def records(self) -> Places:
        """Return the last records of all keys, in the order of their numbers."""
        return self._places.select(np.argsort(self._places.numbers))


class _Buckets:
    """Finds rows in sorted hashes by their highest bits: faster than a binary search for hashes in random order."""

    def __init__(self, hashes: Words) -> None:
        self._hashes = hashes
        bits = min(max(len(hashes), 1).bit_length() + 1, 24)
        self._shift = np.uint64(64 - bits)
        edges = np.arange(1 << bits, dtype=np.uint64) << self._shift
        self._starts = np.append(np.searchsorted(hashes, edges), len(hashes))

    def find(self, wanted: Words) -> tuple[Integers, Integers]:
        """Return the indices of the hashes that are there, and their rows."""
        buckets = (wanted >> self._shift).astype(np.int64)
        rows, ends = self._starts[buckets], self._starts[buckets + 1]
        left = np.flatnonzero(rows < ends)
        rows, ends = rows[left], ends[left]
        found: list[tuple[Integers, Integers]] = []
        while len(left):
            is_equal = self._hashes[rows] == wanted[left]
            found.append((left[is_equal], rows[is_equal]))
            rows = rows + 1
            goes_on = ~is_equal & (rows < ends)
            left, rows, ends = left[goes_on], rows[goes_on], ends[goes_on]
        nothing = np.zeros(0, dtype=np.int64)
        return (
            np.concatenate([nothing, *(indices for indices, _ in found)]),
            np.concatenate([nothing, *(each for _, each in found)]),
        )


def _check_equal(left: Keys, right: Keys) -> None:
    if not left.equal(right).all():
        raise HashCollisionError
