"""Disks that are full, broken or slow: an error for the producer, and no half-written batches for readers."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from queue import SimpleQueue

import pytest

from skylog.errors import ErrorCode, KafkaError
from skylog.storage import FlushTask, Log
from skylog.storage.index import SPILL_COUNT
from tests.present import present
from tests.storage.logs import Home, a_batch, flush, idempotent, read_all


def fails(home: Home, log: Log, batch: bytearray) -> None:
    end_offset, stored = log.log_end_offset, read_all(log)
    with pytest.raises(KafkaError) as caught:
        home.append(log, batch)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.log_end_offset == end_offset
    assert read_all(log) == stored


def test_a_disk_that_fills_up_at_any_byte_refuses_the_batch_and_takes_it_later(home: Home) -> None:
    log = home.open()
    home.append(log, a_batch())
    batch = a_batch(2)
    for free_bytes in range(len(batch)):
        home.disk.free_bytes = free_bytes
        fails(home, log, a_batch(2))
        assert home.files(".log")[-1].stat().st_size == log.segments[-1].size_bytes
    home.disk.free_bytes = len(batch)
    assert home.append(log, batch).base_offset == 1
    home.disk.free_bytes = None
    home.append(log, a_batch())
    assert len(read_all(log)) == 3
    assert read_all(home.open()) == read_all(log)


@pytest.mark.parametrize("longest", [1, 7, 60])
def test_short_writes_are_completed(home: Home, longest: int) -> None:
    home.disk.longest_write_bytes = longest
    log = home.open()
    batches = [a_batch(2) for _ in range(8)]
    for batch in batches:
        home.append(log, batch)
    assert read_all(log) == [bytes(batch) for batch in batches]
    assert read_all(home.restart(log)) == [bytes(batch) for batch in batches]


def test_a_write_error_refuses_the_batch_and_the_next_one_gets_its_offset(home: Home) -> None:
    log = home.open()
    for _ in range(3):
        home.append(log, a_batch())
        home.disk.failing.add("write")
        fails(home, log, a_batch())
        home.disk.failing.clear()
    assert home.append(log, a_batch()).base_offset == 3
    assert len(read_all(log)) == 4


def test_a_disk_that_fails_while_the_end_of_a_read_is_looked_for_is_a_storage_error(tmp_path: Path) -> None:
    home = Home(tmp_path)
    log = home.open()
    for number in range(20):
        home.append(log, a_batch(timestamp=number))
    log = home.restart(log)
    assert len(read_all(log)) == 20  # which checks the batches
    home.disk.failing.add("read")
    with pytest.raises(KafkaError) as caught:
        log.read(0, 10_000, end_offset=10)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    home.disk.failing.clear()
    assert present(log.read(0, 10_000, end_offset=10)).length < present(log.read(0, 10_000)).length


def test_a_read_error_is_raised_and_the_next_read_succeeds(home: Home) -> None:
    log = home.open()
    for number in range(20):
        home.append(log, a_batch(timestamp=number))
    log = home.restart(log)
    home.disk.failing.add("read")
    for question in (lambda: log.read(0, 100), lambda: log.read(19, 100), lambda: log.find_time(5)):
        with pytest.raises(KafkaError) as caught:
            question()
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    home.disk.failing.clear()
    assert len(read_all(log)) == 20
    assert present(log.find_time(5)).offset == 5


def test_a_log_without_room_for_the_next_segment_goes_on_with_the_old_one_later(home: Home) -> None:
    log = home.open()
    while log.segments[-1].size_bytes + len(a_batch()) <= 600:
        home.append(log, a_batch())
    blocker = home.directory / f"{log.log_end_offset:020d}.log"
    blocker.mkdir()  # simulates a file that cannot be created
    for _ in range(3):
        fails(home, log, a_batch())
    assert len(log.segments) == 1
    blocker.rmdir()
    assert home.append(log, a_batch()).base_offset == int(blocker.stem)
    assert len(log.segments) == 2
    assert read_all(home.open()) == read_all(log)


def test_a_snapshot_or_index_that_cannot_be_written_does_not_stop_a_roll(home: Home) -> None:
    log = home.open()
    sequence = 0
    while log.segments[-1].size_bytes + len(idempotent(0)) <= 600:
        home.append(log, idempotent(sequence))
        sequence += 1
    blocker = home.directory / f"{log.log_end_offset:020d}.snapshot.tmp"
    blocker.mkdir()
    home.append(log, idempotent(sequence))
    flush(log)
    assert len(log.segments) == 2
    blocker.rmdir()
    reopened = home.open()
    assert read_all(reopened) == read_all(log)
    assert home.append(reopened, idempotent(sequence)).is_duplicate


def test_a_full_disk_when_the_index_is_written_does_not_fail_an_append_that_is_in_the_log(tmp_path: Path) -> None:
    home = Home(tmp_path, index_interval_bytes=0)
    home.disk.suffixes = (".index", ".timeindex")
    log = home.open()
    home.disk.free_bytes = 500
    for number in range(2 * SPILL_COUNT + 50):
        assert home.append(log, a_batch(timestamp=number)).base_offset == number
    for offset in (0, 1, SPILL_COUNT, 2 * SPILL_COUNT + 49):
        assert present(log.read(offset, 1)).length > 0
        assert present(log.find_time(offset)).offset == offset
    home.disk.free_bytes = None
    assert present(log.find_time(7)).offset == 7
    log = home.restart(log)
    assert present(log.find_time(SPILL_COUNT + 7)).offset == SPILL_COUNT + 7
    assert log.log_end_offset == 2 * SPILL_COUNT + 50


def test_closing_a_segment_removes_the_remains_of_a_failed_write(home: Home) -> None:
    log = home.open()
    home.append(log, a_batch())
    path = home.files(".log")[0]
    with path.open("ab") as file:
        file.write(b"half a batch")
    log.roll(home.clock.now_ms())
    assert path.stat().st_size == log.segments[0].size_bytes


def test_a_slow_fsync_does_not_block_the_log(home: Home) -> None:
    """The flush runs in its own thread while this one appends, rolls, reads and drops segments."""
    log = home.open()
    for _ in range(30):
        home.append(log, a_batch(timestamp=home.clock.now_ms()))
    flushed = log.log_end_offset
    home.disk.sync_gate.clear()
    task = log.begin_flush()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            task.run()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    for _ in range(30):
        home.append(log, a_batch(timestamp=home.clock.now_ms()))
    log.delete_records(flushed - 1)
    for path in log.drop_expired(home.clock.now_ms()):
        path.unlink()
    assert len(read_all(log)) == 31
    home.disk.sync_gate.set()
    thread.join(10)
    assert not thread.is_alive()
    assert errors == []
    log.end_flush(task)
    assert log.recovery_point == flushed


def test_flushes_in_a_thread_survive_constant_rolling_and_dropping(tmp_path: Path) -> None:
    home = Home(tmp_path, segment_bytes=300, retention_bytes=600)
    log = home.open()
    tasks: SimpleQueue[FlushTask | None] = SimpleQueue()
    errors: list[BaseException] = []
    done: list[FlushTask] = []

    def run() -> None:
        while (task := tasks.get()) is not None:
            try:
                task.run()
                done.append(task)
            except BaseException as error:
                errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    for number in range(300):
        home.append(log, a_batch())
        if number % 3 == 0:
            tasks.put(log.begin_flush())
        if number % 5 == 0:
            for path in log.drop_expired(home.clock.now_ms()):
                path.unlink()
    tasks.put(None)
    thread.join(30)
    assert errors == []
    assert len(done) == 100
    assert log.log_start_offset > 250  # retention removed most of the batches to flush


def test_the_flush_of_a_deleted_topic_ends_without_an_error(home: Home) -> None:
    log = home.open()
    for _ in range(20):
        home.append(log, a_batch())
    task = log.begin_flush()
    os.rename(home.directory, home.directory.with_name("aside"))
    task.run()


def test_a_segment_that_cannot_be_opened_fails_the_flush_and_not_its_beginning(home: Home) -> None:
    log = home.open()
    for _ in range(20):
        home.append(log, a_batch())
    log = home.open()
    home.files(".log")[0].unlink()
    for segment in log.segments[:-1]:
        segment.release()
    task = log.begin_flush()
    with pytest.raises(FileNotFoundError):
        task.run()


def test_descriptors_of_closed_segments_are_bounded(tmp_path: Path) -> None:
    home = Home(tmp_path, segment_bytes=100)
    home.pool_capacity = 16
    log = home.open()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(60):
        home.append(log, a_batch())
    assert len(log.segments) == 60
    assert read_all(log)[5] == present(log.read(5, 1)).read()
    assert len(os.listdir("/proc/self/fd")) - before <= 17


def test_unflushed_bytes_are_lost_with_the_power_and_the_log_ends_before_them(home: Home) -> None:
    log = home.open()
    for _ in range(5):
        home.append(log, a_batch())
    flush(log)
    stored = read_all(log)
    for _ in range(3):
        home.append(log, a_batch())
    home.disk.lose_unsynced()
    reopened = home.open(recovery_point=5)
    assert read_all(reopened) == stored
    assert home.append(reopened, a_batch()).base_offset == 5
