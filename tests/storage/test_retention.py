"""Dropping old segments: whole files, from the oldest on, under readers that are still sending them."""

from __future__ import annotations

from pathlib import Path

import pytest

from skylog.errors import ErrorCode, KafkaError
from skylog.storage import Log
from tests.present import present
from tests.storage.logs import Home, a_batch, flush, read_all


def dated(home: Home, count: int = 20) -> Log:
    """A log with one record each ten milliseconds up to now."""
    log = home.open()
    for _ in range(count):
        home.clock.advance_ms(10)
        home.append(log, a_batch(timestamp=home.clock.now_ms()))
    return log


def test_segments_whose_newest_record_is_too_old_are_dropped(tmp_path: Path) -> None:
    home = Home(tmp_path, segment_bytes=400, retention_ms=100)
    log = dated(home)
    bases = [segment.base_offset for segment in log.segments]
    assert log.drop_expired(home.clock.now_ms()) != []
    kept = [base for base in bases if base >= log.log_start_offset]
    assert 1 < len(kept) < len(bases)
    assert [segment.base_offset for segment in log.segments] == kept
    assert log.log_start_offset == kept[0]
    oldest_ms = home.clock.now_ms() - 100
    assert log.segments[0].newest_ms() >= oldest_ms
    assert [path.name for path in home.files(".log")] == [f"{base:020d}.log" for base in kept]
    assert len(read_all(log)) == 20 - kept[0]


def test_only_the_paths_to_unlink_are_left_of_dropped_segments(tmp_path: Path) -> None:
    home = Home(tmp_path, segment_bytes=400, retention_ms=100)
    log = dated(home)
    paths = log.drop_expired(home.clock.now_ms())
    assert all(path.exists() for path in paths)
    for path in paths:
        path.unlink()
    names = {path.stem for path in home.files(".log")}
    assert {path.stem for path in home.files("index")} <= names
    assert home.files(".deleted") == []


def test_oldest_segments_beyond_the_size_are_dropped(tmp_path: Path) -> None:
    home = Home(tmp_path, segment_bytes=400, retention_bytes=1000, retention_ms=-1)
    log = dated(home)
    first_bytes = log.segments[0].size_bytes
    log.drop_expired(home.clock.now_ms())
    assert 1000 <= log.size_bytes < 1000 + first_bytes
    assert log.drop_expired(home.clock.now_ms()) == []


def test_the_active_segment_is_rolled_and_dropped_when_all_is_expired(tmp_path: Path) -> None:
    home = Home(tmp_path, segment_bytes=400, retention_ms=100)
    log = dated(home)
    home.clock.advance_ms(1000)
    log.drop_expired(home.clock.now_ms())
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (20, 20, 0)
    assert [path.name for path in home.files(".log")] == ["00000000000000000020.log"]
    assert log.drop_expired(home.clock.now_ms()) == []
    assert home.append(log, a_batch()).base_offset == 20
    assert len(read_all(log)) == 1


def test_nothing_is_dropped_without_the_policy_for_it(tmp_path: Path) -> None:
    home = Home(tmp_path, segment_bytes=400, retention_ms=100, cleanup_policy="compact")
    log = dated(home)
    home.clock.advance_ms(1000)
    assert log.drop_expired(home.clock.now_ms()) == []


def test_records_without_a_time_are_as_old_as_their_file(tmp_path: Path) -> None:
    home = Home(tmp_path, retention_ms=1000)
    log = home.open()
    home.append(log, a_batch(timestamp=-1))
    written_ms = int(home.files(".log")[0].stat().st_mtime * 1000)
    assert log.drop_expired(written_ms + 900) == []
    assert log.drop_expired(written_ms + 1100) != []


def test_a_reader_that_holds_a_slice_reads_on_after_the_file_is_gone(tmp_path: Path) -> None:
    home = Home(tmp_path, segment_bytes=400, retention_ms=100)
    log = dated(home)
    first, last = log.read(0, 10_000), log.read(19, 10_000)
    before = present(first).read(), present(last).read()
    home.clock.advance_ms(1000)
    for path in log.drop_expired(home.clock.now_ms()):
        path.unlink()
    assert (present(first).read(), present(last).read()) == before
    with pytest.raises(KafkaError) as caught:
        log.read(0, 1000)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_deleted_records_are_out_of_range_at_once_and_their_segments_go_later(home: Home) -> None:
    log = dated(home)
    log.delete_records(13)
    assert log.log_start_offset == 13
    with pytest.raises(KafkaError):
        log.read(12, 1000)
    log.drop_expired(home.clock.now_ms())
    assert log.log_start_offset == 13
    assert log.segments[0].base_offset <= 13 < log.segments[1].base_offset
    log.delete_records(5)
    assert log.log_start_offset == 13


def test_records_that_do_not_exist_yet_cannot_be_deleted(home: Home) -> None:
    log = dated(home)
    with pytest.raises(KafkaError) as caught:
        log.delete_records(21)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_crash_before_the_files_are_unlinked_brings_nothing_back(tmp_path: Path) -> None:
    home = Home(tmp_path, segment_bytes=400, retention_ms=100)
    log = dated(home)
    flush(log)
    log.drop_expired(home.clock.now_ms())
    assert home.files(".deleted") != []
    reopened = home.open(recovery_point=20)
    assert reopened.log_start_offset == log.log_start_offset
    assert home.files(".deleted") == []
    assert read_all(reopened) == read_all(log)


def test_retention_on_a_disk_without_room_for_a_new_segment_drops_the_others(tmp_path: Path) -> None:
    home = Home(tmp_path, segment_bytes=400, retention_ms=100)
    log = dated(home)
    home.clock.advance_ms(1000)
    blocker = home.directory / "00000000000000000020.log"
    blocker.mkdir()  # simulates a file that cannot be created
    last = log.segments[-1].base_offset
    log.drop_expired(home.clock.now_ms())
    assert (log.log_start_offset, log.log_end_offset) == (last, 20)
    blocker.rmdir()
    assert home.append(log, a_batch(timestamp=home.clock.now_ms())).base_offset == 20
    assert len(read_all(log)) == log.log_end_offset - log.log_start_offset
