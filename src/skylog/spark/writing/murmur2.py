"""murmur2, the hash with which Kafka's Java clients choose a key's partition, for a whole column of keys at once."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_SEED: Final = np.uint32(0x9747B28C)
_M: Final = np.uint32(0x5BD1E995)
_WORD_BYTES: Final = 4


def murmur2(data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Return the hashes of the keys in `data`.

    Processes all keys together, word by word, sorted by descending length: finished keys drop off the end.
    """
    order = np.argsort(-lengths, kind="stable")
    at, lengths = starts[order], lengths[order]
    padded = np.concatenate([data, np.zeros(_WORD_BYTES, dtype=np.uint8)])
    words: NDArray[Any] = np.ndarray(len(data) + 1, dtype="<u4", buffer=padded, strides=(1,))
    word_counts = lengths // _WORD_BYTES
    hashes = _SEED ^ lengths.astype(np.uint32)
    for index in range(int(word_counts.max(initial=0))):
        active = slice(int(np.searchsorted(-word_counts, -index)))
        hashes[active] = hashes[active] * _M ^ _mixed(words[at[active] + index * _WORD_BYTES])
    rest = lengths % _WORD_BYTES > 0
    mask = (np.uint32(1) << (lengths[rest] % _WORD_BYTES * 8).astype(np.uint32)) - np.uint32(1)
    hashes[rest] = (hashes[rest] ^ words[at[rest] + word_counts[rest] * _WORD_BYTES] & mask) * _M
    hashes ^= hashes >> np.uint32(13)
    hashes *= _M
    hashes ^= hashes >> np.uint32(15)
    found = np.empty_like(hashes)
    found[order] = hashes
    return found


def _mixed(words: NDArray[Any]) -> NDArray[np.uint32]:
    mixed: NDArray[np.uint32] = words.astype(np.uint32) * _M
    mixed ^= mixed >> np.uint32(24)
    mixed *= _M
    return mixed
