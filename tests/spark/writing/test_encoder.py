"""Encoding columns as batches: decoding gives the same rows, for every codec and size."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from skylog.errors import SkylogError
from skylog.records import Record, read_records
from skylog.records.compression import Codec
from skylog.spark.schema import HEADERS, arrow_schema
from skylog.spark.varints import rows_of_varints
from skylog.spark.writing.encoder import EncodedBatch, RecordRows, encode, large_binary

HEADER_TYPE = arrow_schema(StructType().add("h", HEADERS))[0].type

maybe_bytes = st.none() | st.binary(max_size=300)
header_lists = st.none() | st.lists(st.tuples(st.text(max_size=5), maybe_bytes), max_size=3)
records = st.tuples(maybe_bytes, maybe_bytes, header_lists, st.integers(0, 2**45), st.integers(0, 3))

Header: TypeAlias = tuple[str | None, bytes | None]
Row: TypeAlias = tuple[bytes | None, bytes | None, list[Header] | None, int, int]
Content: TypeAlias = tuple[bytes | None, bytes | None, tuple[Header, ...], int]


def rows_of(rows: list[Row]) -> tuple[RecordRows, np.ndarray]:
    headers = [None if row[2] is None else [{"key": k, "value": v} for k, v in row[2]] for row in rows]
    return RecordRows(
        pa.array([row[1] for row in rows], pa.large_binary()),
        pa.array([row[0] for row in rows], pa.large_binary()),
        pa.array(headers, HEADER_TYPE),
        np.array([row[3] for row in rows], dtype=np.int64),
    ), np.array([row[4] for row in rows], dtype=np.int64)


def decoded(batch: EncodedBatch) -> list[Record]:
    assert batch.header.size_bytes == len(batch.header.pack()) + len(batch.records)
    return list(read_records(batch.header.pack() + bytes(batch.records)))


@given(st.lists(records, max_size=40), st.sampled_from(Codec), st.integers(100, 3000))
def test_records_come_out_as_they_went_in(rows: list[Row], codec: Codec, batch_bytes: int) -> None:
    batches = list(encode(*rows_of(rows), codec, batch_bytes))
    found: dict[int, list[Content]] = {}
    for batch in batches:
        read = decoded(batch)
        assert [record.offset for record in read] == list(range(batch.header.record_count))
        assert batch.header.max_timestamp == max(record.timestamp for record in read)
        assert batch.header.last_offset_delta == len(read) - 1
        found.setdefault(batch.target, []).extend((r.key, r.value, r.headers, r.timestamp) for r in read)
    wanted: dict[int, list[Content]] = {}
    for key, value, headers, timestamp, target in rows:
        wanted.setdefault(target, []).append((key, value, tuple(headers or ()), timestamp))
    assert found == wanted


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=100))
def test_a_batch_is_not_larger_than_asked_unless_one_record_is(values: list[bytes]) -> None:
    rows = RecordRows(pa.array(values, pa.large_binary()), None, None, np.zeros(len(values), dtype=np.int64))
    batches = list(encode(rows, np.zeros(len(values), dtype=np.int64), Codec.NONE, 250))
    assert sum(batch.header.record_count for batch in batches) == len(values)
    for batch in batches:
        assert batch.header.size_bytes <= 250 or batch.header.record_count == 1


def test_a_slice_of_a_column_is_encoded_as_that_slice() -> None:
    values = large_binary(pa.array(["a", None, "ccc", "dd"])).slice(1, 2)
    (batch,) = encode(RecordRows(values, None, None, np.zeros(2, dtype=np.int64)), np.zeros(2, int), Codec.NONE, 1000)
    assert [(record.key, record.value) for record in decoded(batch)] == [(None, None), (None, b"ccc")]


def test_a_header_without_a_key_is_refused() -> None:
    rows, targets = rows_of([(None, b"v", [(None, b"x")], 0, 0)])
    with pytest.raises(SkylogError, match="a header without a key"):
        list(encode(rows, targets, Codec.NONE, 1000))


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_varints_are_those_of_the_record_format(numbers: list[int]) -> None:
    found = rows_of_varints([np.array(numbers, dtype=np.int64), -1]).to_pylist()
    for number, row in zip(numbers, found, strict=True):
        raw = sum((byte & 0x7F) << (7 * index) for index, byte in enumerate(row[:-1]))
        assert (raw >> 1) ^ -(raw & 1) == number
        assert row[-1:] == b"\x01"
        assert [byte >> 7 for byte in row] == [1] * (len(row) - 2) + [0, 0]
