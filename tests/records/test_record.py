"""Records inside a batch: round trips, and comparisons with two other libraries."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from skylog.records import (
    HEADER_BYTES,
    BatchHeader,
    Codec,
    InvalidBatchError,
    Record,
    build_batch,
    check_batch,
    read_records,
)
from skylog.records.compression import CompressionError

RECORDS = (
    Record(value=b"value", key=b"key", timestamp=1_700_000_000_000),
    Record(value=None, key=b"tombstone", timestamp=1_700_000_000_500),
    Record(value=b"no key", key=None, timestamp=1_699_999_999_000),
    Record(value=b"", key=b"", timestamp=1_700_000_000_000),
    Record(
        value=b"x" * 70_000,
        headers=(("a", b"1"), ("a", b"2"), ("leer", b""), ("null", None), ("größe", b"\x00\xff")),
        timestamp=1_700_000_000_001,
    ),
)
blobs = st.none() | st.binary(max_size=40)
records = st.builds(
    Record,
    value=blobs,
    key=blobs,
    timestamp=st.integers(0, 2**62),
    headers=st.lists(st.tuples(st.text(max_size=8), blobs), max_size=3).map(tuple),
)


def numbered(rows: Sequence[Record], base_offset: int = 0) -> list[Record]:
    return [
        Record(row.value, row.key, row.timestamp, row.headers, offset) for offset, row in enumerate(rows, base_offset)
    ]


@given(
    st.lists(records, min_size=1, max_size=8),
    st.sampled_from(list(Codec)),
    st.integers(0, 2**60),
)
def test_what_is_built_is_read(rows: list[Record], codec: Codec, base_offset: int) -> None:
    batch = build_batch(rows, codec=codec, base_offset=base_offset)
    header = check_batch(batch)
    assert header.size_bytes == len(batch)
    assert header.max_timestamp == max(row.timestamp for row in rows)
    assert list(read_records(batch)) == numbered(rows, base_offset)


@given(st.binary(max_size=200), st.sampled_from([0, 1, 2, 3, 4, 5, 7]), st.integers(-1, 20))
def test_any_bytes_as_records_give_records_or_the_declared_errors(body: bytes, codec: int, count: int) -> None:
    header = BatchHeader(0, HEADER_BYTES - 12 + len(body), 0, 2, 0, codec, 19, 0, 0, -1, -1, -1, count)
    with contextlib.suppress(InvalidBatchError, CompressionError):
        list(read_records(header.pack() + body))


def test_records_that_were_left_out_by_compaction_keep_their_offsets() -> None:
    kept = [Record(value=b"a", offset=103), Record(value=b"b", offset=107)]
    batch = build_batch(kept, base_offset=100, last_offset_delta=9)
    assert check_batch(batch).end_offset == 110
    assert [record.offset for record in read_records(batch)] == [103, 107]


def with_body(body: bytes, count: int) -> bytes:
    return BatchHeader(0, HEADER_BYTES - 12 + len(body), 0, 2, 0, 0, count - 1, 0, 0, -1, -1, -1, count).pack() + body


RECORD = bytes.fromhex("0e 00 00 00 01 02 78 00".replace(" ", ""))  # length 7: no key, value "x", no headers


def test_the_smallest_record_by_hand_is_read() -> None:
    assert [record.value for record in read_records(with_body(RECORD, 1))] == [b"x"]


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (RECORD, 2),  # fewer records than promised
        (RECORD + RECORD, 1),  # more
        (RECORD + b"\0", 1),  # bytes behind the last
        (RECORD[:-1], 1),  # cut
        (b"\x10" + RECORD[1:] + b"\0", 1),  # a record longer than its fields
        (b"\x0c" + RECORD[1:], 1),  # shorter
        (b"\x01", 1),  # of negative length
        (b"\xff" * 11, 1),  # a varint that does not end
        (bytes.fromhex("0e000000010278 01".replace(" ", "")), 1),  # minus one header
        (bytes.fromhex("14000000010278 02 01 00 00".replace(" ", "")), 1),  # a header without a name
        (bytes.fromhex("18000000010278 02 02 ff 01 00".replace(" ", "")), 1),  # a header name that is not UTF-8
        (bytes.fromhex("16000000010278 feffffff0f".replace(" ", "")), 1),  # two thousand million headers
        (bytes.fromhex("0e000000010478 00".replace(" ", "")), 1),  # a value that leaves its record
    ],
)
def test_lying_counts_and_lengths_inside_a_batch_are_refused(body: bytes, count: int) -> None:
    with pytest.raises(InvalidBatchError):
        list(read_records(with_body(body, count)))


def test_a_batch_without_a_header_is_refused() -> None:
    with pytest.raises(InvalidBatchError):
        list(read_records(b"\0" * (HEADER_BYTES - 1)))


# -- codecs of other libraries


def aiokafka_view(batch: bytes) -> list[Record]:
    other = AioBatch(batch)
    assert other.validate_crc()
    return [Record(r.value, r.key, r.timestamp, tuple(map(tuple, r.headers)), r.offset) for r in other]


def kafka_python_view(batch: bytes) -> list[Record]:
    other = KafkaPythonBatch(bytearray(batch))
    assert other.validate_crc()
    return [Record(r.value, r.key, r.timestamp, tuple(map(tuple, r.headers)), r.offset) for r in other]


@pytest.mark.parametrize("codec", list(Codec))
def test_aiokafka_reads_what_is_built(codec: Codec) -> None:
    assert aiokafka_view(bytes(build_batch(RECORDS, codec=codec, base_offset=42))) == numbered(RECORDS, 42)


@pytest.mark.parametrize("codec", list(Codec))
def test_what_aiokafka_builds_is_read(codec: Codec) -> None:
    builder = AioBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=0,
        producer_id=7,
        producer_epoch=1,
        base_sequence=30,
        batch_size=1 << 20,
    )
    for offset, row in enumerate(RECORDS):
        builder.append(offset, row.timestamp, row.key, row.value, list(row.headers))
    batch = bytes(builder.build())
    header = check_batch(batch)
    assert (header.codec, header.producer_id, header.producer_epoch, header.base_sequence) == (codec, 7, 1, 30)
    assert (header.record_count, header.last_offset_delta) == (len(RECORDS), len(RECORDS) - 1)
    assert list(read_records(batch)) == numbered(RECORDS)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_kafka_python_reads_what_is_built_and_the_other_way_round(codec: Codec) -> None:
    assert kafka_python_view(bytes(build_batch(RECORDS, codec=codec))) == numbered(RECORDS)
    builder = KafkaPythonBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for offset, row in enumerate(RECORDS):
        builder.append(offset, row.timestamp, row.key, row.value, list(row.headers))
    batch = bytes(builder.build())
    check_batch(batch)
    assert list(read_records(batch)) == numbered(RECORDS)


def test_a_batch_without_compression_has_the_bytes_of_other_libraries() -> None:
    builder = AioBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for offset, row in enumerate(RECORDS):
        builder.append(offset, row.timestamp, row.key, row.value, list(row.headers))
    theirs = bytearray(builder.build())
    ours = build_batch(RECORDS)
    theirs[12:16] = ours[12:16]  # the broker writes the leader epoch
    assert ours == theirs
