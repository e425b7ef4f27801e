"""Compaction: the last value of each key stays, with its offset; readers and crashes notice nothing."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from skylog.errors import KafkaError
from skylog.records import Codec, Record, build_batch, read_records
from skylog.storage import Log, compaction
from skylog.storage.clean_job import CleanJob
from skylog.storage.cleaner import clean
from skylog.storage.compaction import commit, move_in, swap_path
from tests.storage.logs import Home, flush, header_of, read_all

COMPACT = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0.01}
HOUR_MS = 3_600_000
MANY_KEYS = 100_000

# The documents' fault-tolerant hash table: company to chief executive, in the order it happened.
PUTS = [
    ("microsoft", "bill gates"),
    ("apple", "steve jobs"),
    ("microsoft", "steve ballmer"),
    ("google", "larry page"),
    ("yahoo", "terry semel"),
    ("google", "eric schmidt"),
    ("yahoo", "jerry yang"),
    ("yahoo", "carol bartz"),
    ("apple", "tim cook"),
    ("google", "larry page"),
    ("yahoo", "scott thompson"),
    ("yahoo", "marissa mayer"),
    ("microsoft", "satya nadella"),
]
FINAL_STATE = {
    "microsoft": "satya nadella",
    "apple": "tim cook",
    "google": "larry page",
    "yahoo": "marissa mayer",
}


def put(home: Home, log: Log, *pairs: tuple[bytes, bytes | None], codec: Codec = Codec.NONE) -> None:
    now_ms = home.clock.now_ms()
    home.append(log, build_batch([Record(value, key, now_ms) for key, value in pairs], codec=codec))


def roll_and_flush(home: Home, log: Log) -> None:
    log.roll(home.clock.now_ms())
    flush(log)


def job_for(home: Home, log: Log, max_keys: int = MANY_KEYS) -> CleanJob | None:
    return log.plan_cleaning(home.clock.now_ms(), max_keys)


def compact(home: Home, log: Log, max_keys: int = MANY_KEYS) -> None:
    job = job_for(home, log, max_keys)
    assert job is not None, "nothing was due"
    result = clean(job)
    for cleaned in result.segments:
        commit(log.directory, cleaned)
        for path in log.replace(cleaned):
            path.unlink(missing_ok=True)
    log.first_dirty_offset = result.clean_to


def records_of(log: Log) -> list[Record]:
    return [record for batch in read_all(log) for record in read_records(batch)]


def replay(records: Iterable[Record]) -> dict[bytes, bytes]:
    state: dict[bytes, bytes] = {}
    for record in records:
        assert record.key is not None
        if record.value is None:
            state.pop(record.key, None)
        else:
            state[record.key] = record.value
    return state


def test_the_hash_table_of_the_documents_survives_compaction(tmp_path: Path) -> None:
    home = Home(tmp_path, **COMPACT)
    log = home.open()
    for company, person in PUTS:
        put(home, log, (company.encode(), person.encode()))
    final = {key.encode(): value.encode() for key, value in FINAL_STATE.items()}
    assert replay(records_of(log)) == final
    roll_and_flush(home, log)
    compact(home, log)
    assert replay(records_of(log)) == final
    assert [record.offset for record in records_of(log)] == [8, 9, 11, 12]


@pytest.mark.parametrize("start", range(len(PUTS)))
def test_a_replica_that_has_read_up_to_any_offset_ends_in_the_same_state(tmp_path: Path, start: int) -> None:
    home = Home(tmp_path, **COMPACT)
    log = home.open()
    for company, person in PUTS:
        put(home, log, (company.encode(), person.encode()))
    before = records_of(log)[:start]
    roll_and_flush(home, log)
    compact(home, log)
    after = [record for record in records_of(log) if record.offset >= start]
    assert replay([*before, *after]) == {key.encode(): value.encode() for key, value in FINAL_STATE.items()}


@pytest.mark.parametrize("codec", Codec)
def test_batches_keep_their_codec_and_records_their_offset_and_time(tmp_path: Path, codec: Codec) -> None:
    home = Home(tmp_path, **COMPACT)
    log = home.open()
    put(home, log, (b"a", b"1"), (b"b", b"2"), (b"c", b"3"), codec=codec)
    home.clock.advance_ms(5)
    put(home, log, (b"a", b"4"), codec=codec)
    expected = [record for record in records_of(log) if record.offset != 0]
    roll_and_flush(home, log)
    compact(home, log)
    assert records_of(log) == expected
    assert {header_of(batch).codec for batch in read_all(log)} == {codec}


def test_the_active_segment_is_not_cleaned(tmp_path: Path) -> None:
    home = Home(tmp_path, **COMPACT)
    log = home.open()
    put(home, log, (b"a", b"1"))
    put(home, log, (b"a", b"2"))
    assert job_for(home, log) is None


def test_unflushed_segments_are_not_cleaned(tmp_path: Path) -> None:
    home = Home(tmp_path, **COMPACT)
    log = home.open()
    put(home, log, (b"a", b"1"))
    log.roll(home.clock.now_ms())
    assert job_for(home, log) is None
    flush(log)
    assert job_for(home, log) is not None


def test_nothing_is_cleaned_below_the_dirty_ratio(tmp_path: Path) -> None:
    home = Home(tmp_path, cleanup_policy="compact", min_cleanable_dirty_ratio=0.6)
    log = home.open()
    put(home, log, *((b"%d" % i, b"x" * 100) for i in range(100)))
    roll_and_flush(home, log)
    compact(home, log)
    put(home, log, (b"new", b"y"))
    roll_and_flush(home, log)
    assert job_for(home, log) is None


def test_messages_are_not_cleaned_before_the_minimum_lag(tmp_path: Path) -> None:
    home = Home(tmp_path, min_compaction_lag_ms=HOUR_MS, **COMPACT)
    log = home.open()
    put(home, log, (b"a", b"1"))
    roll_and_flush(home, log)
    assert job_for(home, log) is None
    home.clock.advance_ms(HOUR_MS)
    assert job_for(home, log) is not None


def test_the_maximum_lag_overrides_the_dirty_ratio(tmp_path: Path) -> None:
    home = Home(tmp_path, cleanup_policy="compact", min_cleanable_dirty_ratio=1, max_compaction_lag_ms=HOUR_MS)
    log = home.open()
    put(home, log, *((b"%d" % i, b"x" * 100) for i in range(100)))
    roll_and_flush(home, log)
    compact(home, log)
    put(home, log, (b"new", b"y"))
    roll_and_flush(home, log)
    assert job_for(home, log) is None
    home.clock.advance_ms(HOUR_MS + 1)
    assert job_for(home, log) is not None


def test_tombstones_are_seen_for_their_retention_and_then_go(tmp_path: Path) -> None:
    home = Home(tmp_path, delete_retention_ms=HOUR_MS, **COMPACT)
    log = home.open()
    put(home, log, (b"a", b"1"), (b"b", b"2"))
    put(home, log, (b"a", None))
    roll_and_flush(home, log)
    compact(home, log)
    assert [(record.key, record.value) for record in records_of(log)] == [(b"b", b"2"), (b"a", None)]
    for path in home.files(".log"):
        os.utime(path, (home.clock.now_ms() / 1000, home.clock.now_ms() / 1000))
    put(home, log, (b"c", b"3"))
    roll_and_flush(home, log)
    compact(home, log)
    assert (b"a", None) in [(record.key, record.value) for record in records_of(log)], "too early"
    for path in home.files(".log"):
        os.utime(path, (home.clock.now_ms() / 1000, home.clock.now_ms() / 1000))
    home.clock.advance_ms(HOUR_MS)
    put(home, log, (b"d", b"4"))
    roll_and_flush(home, log)
    compact(home, log)
    assert [record.key for record in records_of(log)] == [b"b", b"c", b"d"]


def test_tombstones_go_although_the_log_is_cleaned_more_often_than_they_are_kept(tmp_path: Path) -> None:
    home = Home(tmp_path, delete_retention_ms=HOUR_MS, **COMPACT)
    log = home.open()
    put(home, log, (b"a", b"1"), (b"b", b"2"))
    put(home, log, (b"a", None))
    roll_and_flush(home, log)
    compact(home, log)
    for number in range(12):
        home.clock.advance_ms(HOUR_MS // 4)
        put(home, log, (b"c", b"%d" % number))
        roll_and_flush(home, log)
        compact(home, log)
        keys = [record.key for record in records_of(log)]
        assert (b"a" in keys) == (number < 3), number
    assert keys == [b"b", b"c"]
    assert len(home.files(".log")) <= 10


def test_a_swap_that_was_left_behind_is_not_finished_by_a_restart(tmp_path: Path) -> None:
    home = Home(tmp_path, **COMPACT)
    log = home.open()
    put(home, log, (b"a", b"1"), (b"a", b"2"))
    roll_and_flush(home, log)
    stale = home.directory / f"{0:020}-{1:020}.swap"
    stale.write_bytes(b"")
    compact(home, log)
    assert not stale.exists()


def test_a_swap_whose_name_is_not_durable_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path, **COMPACT)
    log = home.open()
    put(home, log, (b"a", b"1"), (b"a", b"2"))
    roll_and_flush(home, log)

    def fail(_: Path) -> None:
        raise OSError("broken")

    monkeypatch.setattr(compaction, "sync_directory", fail)
    with pytest.raises(OSError, match="broken"):
        compact(home, log)
    assert not home.files(".swap")
    assert len(records_of(log)) == 2


def test_a_key_map_that_is_too_small_cleans_in_several_rounds(tmp_path: Path) -> None:
    home = Home(tmp_path, **COMPACT)
    log = home.open()
    for value in (b"1", b"2", b"3"):
        for key in range(10):
            put(home, log, (b"%d" % key, value))
    roll_and_flush(home, log)
    rounds = 0
    while job_for(home, log, max_keys=4) is not None:
        compact(home, log, max_keys=4)
        rounds += 1
    assert rounds > 1
    assert replay(records_of(log)) == {b"%d" % key: b"3" for key in range(10)}
    assert len(records_of(log)) == 10


def test_neighbouring_segments_are_merged_up_to_the_segment_size(tmp_path: Path) -> None:
    home = Home(tmp_path, segment_bytes=2000, **COMPACT)
    log = home.open()
    for _ in range(40):
        put(home, log, (b"key", b"v" * 200))
    assert len(log.segments) > 3
    roll_and_flush(home, log)
    compact(home, log)
    compact_again = job_for(home, log)
    assert compact_again is None
    assert replay(records_of(log)) == {b"key": b"v" * 200}
    assert sum(segment.size_bytes for segment in log.segments) < 3000


def test_every_offset_can_still_be_read(tmp_path: Path) -> None:
    home = Home(tmp_path, segment_bytes=500, **COMPACT)
    log = home.open()
    for i in range(50):
        put(home, log, (b"%d" % (i % 3), b"v%d" % i))
    roll_and_flush(home, log)
    compact(home, log)
    kept = [record.offset for record in records_of(log)]
    for offset in range(log.log_end_offset):
        found = log.read(offset, 1)
        assert found is not None
        assert header_of(found.read()).last_offset >= offset
    assert kept == [47, 48, 49]


def test_a_reader_that_holds_a_slice_reads_on(tmp_path: Path) -> None:
    home = Home(tmp_path, **COMPACT)
    log = home.open()
    put(home, log, (b"a", b"1"))
    put(home, log, (b"a", b"2"))
    held = log.read(0, 1 << 20)
    assert held is not None
    before = held.read()
    roll_and_flush(home, log)
    compact(home, log)
    assert held.read() == before


def test_an_idempotent_producer_is_still_known_after_a_crash(tmp_path: Path) -> None:
    home = Home(tmp_path, **COMPACT)
    log = home.open()
    batch = build_batch([Record(b"1", b"a", 1000)], producer_id=7, producer_epoch=0, base_sequence=0)
    home.append(log, bytearray(batch))
    put(home, log, (b"a", b"2"))
    roll_and_flush(home, log)
    compact(home, log)
    for path in home.files(".snapshot"):
        path.unlink()
    reopened = home.open(recovery_point=log.recovery_point)
    assert home.append(reopened, bytearray(batch)).is_duplicate


def test_compact_and_delete_together_do_both(tmp_path: Path) -> None:
    home = Home(tmp_path, cleanup_policy="compact,delete", min_cleanable_dirty_ratio=0.01, retention_ms=HOUR_MS)
    log = home.open()
    put(home, log, (b"a", b"1"))
    put(home, log, (b"a", b"2"))
    roll_and_flush(home, log)
    compact(home, log)
    assert [record.value for record in records_of(log)] == [b"2"]
    home.clock.advance_ms(HOUR_MS + 1)
    log.drop_expired(home.clock.now_ms())
    assert records_of(log) == []


def test_a_range_that_retention_dropped_meanwhile_does_not_come_back(tmp_path: Path) -> None:
    home = Home(tmp_path, cleanup_policy="compact,delete", min_cleanable_dirty_ratio=0.01, retention_ms=HOUR_MS)
    log = home.open()
    put(home, log, (b"a", b"1"))
    roll_and_flush(home, log)
    job = job_for(home, log)
    assert job is not None
    (cleaned,) = clean(job).segments
    home.clock.advance_ms(HOUR_MS + 1)
    log.drop_expired(home.clock.now_ms())
    commit(log.directory, cleaned)
    assert log.replace(cleaned) == [swap_path(log.directory, cleaned)]
    assert log.log_start_offset == 1


@pytest.mark.parametrize("step", ["cleaned", "committed", "old removed", "moved in"])
def test_a_crash_in_the_swap_leaves_old_or_new_but_not_both(tmp_path: Path, step: str) -> None:
    home = Home(tmp_path, segment_bytes=300, **COMPACT)
    log = home.open()
    for i in range(12):
        put(home, log, (b"%d" % (i % 2), b"v%d" % i))
    put(home, log, (b"last", b"v"))
    roll_and_flush(home, log)
    full = records_of(log)
    job = job_for(home, log)
    assert job is not None
    result = clean(job)
    crashed = Home(tmp_path / "crashed", segment_bytes=300, **COMPACT)
    for cleaned in result.segments:
        if step == "cleaned":
            break
        commit(log.directory, cleaned)
        if step == "committed":
            break
        for segment in log.segments:
            if cleaned.base_offset <= segment.base_offset < cleaned.end_offset:
                segment.remove()
        if step == "old removed":
            break
        move_in(log.directory, cleaned)
        break
    crashed.directory.parent.mkdir()
    shutil.copytree(log.directory, crashed.directory)
    reopened = crashed.open(recovery_point=log.recovery_point)
    found = records_of(reopened)
    assert replay(found) == replay(full)
    offsets = [record.offset for record in found]
    assert offsets == sorted(set(offsets)), "something is there twice"
    assert reopened.log_end_offset == log.log_end_offset
    assert not list(crashed.directory.glob("*.swap"))
    assert not (crashed.directory / "cleaning").exists()
    if step == "cleaned":
        assert found == full
    else:
        assert len(found) < len(full)


def test_a_swap_that_fails_stops_the_log_and_the_next_opening_finishes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path, **COMPACT)
    log = home.open()
    for value in (b"1", b"2", b"3"):
        put(home, log, (b"a", value), (b"b", value))
        roll_and_flush(home, log)
    job = job_for(home, log)
    assert job is not None
    [cleaned] = clean(job).segments
    commit(log.directory, cleaned)

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "disk error")

    with monkeypatch.context() as broken:
        broken.setattr("skylog.storage.durable_log.move_in", fail)
        with pytest.raises(OSError, match="disk error"):
            log.replace(cleaned)
    with pytest.raises(KafkaError, match="disk error"):
        put(home, log, (b"a", b"4"))

    assert replay(records_of(home.open())) == {b"a": b"3", b"b": b"3"}


Pair = tuple[bytes, bytes | None]
pairs = st.tuples(st.integers(0, 6).map(lambda n: b"k%d" % n), st.none() | st.binary(max_size=8))
histories = st.lists(
    st.tuples(st.lists(pairs, min_size=1, max_size=5), st.sampled_from(list(Codec)), st.booleans()), max_size=25
)


@given(histories)
@hypothesis_settings(max_examples=60)
def test_compaction_agrees_with_a_dictionary(
    history: list[tuple[list[tuple[bytes, bytes | None]], Codec, bool]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder), segment_bytes=600, **COMPACT)
        log = home.open()
        state: dict[bytes, bytes | None] = {}
        for batch, codec, compacts in history:
            put(home, log, *batch, codec=codec)
            state.update(batch)
            if compacts:
                roll_and_flush(home, log)
                if job_for(home, log) is not None:
                    compact(home, log)
        newest = {record.key: record.value for record in records_of(log)}
        assert newest == state
        offsets = [record.offset for record in records_of(log)]
        assert offsets == sorted(set(offsets))
        reopened = home.restart(log)
        assert {record.key: record.value for record in records_of(reopened)} == state
