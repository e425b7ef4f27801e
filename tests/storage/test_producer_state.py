"""Idempotent producers: a retried batch is stored once, also across restarts and crashes."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c

from skylog.errors import ErrorCode, KafkaError
from skylog.storage import Log
from skylog.storage.config import DAY_MS
from skylog.storage.producer_snapshot import load_snapshot
from tests.present import present
from tests.storage.logs import Home, flush, idempotent, read_all, settings

HOUR_MS = 3_600_000


def refused(home: Home, log: Log, batch: bytearray) -> ErrorCode:
    end_offset = log.log_end_offset
    with pytest.raises(KafkaError) as caught:
        home.append(log, batch)
    assert log.log_end_offset == end_offset
    return caught.value.code


def with_batches(home: Home, count: int) -> Log:
    log = home.open()
    for number in range(count):
        home.append(log, idempotent(number * 2, 2))
    return log


def test_each_of_the_last_five_batches_is_answered_with_the_offset_it_has(home: Home) -> None:
    log = with_batches(home, 8)
    for number in range(3, 8):
        result = home.append(log, idempotent(number * 2, 2))
        assert (result.is_duplicate, result.base_offset, result.end_offset) == (True, number * 2, number * 2 + 2)
    assert log.log_end_offset == 16
    assert refused(home, log, idempotent(2 * 2, 2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_that_shares_only_its_first_sequence_is_no_duplicate(home: Home) -> None:
    log = with_batches(home, 3)
    assert refused(home, log, idempotent(4, 1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_is_refused_and_the_next_in_order_is_taken(home: Home) -> None:
    log = with_batches(home, 2)
    assert refused(home, log, idempotent(5)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert home.append(log, idempotent(4)).base_offset == 4


def test_an_older_epoch_is_fenced_and_a_newer_one_begins_at_zero(home: Home) -> None:
    log = home.open()
    home.append(log, idempotent(0, epoch=3))
    assert refused(home, log, idempotent(1, epoch=2)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(home, log, idempotent(1, epoch=4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert not home.append(log, idempotent(0, epoch=4)).is_duplicate
    assert refused(home, log, idempotent(1, epoch=3)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_sequences_go_on_from_zero_after_the_largest(home: Home) -> None:
    log = home.open()
    home.append(log, idempotent(2**31 - 3, 2))
    home.append(log, idempotent(2**31 - 1, 3))
    assert home.append(log, idempotent(2**31 - 1, 3)).is_duplicate
    assert home.append(log, idempotent(2)).base_offset == 5
    assert refused(home, log, idempotent(2**31 - 1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_sequence_after_the_very_largest_is_zero(home: Home) -> None:
    log = home.open()
    home.append(log, idempotent(2**31 - 2, 2))
    assert home.append(log, idempotent(0)).base_offset == 2


def test_an_unknown_producer_may_begin_anywhere(home: Home) -> None:
    log = home.open()
    assert home.append(log, idempotent(100, producer_id=9)).base_offset == 0
    assert refused(home, log, idempotent(100 + 2, producer_id=9)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_producers_do_not_know_of_each_other(home: Home) -> None:
    log = home.open()
    for sequence in range(3):
        for producer_id in range(4):
            assert not home.append(log, idempotent(sequence, producer_id=producer_id)).is_duplicate
    assert home.append(log, idempotent(2, producer_id=1)).base_offset == 9


def test_a_failed_append_leaves_the_sequence_as_it_was(home: Home) -> None:
    log = with_batches(home, 2)
    home.disk.failing.add("write")
    assert refused(home, log, idempotent(4, 2)) is ErrorCode.KAFKA_STORAGE_ERROR
    home.disk.failing.clear()
    result = home.append(log, idempotent(4, 2))
    assert (result.is_duplicate, result.base_offset) == (False, 4)


def test_a_silent_producer_is_forgotten(home: Home) -> None:
    log = with_batches(home, 1)
    last_seen_ms = home.clock.now_ms()
    assert log.producers.expire(last_seen_ms) == 0
    assert log.producers.expire(last_seen_ms + 1) == 1
    assert not home.append(log, idempotent(77)).is_duplicate


def test_a_producer_expires_by_the_brokers_clock_whatever_the_time_of_its_messages(home: Home) -> None:
    log = with_batches(home, 1)  # whose records are of the first second of 1970
    home.clock.advance_ms(HOUR_MS)
    for reopened in (log, home.restart(log), home.open(recovery_point=log.recovery_point)):
        assert reopened.producers.expire(home.clock.now_ms() - DAY_MS) == 0
        assert home.append(reopened, idempotent(0, 2)).is_duplicate


def test_a_snapshot_keeps_the_last_seen_time_of_a_producer(home: Home) -> None:
    last_seen_ms = home.clock.now_ms()
    log = with_batches(home, 1)
    home.clock.advance_ms(HOUR_MS)
    log = home.restart(log)
    assert log.producers.expire(last_seen_ms) == 0
    assert log.producers.expire(last_seen_ms + 1) == 1


@pytest.mark.parametrize("version", [1, 2])
def test_snapshots_of_older_versions_are_read(home: Home, version: int) -> None:
    """In the first one the third field was a message's timestamp: its producers count as active now."""
    log = home.restart(with_batches(home, 3))
    entry = present(log.producers.find(7))
    third_field = 1000 if version == 1 else home.clock.now_ms() - 1
    body = struct.pack("<qhqB", 7, entry.epoch, third_field, 3) + entry.packed
    (path,) = home.files(".snapshot")
    path.write_bytes(struct.pack("<4sHI", b"SKPS", version, crc32c(body)) + body)
    producers = present(load_snapshot(path, home.clock.now_ms()))
    found = present(producers.find(7))
    assert (found.batches, found.last_sequence, found.transaction_start) == (entry.batches, 5, -1)
    assert producers.expire(home.clock.now_ms()) == (0 if version == 1 else 1)
    remembers(home, home.open(clean=True), 3)


