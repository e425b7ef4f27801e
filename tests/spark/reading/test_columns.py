"""The vectorised decoder gives the same records as the plain reader of `skylog.records`, for any input."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from skylog.model import TopicPartition
from skylog.records import Codec, InvalidBatchError, Record, build_batch, read_records, record_starts, stamp_append_time
from skylog.spark.reading.batches import batches_in_range, cut, payloads
from skylog.spark.reading.columns import RecordColumns
from skylog.spark.schema import arrow_schema, record_schema

PARTITION = TopicPartition("events", 3)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SCHEMA = arrow_schema(record_schema(with_headers=True))
FOREVER = 2**62


def decode(fetched: bytes | bytearray, start_offset: int = 0, end_offset: int = FOREVER) -> list[dict[str, Any]]:
    view = memoryview(bytearray(fetched))
    headers, positions = cut(view, PARTITION)
    chosen = batches_in_range(headers, start_offset, end_offset)
    columns = RecordColumns(PARTITION, SCHEMA)
    found: list[dict[str, Any]] = []
    if chosen.any():
        for group in payloads(view, headers[chosen], positions[chosen], PARTITION):
            batch = columns.decode(group, start_offset, end_offset)
            batch.validate(full=True)
            found += batch.to_pylist()
    return found


def expected(batch: bytes | bytearray, timestamp_type: int = 0) -> list[dict[str, Any]]:
    return [
        {
            "key": record.key,
            "value": record.value,
            "topic": PARTITION.topic,
            "partition": PARTITION.partition,
            "offset": record.offset,
            "timestamp": EPOCH + timedelta(milliseconds=record.timestamp),
            "timestampType": timestamp_type,
            "headers": [{"key": name, "value": content} for name, content in record.headers] or None,
        }
        for record in read_records(batch)
    ]


def numbered(records: Sequence[Record], base_offset: int, gaps: Sequence[int]) -> list[Record]:
    offset, rows = base_offset, []
    for record, gap in zip(records, gaps, strict=False):
        offset += gap
        rows.append(Record(record.value, record.key, record.timestamp, record.headers, offset))
        offset += 1
    return rows


blobs = st.none() | st.binary(max_size=200)
header_lists = st.lists(st.tuples(st.text(max_size=8), blobs), max_size=4).map(tuple)
records = st.builds(Record, value=blobs, key=blobs, timestamp=st.integers(-(2**40), 2**44), headers=header_lists)
batch_parts = st.tuples(
    st.lists(records, min_size=1, max_size=12),
    st.lists(st.sampled_from([0, 0, 0, 1, 300]), min_size=12, max_size=12),
    st.sampled_from(Codec),
)


@given(st.lists(batch_parts, min_size=1, max_size=5), st.integers(0, 2**45))
def test_any_batches_decode_as_the_plain_reader_reads_them(parts: list[Any], base_offset: int) -> None:
    fetched, rows = bytearray(), []
    for content, gaps, codec in parts:
        numbers = numbered(content, base_offset, gaps)
        batch = build_batch(numbers, base_offset=base_offset, codec=codec)
        fetched += batch
        rows += expected(batch)
        base_offset = numbers[-1].offset + 1
    assert decode(fetched) == rows


@pytest.fixture
def lanes_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes are guessed for few records, too, though that would not pay."""
    monkeypatch.setattr(record_starts, "FEWEST_RECORDS", 0)
    monkeypatch.setattr(record_starts, "FEWEST_LANES", 4)


@pytest.mark.usefixtures("lanes_for_all")
@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize(("sizes", "headers"), [((0, 5), 0), ((90, 110), 0), ((0, 30_000), 1), ((20, 300), 3)])
def test_long_batches_decode_as_the_plain_reader_reads_them(codec: Codec, sizes: tuple[int, int], headers: int) -> None:
    chance = random.Random(7)
    rows = [
        Record(
            value=chance.randbytes(chance.randint(*sizes)),
            key=chance.choice([None, b"", b"k%d" % number]),
            timestamp=1_700_000_000_000 + number * chance.randint(-2, 50),
            headers=tuple((f"h{each}", chance.randbytes(each)) for each in range(chance.randint(0, headers))),
            offset=number,
        )
        for number in range(1, 3000 if sizes[1] < 1000 else 300)
    ]
    batch = build_batch(rows, codec=codec)
    assert decode(batch) == expected(batch)


@pytest.mark.usefixtures("lanes_for_all")
def test_values_that_look_like_records_do_not_mislead_the_lanes() -> None:
    inner = bytes(build_batch([Record(value=b"v" * 20, offset=number) for number in range(1, 40)])[61:])
    chance = random.Random(3)
    rows = [Record(value=inner[chance.randrange(40) :], offset=number) for number in range(1, 2000)]
    batch = build_batch(rows)
    assert decode(batch) == expected(batch)


