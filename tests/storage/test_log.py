"""Appending, rolling and reading: each batch is read back whole, at its offset."""

from __future__ import annotations

import gc
import os
import weakref
from pathlib import Path

import pytest

from skylog.errors import ErrorCode, KafkaError
from skylog.records import BatchHeader, Codec, Record, build_batch, check_batch, read_records
from skylog.records.batch import CRC_START, HEADER_BYTES
from skylog.records.checksum import crc32c
from skylog.storage import Log
from skylog.storage.admission import RejectedRecordsError
from tests.present import present
from tests.storage.logs import Home, a_batch, flush, header_of, idempotent, read_all, split


def fill(home: Home, count: int = 40) -> tuple[Log, list[bytes]]:
    """A log of batches of one to three records, and the batches as they must be read back."""
    log = home.open()
    stored = []
    for number in range(count):
        batch = a_batch(1 + number % 3, 10 + number % 7, timestamp=1000 + number)
        home.append(log, batch)
        stored.append(bytes(batch))
    return log, stored


def test_segments_are_named_by_their_base_offset_in_twenty_digits(home: Home) -> None:
    log, _ = fill(home)
    bases = [segment.base_offset for segment in log.segments]
    assert len(bases) > 3
    assert [path.name for path in home.files(".log")] == [f"{base:020d}.log" for base in bases]


def test_a_batch_gets_the_next_offset_and_the_leaders_epoch(home: Home) -> None:
    log = home.open()
    assert home.append(log, a_batch(3)).base_offset == 0
    result = home.append(log, a_batch(2), epoch=5)
    assert (result.base_offset, result.end_offset, result.log_append_time) == (3, 5, -1)
    header = header_of(read_all(log)[1])
    assert (header.base_offset, header.partition_leader_epoch) == (3, 5)


def test_every_offset_is_answered_by_the_batch_that_holds_it(home: Home) -> None:
    log, stored = fill(home)
    for opening in (lambda: log, home.open, lambda: home.restart(home.open())):
        opened = opening()
        for batch in stored:
            header = header_of(batch)
            for offset in range(header.base_offset, header.end_offset):
                assert present(opened.read(offset, 1)).read() == batch


@pytest.mark.parametrize("max_bytes", [0, 1, 90, 200, 350, 10_000])
def test_reads_that_follow_one_another_give_the_whole_log_once(home: Home, max_bytes: int) -> None:
    log, stored = fill(home)
    assert read_all(log, max_bytes) == stored
    assert read_all(home.restart(log), max_bytes) == stored


@pytest.mark.parametrize("max_bytes", [0, 90, 200, 350])
def test_a_read_keeps_to_its_limit_except_for_a_first_batch(home: Home, max_bytes: int) -> None:
    log, stored = fill(home)
    for batch in stored:
        found = log.read(header_of(batch).base_offset, max_bytes)
        assert present(found).length <= max_bytes or len(split(present(found).read())) == 1


def test_a_batch_larger_than_the_limit_is_omitted_unless_one_is_required(home: Home) -> None:
    log = home.open()
    home.append(log, a_batch(1, 200))
    assert present(log.read(0, 50, at_least_one=True)).length > 200
    assert present(log.read(0, 50, at_least_one=False)).length == 0


def test_a_read_at_the_end_of_the_log_is_empty_and_other_offsets_are_out_of_range(home: Home) -> None:
    log, _ = fill(home)
    log.delete_records(5)
    assert log.read(log.log_end_offset, 1000) is None
    for offset in (-1, 0, 4, log.log_end_offset + 1):
        with pytest.raises(KafkaError) as caught:
            log.read(offset, 1000)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_batch_larger_than_a_segment_gets_one_of_its_own(home: Home) -> None:
    log = home.open()
    batches = [a_batch(1, 20), a_batch(1, 5000), a_batch(1, 20)]
    for batch in batches:
        home.append(log, batch)
    assert [segment.base_offset for segment in log.segments] == [0, 1, 2]
    assert read_all(log) == [bytes(batch) for batch in batches]


