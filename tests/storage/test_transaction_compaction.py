"""Compaction of logs with transactions: aborted records go, markers stay as long as anybody needs them."""

from __future__ import annotations

from pathlib import Path

import pytest

from skylog.errors import ErrorCode, KafkaError
from skylog.records import BatchHeader, Record, build_batch, check_batch, read_marker, read_records
from skylog.storage import Log
from skylog.storage.clean_job import FOLDER
from skylog.storage.cleaner import clean
from skylog.storage.compaction import commit
from tests.present import present
from tests.storage.committed_reader import read_committed
from tests.storage.logs import Home, flush, read_all

RETENTION_MS = 1000


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path, cleanup_policy="compact", min_cleanable_dirty_ratio=0.0001, delete_retention_ms=RETENTION_MS)


class Writer:
    """Writes records in transactions, and compacts."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.log = home.open()
        self.sequences: dict[int, int] = {}

    def write(self, key: bytes, producer_id: int = 7, *, transactional: bool = True) -> int:
        sequence = self.sequences.get(producer_id, 0)
        self.sequences[producer_id] = sequence + 1
        batch = build_batch(
            [Record(key=key, value=b"v")],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=transactional,
        )
        return self.home.append_verified(self.log, batch).base_offset

    def end(self, producer_id: int = 7, *, commits: bool) -> int:
        return self.home.end(self.log, producer_id, commits=commits).base_offset

    def compact(self, max_keys: int = 1000) -> bool:
        """Close the active segment and clean. Return whether there was anything to do."""
        self.log.roll(self.home.clock.now_ms())
        flush(self.log)
        job = self.log.plan_cleaning(self.home.clock.now_ms(), max_keys)
        if job is None:
            return False
        result = clean(job)
        for cleaned in result.segments:
            commit(self.log.directory, cleaned)
            for path in self.log.replace(cleaned):
                path.unlink(missing_ok=True)
        self.log.first_dirty_offset = result.clean_to
        return True

    def dirty(self) -> None:
        """Add something to clean, of another producer."""
        self.write(b"other", 99, transactional=False)

    def reopen_without_snapshots(self) -> Log:
        flush(self.log)
        for path in self.home.files(".snapshot"):
            path.unlink()
        self.log = self.home.open(recovery_point=self.log.log_end_offset)
        return self.log


def offsets_of(log: Log, key: bytes) -> list[int]:
    return [record.offset for batch in read_all(log) for record in read_records(batch) if record.key == key]


def markers_of(log: Log) -> list[int]:
    return [header.base_offset for header in map(BatchHeader.read, read_all(log)) if header.is_control]


def test_an_aborted_record_is_dropped_and_replaces_nothing(home: Home) -> None:
    writer = Writer(home)
    kept = writer.write(b"k")
    writer.end(commits=True)
    writer.write(b"k")
    writer.end(commits=False)
    writer.dirty()
    assert writer.compact()
    assert offsets_of(writer.log, b"k") == [kept]
    assert read_committed(writer.log, 0, 1 << 20)[0] == (kept, b"k")


def test_records_of_an_open_transaction_are_not_cleaned(home: Home) -> None:
    writer = Writer(home)
    kept = writer.write(b"k", 1)
    writer.end(1, commits=True)
    undecided = writer.write(b"k")
    writer.dirty()
    assert not writer.compact()
    assert offsets_of(writer.log, b"k") == [kept, undecided]
    writer.end(commits=False)
    writer.dirty()
    assert writer.compact()
    assert offsets_of(writer.log, b"k") == [kept]


def test_a_transaction_whose_marker_is_in_a_later_segment_is_known_to_be_aborted(home: Home) -> None:
    writer = Writer(home)
    kept = writer.write(b"k", 1)
    writer.end(1, commits=True)
    writer.write(b"k")
    writer.log.roll(0)
    writer.end(commits=False)
    flush(writer.log)
    job = present(writer.log.plan_cleaning(home.clock.now_ms(), 1000))
    assert job.sources[-1].end_offset == writer.log.segments[-1].base_offset
    result = clean(job)
    (cleaned,) = result.segments
    commit(writer.log.directory, cleaned)
    writer.log.replace(cleaned)
    assert offsets_of(writer.log, b"k") == [kept]


def test_a_committed_record_replaces_earlier_ones(home: Home) -> None:
    writer = Writer(home)
    writer.write(b"k")
    kept = writer.write(b"k")
    writer.end(commits=True)
    writer.dirty()
    assert writer.compact()
    assert offsets_of(writer.log, b"k") == [kept]


@pytest.mark.parametrize("commits", [True, False])
def test_a_marker_stays_until_its_batches_are_gone_and_readers_have_had_time(home: Home, commits: bool) -> None:
    writer = Writer(home)
    writer.write(b"k")
    marker = writer.end(commits=commits)
    writer.write(b"k")
    last = writer.end(commits=True)
    writer.dirty()
    assert writer.compact()  # the batches go
    assert markers_of(writer.log) == [marker, last]
    writer.dirty()
    assert writer.compact()  # the marker of a transaction without batches gets the time of its deletion
    assert markers_of(writer.log) == [marker, last]
    (noted,) = (header for header in map(check_batch, read_all(writer.log)) if header.base_offset == marker)
    assert noted.delete_horizon_ms == home.clock.now_ms() + RETENTION_MS
    home.clock.advance_ms(RETENTION_MS - 1)
    writer.dirty()
    assert writer.compact()
    assert markers_of(writer.log) == [marker, last]
    home.clock.advance_ms(1)
    writer.dirty()
    assert writer.compact()
    assert markers_of(writer.log) == [last]


def test_a_marker_stays_while_a_record_of_its_transaction_does(home: Home) -> None:
    """Without it, the transaction would be open again after the state of producers is lost."""
    writer = Writer(home)
    for key in (b"a", b"b"):
        writer.write(key)
        writer.end(commits=True)
    for _ in range(4):
        home.clock.advance_ms(RETENTION_MS)
        writer.dirty()
        assert writer.compact()
    assert markers_of(writer.log) == [1, 3]
    log = writer.reopen_without_snapshots()
    assert log.last_stable_offset == log.log_end_offset
    assert read_committed(log, 0, 1 << 20)[:2] == [(0, b"a"), (2, b"b")]


def test_aborted_records_that_did_not_fit_into_the_map_of_keys_are_still_listed(home: Home) -> None:
    writer = Writer(home)
    writer.write(b"a", 1, transactional=False)
    writer.write(b"b")
    marker = writer.end(commits=False)
    writer.write(b"c")
    writer.end(commits=True)
    writer.dirty()
    assert writer.compact(max_keys=1)
    assert writer.log.first_dirty_offset == 1
    assert offsets_of(writer.log, b"b") == [1]
    assert [(entry.first_offset, entry.last_offset) for entry in writer.log.segments[0].aborted] == [(1, marker)]
    assert (1, b"b") not in read_committed(writer.log, 0, 1 << 20)
    assert writer.compact()
    assert offsets_of(writer.log, b"b") == []


def test_the_last_marker_of_a_producer_without_batches_stays(home: Home) -> None:
    writer = Writer(home)
    home.end(writer.log, commits=False, producer_epoch=5)
    for _ in range(4):
        home.clock.advance_ms(RETENTION_MS)
        writer.dirty()
        assert writer.compact()
    assert present(writer.reopen_without_snapshots().producers.find(7)).epoch == 5


def test_a_marker_keeps_its_content_and_its_time_when_its_deletion_is_noted(home: Home) -> None:
    writer = Writer(home)
    writer.write(b"k")
    marker = writer.end(commits=False)
    writer.write(b"k")
    writer.end(commits=True)
    written_at = home.clock.now_ms()
    home.clock.advance_ms(5000)
    for _ in range(2):
        writer.dirty()
        writer.compact()
    batch = next(batch for batch in read_all(writer.log) if BatchHeader.read(batch).base_offset == marker)
    assert check_batch(batch).delete_horizon_ms is not None
    assert present(read_marker(batch)).commits is False
    assert [record.timestamp for record in read_records(batch)] == [written_at]


def test_the_index_of_a_cleaned_segment_has_no_transaction_without_batches(home: Home) -> None:
    writer = Writer(home)
    writer.write(b"k")
    writer.end(commits=False)
    writer.write(b"k")
    writer.end(commits=True)
    for _ in range(2):
        writer.dirty()
        assert writer.compact()
    assert [entry for segment in writer.log.segments for entry in segment.aborted] == []
    assert home.files(".txnindex") == []


@pytest.mark.parametrize("commits", [True, False])
def test_the_last_sequence_of_a_producer_is_known_without_a_snapshot(home: Home, commits: bool) -> None:
    writer = Writer(home)
    for _ in range(3):
        writer.write(b"k")
    writer.end(commits=commits)
    writer.write(b"k", 1, transactional=False)
    for _ in range(4):
        home.clock.advance_ms(RETENTION_MS)
        writer.dirty()
        writer.compact()
    log = writer.reopen_without_snapshots()
    entry = present(log.producers.find(7))
    assert (entry.last_sequence, entry.transaction_start) == (2, -1)
    assert log.last_stable_offset == log.log_end_offset
    with pytest.raises(KafkaError) as caught:
        home.append_verified(log, build_batch([Record(key=b"k")], producer_id=7, producer_epoch=0, base_sequence=7))
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_marker_that_has_raised_the_epoch_still_fences_without_a_snapshot(home: Home) -> None:
    writer = Writer(home)
    writer.write(b"k")
    home.end(writer.log, commits=True, producer_epoch=5)
    for _ in range(4):
        home.clock.advance_ms(RETENTION_MS)
        writer.write(b"k", 1, transactional=False)
        writer.compact()
    log = writer.reopen_without_snapshots()
    assert present(log.producers.find(7)).epoch == 5
    assert log.last_stable_offset == log.log_end_offset


@pytest.mark.parametrize("lost", ["nothing", "the index of aborted transactions", "all indexes"])
def test_a_crash_in_the_middle_of_a_swap_loses_no_aborted_transaction(home: Home, lost: str) -> None:
    writer = Writer(home)
    writer.write(b"a", 1, transactional=False)
    writer.write(b"b")
    marker = writer.end(commits=False)
    writer.write(b"a", 1, transactional=False)
    writer.log.roll(0)
    flush(writer.log)
    result = clean(present(writer.log.plan_cleaning(home.clock.now_ms(), 1)))
    for cleaned in result.segments:
        commit(writer.log.directory, cleaned)
    if lost != "nothing":
        for path in (writer.log.directory / FOLDER).glob("*.txnindex" if "aborted" in lost else "*index"):
            path.unlink()
    log = home.open(recovery_point=writer.log.log_end_offset)
    assert [(entry.first_offset, entry.last_offset) for entry in log.segments[0].aborted] == [(1, marker)]
    assert [offset for offset, _ in read_committed(log, 0, 1 << 20)] == [0, 3]
    reopened = home.restart(log)
    assert list(reopened.segments[0].aborted) == list(log.segments[0].aborted)


def test_a_topic_with_append_time_keeps_the_time_of_its_markers(tmp_path: Path) -> None:
    home = Home(
        tmp_path,
        cleanup_policy="compact",
        min_cleanable_dirty_ratio=0.0001,
        delete_retention_ms=RETENTION_MS,
        message_timestamp_type="LogAppendTime",
    )
    writer = Writer(home)
    for _ in range(2):
        writer.write(b"k")
        writer.end(commits=False)
    written_at = home.clock.now_ms()
    home.clock.advance_ms(5000)
    for _ in range(2):
        writer.dirty()
        assert writer.compact()
    batch = next(batch for batch in read_all(writer.log) if BatchHeader.read(batch).base_offset == 1)
    assert check_batch(batch).delete_horizon_ms == home.clock.now_ms() + RETENTION_MS
    assert [record.timestamp for record in read_records(batch)] == [written_at]