def test_long_batches_are_read_by_many_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    one_by_one: list[int] = []
    follow_one = record_starts._follow_one

    def follow(raw: memoryview, position: int, stop: int, found: list[int], with_lengths: bool) -> bool:
        before = len(found)
        result = follow_one(raw, position, stop, found, with_lengths)
        one_by_one.append(len(found) - before)
        return result

    monkeypatch.setattr(record_starts, "_follow_one", follow)
    rows = [Record(value=b'{"page": %d}' % number * 8, timestamp=number, offset=number) for number in range(1, 20_000)]
    decode(build_batch(rows))
    assert sum(one_by_one) < 2000


def test_offsets_outside_the_range_are_left_out() -> None:
    batch = build_batch([Record(value=b"%d" % number, offset=number) for number in range(10, 20)], base_offset=10)
    assert [row["offset"] for row in decode(batch, 13, 16)] == [13, 14, 15]
    assert decode(batch, 20, 30) == []


def test_log_append_time_counts_for_all_records_of_the_batch() -> None:
    batch = build_batch([Record(value=b"a", timestamp=5, offset=1), Record(value=b"b", timestamp=9, offset=2)])
    stamp_append_time(batch, 1_700_000_000_000, 0, len(batch))
    assert decode(batch) == expected(batch, timestamp_type=1)


def test_control_batches_are_left_out() -> None:
    control = build_batch([Record(value=b"commit")], control=True)
    assert [row["value"] for row in decode(control + build_batch([Record(value=b"a")], base_offset=1))] == [b"a"]


def test_a_batch_that_compaction_has_emptied_has_no_rows() -> None:
    empty = build_batch([], last_offset_delta=4)
    assert [row["offset"] for row in decode(empty + build_batch([Record(value=b"a")], base_offset=5))] == [5]


def test_an_incomplete_last_batch_is_left_for_the_next_response() -> None:
    whole, cut_off = build_batch([Record(value=b"a")]), build_batch([Record(value=b"b")], base_offset=1)
    assert [row["value"] for row in decode(whole + cut_off[:-1])] == [b"a"]
    assert [row["value"] for row in decode(whole + cut_off[:40])] == [b"a"]


def test_a_flipped_bit_is_found_by_the_crc() -> None:
    batch = build_batch([Record(value=b"value")], base_offset=12)
    batch[-3] ^= 1
    with pytest.raises(InvalidBatchError, match=r"events-3: the batch at offset 12 has CRC"):
        decode(batch)


@pytest.mark.parametrize("magic", [0, 1])
def test_batches_of_ancient_formats_are_refused_by_name(magic: int) -> None:
    batch = build_batch([Record(value=b"value")], base_offset=12)
    batch[16] = magic
    with pytest.raises(InvalidBatchError, match=f"events-3 has a batch of format {magic} at offset 12"):
        decode(batch)


@given(st.binary(min_size=1, max_size=60), st.integers(0, 200))
def test_damage_behind_a_right_crc_is_an_error_or_harmless(noise: bytes, where: int) -> None:
    """A producer may send nonsense under a right CRC: it must not crash, hang or read outside the data."""
    rows = [
        Record(value=b"value %d" % number, key=b"k", headers=(("h", b"x"),), offset=number) for number in range(1, 40)
    ]
    batch = build_batch(rows)
    at = 61 + where
    batch[at : at + len(noise)] = noise[: len(batch) - at]
    damaged = _sealed(batch)
    with contextlib.suppress(InvalidBatchError):
        assert len(decode(damaged)) <= len(rows)


def test_a_header_name_that_is_no_utf8_is_shown_with_replacements() -> None:
    batch = build_batch([Record(value=b"v", headers=(("name", b"x"),), offset=1)])
    at = batch.index(b"name")
    batch[at : at + 4] = b"n\xffme"
    [row] = decode(_sealed(batch))
    assert row["headers"] == [{"key": "n\ufffdme", "value": b"x"}]


def _sealed(batch: bytearray) -> bytearray:
    batch[17:21] = crc32c(memoryview(batch)[21:]).to_bytes(4, "big")
    return batch


def test_columns_come_in_the_order_of_the_schema() -> None:
    schema = pa.schema([SCHEMA.field("offset"), SCHEMA.field("value")])
    view = memoryview(build_batch([Record(value=b"a", offset=4)], base_offset=4))
    headers, positions = cut(view, PARTITION)
    [group] = payloads(view, headers, positions, PARTITION)
    assert RecordColumns(PARTITION, schema).decode(group, 0, FOREVER).to_pylist() == [{"offset": 4, "value": b"a"}]