def test_a_segment_rolls_when_its_time_is_over(tmp_path: Path) -> None:
    home = Home(tmp_path, segment_ms=1000)
    log = home.open()
    home.clock.advance_ms(5000)
    home.append(log, a_batch())  # an empty segment has no age
    home.clock.advance_ms(999)
    home.append(log, a_batch())
    assert len(log.segments) == 1
    home.clock.advance_ms(1)
    home.append(log, a_batch())
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_jitter_only_shortens_the_time_of_a_segment(tmp_path: Path) -> None:
    home = Home(tmp_path, segment_ms=1000, segment_jitter_ms=1000)
    log = home.open()
    home.append(log, a_batch())
    home.clock.advance_ms(1000)
    home.append(log, a_batch())
    assert len(log.segments) == 2


def test_a_segment_rolls_when_an_index_is_full(tmp_path: Path) -> None:
    home = Home(tmp_path, segment_index_bytes=32, index_interval_bytes=0)
    log = home.open()
    for number in range(20):
        home.append(log, a_batch(timestamp=number))
    assert len(log.segments) > 5
    assert len(read_all(log)) == 20


def test_rolling_an_empty_segment_does_nothing(home: Home) -> None:
    log = home.open()
    log.roll(home.clock.now_ms())
    assert len(log.segments) == 1


def test_log_append_time_is_written_into_the_batch_and_returned(tmp_path: Path) -> None:
    home = Home(tmp_path, message_timestamp_type="LogAppendTime")
    log = home.open()
    result = home.append(log, a_batch(2))
    assert result.log_append_time == home.clock.now_ms()
    (batch,) = read_all(log)
    check_batch(batch)
    assert {record.timestamp for record in read_records(batch)} == {home.clock.now_ms()}


@pytest.mark.parametrize(
    ("compression_type", "codec"), [("gzip", Codec.GZIP), ("zstd", Codec.ZSTD), ("uncompressed", Codec.NONE)]
)
def test_a_topic_with_its_own_codec_recompresses(tmp_path: Path, compression_type: str, codec: Codec) -> None:
    home = Home(tmp_path, compression_type=compression_type)
    log = home.open()
    home.append(log, a_batch(2))
    home.append(log, a_batch(3, codec=Codec.LZ4))
    batches = read_all(log)
    assert [header_of(batch).codec for batch in batches] == [codec, codec]
    assert [record.offset for batch in batches for record in read_records(batch)] == [0, 1, 2, 3, 4]


def refused(home: Home, batch: bytearray) -> ErrorCode:
    log = home.open()
    with pytest.raises(KafkaError) as caught:
        home.append(log, batch)
    assert log.log_end_offset == 0
    assert log.size_bytes == 0
    return caught.value.code


def test_a_batch_with_a_flipped_bit_is_corrupt(home: Home) -> None:
    batch = a_batch()
    batch[-1] ^= 1
    assert refused(home, batch) is ErrorCode.CORRUPT_MESSAGE


def test_two_batches_at_once_are_refused(home: Home) -> None:
    assert refused(home, a_batch() + a_batch()) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("records", [[], [Record(value=b"v")]])
def test_counts_that_do_not_match_the_offsets_are_refused(home: Home, records: list[Record]) -> None:
    assert refused(home, build_batch(records, last_offset_delta=4)) is ErrorCode.INVALID_RECORD