def remembers(home: Home, log: Log, count: int) -> None:
    """Check that `log` knows the last five of `count` batches and the next sequence."""
    for number in range(max(count - 5, 0), count):
        result = home.append(log, idempotent(number * 2, 2))
        assert (result.is_duplicate, result.base_offset) == (True, number * 2)
    assert refused(home, log, idempotent(count * 2 + 1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(home, log, idempotent(count * 2, epoch=-1)) is ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("count", [1, 3, 20, 40])
def test_a_clean_restart_remembers(home: Home, count: int) -> None:
    log = home.restart(with_batches(home, count))
    remembers(home, log, count)
    remembers(home, home.restart(home.restart(log)), count)


@pytest.mark.parametrize("count", [1, 3, 20, 40])
@pytest.mark.parametrize("flushed", [False, True])
def test_a_crash_remembers(home: Home, count: int, flushed: bool) -> None:
    log = with_batches(home, count)
    if flushed:
        flush(log)
    remembers(home, home.open(recovery_point=log.recovery_point), count)


@pytest.mark.parametrize("damage", [b"", b"SKPS", b"\0" * 40])
@pytest.mark.parametrize("clean", [False, True])
def test_the_state_is_rebuilt_from_the_log_if_snapshots_are_damaged(home: Home, damage: bytes, clean: bool) -> None:
    log = with_batches(home, 20)
    flush(log)
    log.close()
    for path in home.files(".snapshot"):
        path.write_bytes(damage)
    remembers(home, home.open(clean=clean, recovery_point=40), 20)


def test_every_flipped_bit_of_a_snapshot_is_noticed(home: Home) -> None:
    home.restart(with_batches(home, 3))
    (path,) = home.files(".snapshot")
    content = path.read_bytes()
    for index in range(len(content)):
        damaged = bytearray(content)
        damaged[index] ^= 0x10
        path.write_bytes(damaged)
        assert load_snapshot(path, 0) is None
    path.write_bytes(content)
    assert load_snapshot(path, 0) is not None


def test_the_state_is_rebuilt_from_the_log_if_snapshots_are_missing(home: Home) -> None:
    log = with_batches(home, 20)
    flush(log)
    log.close()
    for path in home.files(".snapshot"):
        path.unlink()
    log = home.open(clean=True, recovery_point=40)
    assert log.log_end_offset == 40
    remembers(home, log, 20)


def test_a_snapshot_of_batches_that_were_cut_is_not_believed(home: Home) -> None:
    log = with_batches(home, 20)
    last = home.files(".log")[-1]
    cut = log.segments[-1].base_offset
    last.unlink()
    previous = home.files(".log")[-1]
    previous.write_bytes(previous.read_bytes()[:-1])
    reopened = home.open()
    assert reopened.log_end_offset == cut - 2
    remembers(home, reopened, (cut - 2) // 2)


def test_old_snapshots_do_not_pile_up(home: Home) -> None:
    log = with_batches(home, 60)
    assert len(log.segments) > 5
    flush(log)
    home.append(log, idempotent(120, 2))
    for number in range(61, 75):
        home.append(log, idempotent(number * 2, 2))
    assert len(home.files(".snapshot")) < 6
    log = home.restart(log)
    assert len(home.files(".snapshot")) == 1
    assert len(read_all(log)) == 75


def test_a_snapshot_from_before_what_retention_has_dropped_is_not_taken_for_complete(home: Home) -> None:
    """A clean stop has left a snapshot at the recovery point, and the batches after it are gone."""
    home.config = settings(retention_ms=100)
    log = home.restart(home.open())
    home.append(log, idempotent(0))
    home.clock.advance_ms(HOUR_MS)
    for path in log.drop_expired(home.clock.now_ms()):
        path.unlink()
    log = home.open(log_start_offset=log.log_start_offset)
    assert home.append(log, idempotent(0)).is_duplicate
