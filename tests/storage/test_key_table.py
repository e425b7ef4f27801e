"""The table of keys that compaction uses, compared with a dictionary; and keys with equal hashes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skylog.records import BatchHeader, Codec, Record, build_batch, read_records
from skylog.records.keyed_records import KeyedRecords, read_keyed
from skylog.records.retain import find_spans, open_block
from skylog.storage import cleaner
from skylog.storage.cleaner import clean
from skylog.storage.key_table import HashCollisionError, KeyReader, Keys, KeyTable, Places
from tests.storage.logs import Home, flush, read_all

LIMIT_BYTES = 1 << 20
keys_of_all_sizes = st.one_of(
    st.sampled_from([b"", b"a", b"12345678", b"123456789", b"x" * 64, b"x" * 65, b"x" * 64 + b"y"]),
    st.binary(max_size=80),
)


def records_of(keys: list[bytes | None], codec: Codec = Codec.NONE) -> KeyedRecords:
    batch = build_batch([Record(b"v", key) for key in keys], codec=codec)
    return read_keyed(memoryview(batch), [(0, BatchHeader.read(batch))], LIMIT_BYTES)


def places(numbers: np.ndarray) -> Places:
    return Places(numbers, numbers * 10, numbers * 10 + 9)


def keys_in(records: KeyedRecords, reader: KeyReader) -> tuple[np.ndarray, Keys]:
    rows = np.flatnonzero(records.key_lengths >= 0)
    return rows, reader.read(records, rows)


@given(
    st.lists(st.one_of(st.none(), keys_of_all_sizes), min_size=1),
    st.lists(st.one_of(st.none(), keys_of_all_sizes), min_size=1),
    st.sampled_from([Codec.NONE, Codec.ZSTD]),
    st.binary(min_size=1, max_size=8),
)
def test_the_last_record_of_each_key_is_known(
    first: list[bytes | None], second: list[bytes | None], codec: Codec, salt: bytes
) -> None:
    reader, table = KeyReader(salt), KeyTable()
    parts = [records_of(first, codec), records_of(second, codec)]
    for records in parts:
        rows, keys = keys_in(records, reader)
        table.add(keys, places(rows + (0 if records is parts[0] else len(first))))
    latest = {key: number for number, key in enumerate([*first, *second]) if key is not None}
    assert len(table) == len(latest)
    assert table.records().numbers.tolist() == sorted(latest.values())
    others = records_of([b"another", *first, b"x" * 66])
    rows, keys = keys_in(others, reader)
    asked = [b"another", *first, b"x" * 66]
    assert table.has(keys).tolist() == [asked[row] in latest for row in rows]


@given(st.lists(st.tuples(st.sampled_from(b"abcde"), st.binary(max_size=300)), min_size=1), st.sampled_from(Codec))
def test_a_record_is_found_again_by_its_place(rows: list[tuple[int, bytes]], codec: Codec) -> None:
    batch = build_batch([Record(value, bytes([key])) for key, value in rows], codec=codec)
    records = read_keyed(memoryview(batch), [(0, BatchHeader.read(batch))], LIMIT_BYTES)
    reader, table = KeyReader(b"salt"), KeyTable()
    everything = np.arange(len(records))
    block_at = records.starts[0]
    table.add(reader.read(records, everything), Places(everything, records.begins - block_at, records.ends - block_at))
    block = open_block(batch, BatchHeader.read(batch))
    spans = find_spans(block, len(rows))
    latest = sorted({key: number for number, (key, _) in enumerate(rows)}.values())
    found = table.records()
    expected = [(number, spans[number].start, spans[number].end) for number in latest]
    assert list(zip(found.numbers, found.begins, found.ends, strict=True)) == expected


def test_new_keys_are_those_that_come_for_the_first_time() -> None:
    reader, table = KeyReader(b"salt"), KeyTable()
    known = records_of([b"a", b"b"])
    table.add(keys_in(known, reader)[1], places(np.arange(2)))
    _, keys = keys_in(records_of([b"b", b"c", b"a", b"c", b"d" * 100]), reader)
    assert table.new_keys(keys).tolist() == [False, True, False, False, True]


class Colliding(KeyReader):
    """Gives all keys the same hash."""

    def read(self, records: KeyedRecords, rows: np.ndarray) -> Keys:
        found = super().read(records, rows)
        return Keys(np.zeros_like(found.hashes), found.lengths, found.words)


def test_different_keys_with_one_hash_are_noticed() -> None:
    reader = Colliding(b"salt")
    for keys in ([b"a", b"b"], [b"1234567x", b"1234567y"], [b"a", b"a\0"]):
        records = records_of(list(keys))
        with pytest.raises(HashCollisionError):
            KeyTable().add(keys_in(records, reader)[1], places(np.arange(2)))
    table = KeyTable()
    records = records_of([b"a", b"a"])
    table.add(keys_in(records, reader)[1], places(np.arange(2)))
    other = records_of([b"b"])
    with pytest.raises(HashCollisionError):
        table.add(keys_in(other, reader)[1], places(np.array([2])))
    assert not table.has(keys_in(other, reader)[1]).any()


def test_after_a_collision_the_job_begins_again_with_another_salt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers = iter([Colliding, KeyReader])
    monkeypatch.setattr(cleaner, "KeyReader", lambda salt: next(readers)(salt))
    home = Home(tmp_path, cleanup_policy="compact", min_cleanable_dirty_ratio=0.01)
    log = home.open()
    home.append(log, build_batch([Record(b"%d" % number, b"%d" % (number % 3), 0) for number in range(10)]))
    log.roll(home.clock.now_ms())
    flush(log)
    job = log.plan_cleaning(home.clock.now_ms(), 1000)
    assert job is not None
    assert clean(job).kept_records == 3
    assert next(readers, None) is None
    assert len([record for batch in read_all(log) for record in read_records(batch)]) == 10