def test_clients_may_not_write_control_batches_or_transactional_ones_outside_of_a_transaction(home: Home) -> None:
    assert refused(home, build_batch([Record()], control=True)) is ErrorCode.INVALID_RECORD
    assert refused(home, build_batch([Record()], transactional=True)) is ErrorCode.INVALID_RECORD
    without_sequence = build_batch([Record()], transactional=True, producer_id=1, producer_epoch=0)
    assert refused(home, without_sequence) is ErrorCode.INVALID_RECORD
    unverified = build_batch([Record()], transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
    assert refused(home, unverified) is ErrorCode.INVALID_TXN_STATE


def test_a_batch_that_is_too_large_is_refused(tmp_path: Path) -> None:
    assert refused(Home(tmp_path, max_message_bytes=100), a_batch(1, 100)) is ErrorCode.MESSAGE_TOO_LARGE


def test_a_compacted_topic_names_the_records_without_a_key(tmp_path: Path) -> None:
    log = Home(tmp_path, cleanup_policy="compact").open()
    batch = build_batch([Record(value=b"v", key=b"k"), Record(value=b"v"), Record(value=b"v")], codec=Codec.ZSTD)
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(batch, 0, 0)
    assert caught.value.code is ErrorCode.INVALID_RECORD
    assert isinstance(caught.value, RejectedRecordsError)
    assert list(caught.value.records) == [1, 2]


def test_offset_deltas_with_gaps_are_refused_if_batches_are_opened(tmp_path: Path) -> None:
    records = [Record(value=b"v", key=b"k", offset=offset) for offset in (0, 2, 2)]
    batch = build_batch(records, last_offset_delta=2)
    assert refused(Home(tmp_path, cleanup_policy="compact"), batch) is ErrorCode.INVALID_RECORD


def test_times_far_from_the_brokers_clock_are_refused_if_the_topic_limits_them(tmp_path: Path) -> None:
    bounds = {"message_timestamp_after_max_ms": 100, "message_timestamp_before_max_ms": 200}
    home = Home(tmp_path, **bounds)
    now_ms = home.clock.now_ms()
    assert refused(home, a_batch(timestamp=now_ms + 101)) is ErrorCode.INVALID_TIMESTAMP
    assert refused(home, a_batch(timestamp=now_ms - 201)) is ErrorCode.INVALID_TIMESTAMP
    log = home.open()
    home.append(log, a_batch(timestamp=now_ms + 100))
    home.append(log, a_batch(timestamp=now_ms - 200))


# -- flushing


def test_every_append_requires_a_flush_if_each_message_must_be_on_disk(tmp_path: Path) -> None:
    home = Home(tmp_path, flush_messages=1)
    log = home.open()
    assert home.append(log, a_batch()).must_flush
    flush(log)
    assert log.recovery_point == 1
    assert home.append(log, a_batch()).must_flush


def test_a_flush_is_required_after_flush_messages(tmp_path: Path) -> None:
    home = Home(tmp_path, flush_messages=5)
    log = home.open()
    assert [home.append(log, a_batch(2)).must_flush for _ in range(3)] == [False, False, True]
    flush(log)
    assert [home.append(log, a_batch(2)).must_flush for _ in range(3)] == [False, False, True]


def test_the_time_of_the_oldest_unflushed_message_is_known(home: Home) -> None:
    log = home.open()
    assert log.unflushed_since_ms is None
    first_ms = home.clock.now_ms()
    home.append(log, a_batch())
    home.clock.advance_ms(10)
    home.append(log, a_batch())
    assert log.unflushed_since_ms == first_ms
    flush(log)
    assert log.unflushed_since_ms is None


def test_a_flush_covers_the_batches_appended_before_it_began(home: Home) -> None:
    log, _ = fill(home)
    end_offset = log.log_end_offset
    assert log.has_unflushed_segments
    task = log.begin_flush()
    home.append(log, a_batch())
    task.run()
    log.end_flush(task)
    assert log.recovery_point == end_offset
    assert not log.has_unflushed_segments
    assert log.unflushed_since_ms is not None


def test_flushed_batches_survive_a_power_cut_and_the_others_leave_no_gap(home: Home) -> None:
    log, stored = fill(home, 20)
    flush(log)
    flushed = log.log_end_offset
    for _ in range(20):
        home.append(log, a_batch())
    home.disk.lose_unsynced()
    reopened = home.open(recovery_point=flushed)
    assert reopened.log_end_offset == flushed
    assert read_all(reopened) == stored


def test_a_failed_fsync_ends_appends_but_not_reads(home: Home) -> None:
    log, stored = fill(home)
    home.disk.failing.add("sync")
    task = log.begin_flush()
    with pytest.raises(OSError) as error:  # noqa: PT011  # which error it is does not matter
        task.run()
    log.end_flush(task, error.value)
    home.disk.failing.clear()
    assert log.recovery_point == 0
    with pytest.raises(KafkaError) as caught:
        home.append(log, a_batch())
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert read_all(log) == stored


def test_a_resent_batch_waits_for_the_fsync_that_its_original_demanded(tmp_path: Path) -> None:
    home = Home(tmp_path, flush_messages=3)
    log = home.open()
    assert home.append(log, idempotent(0, 3)).must_flush
    task = log.begin_flush()
    again = home.append(log, idempotent(0, 3))
    assert (again.is_duplicate, again.must_flush) == (True, True)
    task.run()
    log.end_flush(task)
    assert not home.append(log, idempotent(0, 3)).must_flush


def test_what_a_crash_of_the_process_has_left_is_on_disk_before_anyone_sees_it(tmp_path: Path) -> None:
    home = Home(tmp_path, flush_messages=1)
    home.append(home.open(), a_batch(3))
    opened = home.open()
    assert (opened.log_end_offset, opened.recovery_point) == (3, 3)
    home.append(opened, a_batch())
    home.disk.failing.add("sync")
    with pytest.raises(OSError, match="Input/output"):
        home.open()


def huge(offset: int) -> bytes:
    """A compressed batch that claims as many records as possible. Only its header is checked when it is appended."""
    batch = bytearray(a_batch(3, codec=Codec.GZIP))
    header = BatchHeader.read(batch)._replace(
        base_offset=offset, last_offset_delta=0x7FFFFFFE, record_count=0x7FFFFFFF, partition_leader_epoch=0
    )
    batch[:HEADER_BYTES] = header.pack()
    header = header._replace(crc=crc32c(memoryview(batch)[CRC_START:]))
    batch[:HEADER_BYTES] = header.pack()
    return bytes(batch)


def test_offsets_beyond_an_index_entry_are_not_written_in_one_run(tmp_path: Path) -> None:
    home = Home(tmp_path, index_interval_bytes=1)
    log = home.open()
    home.append(log, a_batch())
    rows, batches, offset = [], [], 1
    for _ in range(4):
        batch = huge(offset)
        batches.append(batch)
        rows.append((len(batch), offset, 1000))
        offset += 0x7FFFFFFF
    assert not log.append_run(batches, sum(map(len, batches)), rows, offset, home.clock.now_ms())
    assert log.log_end_offset == 1
    log.append_as_follower(memoryview(bytearray(b"".join(batches))), 0, home.clock.now_ms())
    assert log.log_end_offset == offset
    home.append(log, a_batch())
    found = log.read(offset, 1 << 20)
    assert found is not None
    assert header_of(found.read()).base_offset == offset


def test_an_index_that_cannot_be_read_is_not_used(home: Home) -> None:
    log, _ = fill(home)
    log = home.restart(log)
    path = home.files(".index")[0]
    os.truncate(path, 8)
    assert not log.segments[0].has_intact_indexes()


def test_a_new_log_syncs_its_name_with_its_first_flush(home: Home) -> None:
    log = home.open()
    home.append(log, a_batch())
    assert log.begin_flush().directories == [home.directory.parent, home.directory]
    assert log.begin_flush().directories == []


def test_a_segment_that_begins_where_all_is_flushed_still_has_its_name_synced(home: Home) -> None:
    log = home.open()
    home.append(log, a_batch())
    flush(log)
    log.roll(home.clock.now_ms())
    home.append(log, a_batch(), epoch=3)
    task = log.begin_flush()
    assert task.directories == [home.directory]
    assert task.side_files == [home.directory / "leader-epoch-checkpoint"]


def test_retention_while_a_flush_runs_does_not_fail_the_flush(home: Home) -> None:
    log, _ = fill(home)
    task = log.begin_flush()
    log.delete_records(log.log_end_offset)
    for path in log.drop_expired(home.clock.now_ms()):
        path.unlink()
    task.run()
    log.end_flush(task)
    assert log.failure is None
    assert log.recovery_point == log.log_end_offset


def test_a_log_is_freed_without_the_garbage_collector(home: Home) -> None:
    log, _ = fill(home)
    flush(log)
    read_all(log)
    log.find_time(1010)
    freed = weakref.ref(log)
    gc.disable()
    try:
        del log
        assert freed() is None
    finally:
        gc.enable()
