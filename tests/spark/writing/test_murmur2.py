"""The hash of keys, compared with a plain implementation of Java's formula."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skylog.spark.writing.encoder import byte_ranges
from skylog.spark.writing.murmur2 import murmur2

M, MASK = 0x5BD1E995, 0xFFFFFFFF


def plain(key: bytes) -> int:
    value = 0x9747B28C ^ len(key)
    whole = len(key) // 4 * 4
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * M & MASK
        value = value * M & MASK ^ (word ^ word >> 24) * M & MASK
    if rest := key[whole:]:
        value = (value ^ int.from_bytes(rest, "little")) * M & MASK
    value = (value ^ value >> 13) * M & MASK
    return value ^ value >> 15


def hashes(keys: list[bytes]) -> list[int]:
    data, bounds = byte_ranges(pa.array(keys, pa.large_binary()))
    found: list[int] = murmur2(data, bounds[:-1], np.diff(bounds)).tolist()
    return found


@given(st.lists(st.binary(max_size=50)))
def test_all_keys_of_a_column_get_the_hash_that_each_gets_alone(keys: list[bytes]) -> None:
    assert hashes(keys) == [plain(key) for key in keys]


@pytest.mark.parametrize(
    ("key", "java"),
    [(b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536), (b"", 275646681)],
)
def test_hashes_are_those_of_java(key: bytes, java: int) -> None:
    assert hashes([key]) == [java & MASK]
