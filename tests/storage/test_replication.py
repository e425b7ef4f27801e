"""Logs of replicas: appending batches of a leader, truncating, and watermarks that limit readers."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skylog.errors import ErrorCode, KafkaError, SkylogError
from skylog.records import InvalidBatchError, stamp_offset
from skylog.storage import Log, UncheckedError, leader_epochs, truncation
from skylog.storage import log as log_module
from skylog.storage import segment as segment_module
from skylog.storage.files import Buffer, LogFile
from skylog.storage.segments import Segments

from .logs import Home, a_batch, flush, header_of, idempotent, read_all

SMALL = {"segment_bytes": 400, "index_interval_bytes": 100}


@pytest.fixture
def homes(tmp_path: Path) -> tuple[Home, Home]:
    return a_home(tmp_path / "leader"), a_home(tmp_path / "follower")


def a_home(path: Path, **values: object) -> Home:
    path.mkdir()
    return Home(path, **SMALL, **values)


def copy(leader: Log, follower: Log, max_bytes: int = 300) -> None:
    """Return what a follower fetches until it has everything."""
    while (found := leader.read(follower.log_end_offset, max_bytes)) is not None:
        follower.append_as_follower(memoryview(found.read()), 1000, 0)


def fill(home: Home, log: Log, count: int = 12) -> None:
    """Batches of one to three records, in epochs of four batches, from a producer that counts."""
    sequence = 0
    for number in range(count):
        records = 1 + number % 3
        home.append(log, idempotent(sequence, records), epoch=number // 4)
        sequence += records


def content(home: Home) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in home.files(".log")}


def test_a_follower_holds_the_same_bytes_at_the_same_offsets(homes: tuple[Home, Home]) -> None:
    leader, follower = (home.open() for home in homes)
    fill(homes[0], leader)
    copy(leader, follower)
    assert follower.log_end_offset == leader.log_end_offset
    assert read_all(follower) == read_all(leader)
    assert len(homes[1].files(".log")) > 2
    for log in (leader, follower):
        flush(log)
        log.close()
    assert content(homes[1]) == content(homes[0])
    for epoch in range(4):
        assert follower.epochs.end_offset_for(epoch, follower.log_end_offset) == leader.epochs.end_offset_for(
            epoch, leader.log_end_offset
        )


def test_a_follower_knows_the_producers_of_what_it_holds(homes: tuple[Home, Home]) -> None:
    leader, follower = (home.open() for home in homes)
    fill(homes[0], leader)
    copy(leader, follower)
    last = idempotent(21, 3)  # the last batch of `fill`
    assert homes[0].append(leader, bytearray(last)).is_duplicate
    assert homes[1].append(follower, bytearray(last), epoch=3).is_duplicate


def test_a_follower_may_lack_offsets_that_compaction_has_removed(homes: tuple[Home, Home]) -> None:
    follower = homes[1].open()
    batch = a_batch(2)
    leader = homes[0].open()
    for _ in range(5):
        homes[0].append(leader, a_batch())
    homes[0].append(leader, batch)
    follower.append_as_follower(memoryview(batch), 1000, 0)
    assert (follower.log_end_offset, read_all(follower)) == (7, [bytes(batch)])


def test_an_empty_log_takes_the_whole_batch_inside_which_the_log_of_the_leader_begins(
    homes: tuple[Home, Home],
) -> None:
    leader, follower = (home.open() for home in homes)
    for _ in range(3):
        homes[0].append(leader, a_batch(10))
    leader.delete_records(15)
    follower.restart_at(15, 0)
    copy(leader, follower)
    assert (follower.log_start_offset, follower.log_end_offset) == (15, 30)
    assert read_all(follower) == read_all(leader)
    opened = homes[1].open(log_start_offset=15)
    assert (opened.log_start_offset, read_all(opened)) == (15, read_all(leader))


@pytest.mark.parametrize("fault", ["gone back", "older epoch", "damaged"])
def test_a_batch_that_does_not_follow_is_refused_and_earlier_ones_are_kept(
    homes: tuple[Home, Home], fault: str
) -> None:
    leader, follower = (home.open() for home in homes)
    fill(homes[0], leader, 8)
    copy(leader, follower)
    fill_end = follower.log_end_offset
    good, bad = a_batch(), a_batch()
    homes[0].append(leader, good, epoch=2)
    homes[0].append(leader, bad, epoch=2)
    if fault == "gone back":
        bad[:8] = fill_end.to_bytes(8, "big")
    elif fault == "older epoch":
        bad[12:16] = (0).to_bytes(4, "big")
    else:
        bad[-1] ^= 1
    with pytest.raises((SkylogError, InvalidBatchError)):
        follower.append_as_follower(memoryview(good + bad), 1000, 0)
    assert follower.log_end_offset == fill_end + 1
    assert read_all(follower)[-1] == bytes(good)


def test_a_disk_that_fills_up_stores_no_batch_of_the_leader_twice(
    homes: tuple[Home, Home], monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, follower = (home.open() for home in homes)
    for size_bytes, epoch in ((20, 0), (20, 0), (800, 0), (20, 1)):
        homes[0].append(leader, a_batch(size_bytes=size_bytes), epoch)
    data = b"".join(read_all(leader))
    first = len(read_all(leader)[0])
    follower.append_as_follower(memoryview(data)[:first], 1, 0)
    write_at = LogFile.write_at

    def write_if_small(file: LogFile, batch: Buffer, position: int) -> int:
        if len(batch) > 500:
            raise OSError(errno.ENOSPC, "no room for the third one")
        return write_at(file, batch, position)

    with monkeypatch.context() as patch:
        patch.setattr(LogFile, "write_at", write_if_small)
        with pytest.raises(KafkaError) as caught:
            follower.append_as_follower(memoryview(data)[first:], 1, 0)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert follower.log_end_offset == 2
    copy(leader, follower, 1 << 20)
    assert read_all(follower) == read_all(leader)
    assert read_all(homes[1].open()) == read_all(leader)


@settings(max_examples=40)
@given(data=st.data())
def test_a_truncated_log_is_one_that_was_never_longer(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    tmp_path = tmp_path_factory.mktemp("truncated")
    home, other = a_home(tmp_path / "a"), a_home(tmp_path / "b")
    log, expected = home.open(), other.open()
    fill(home, log)
    ends = [header_of(batch).end_offset for batch in read_all(log)]
    if data.draw(st.booleans(), "flushed before"):
        flush(log)
    if data.draw(st.booleans(), "restarted before"):
        log = home.restart(log)
    kept = data.draw(st.integers(0, len(ends)), "batches kept")
    offset = ends[kept - 1] if kept else 0
    log.truncate_to(offset, 0)
    fill(other, expected, kept)
    assert log.log_end_offset == expected.log_end_offset == offset
    assert log.high_watermark <= offset
    assert log.recovery_point <= offset
    assert read_all(log) == read_all(expected)
    assert log.epochs.latest == expected.epochs.latest
    assert log.max_timestamp() == expected.max_timestamp()
    again = a_batch(2, timestamp=5000)
    for each, its_home in ((log, home), (expected, other)):
        its_home.append(each, bytearray(again), epoch=9)
    assert read_all(log) == read_all(expected)
    assert log.find_time(5000) == expected.find_time(5000)
    opened = home.open(recovery_point=log.recovery_point)  # as after a crash
    assert read_all(opened) == read_all(expected)


def test_truncating_at_the_end_still_forgets_epochs_that_wrote_nothing(homes: tuple[Home, Home]) -> None:
    home = homes[0]
    log = home.open()
    fill(home, log, 4)
    log.epochs.begin(7, log.log_end_offset)
    assert log.truncate_to(log.log_end_offset, 0) == []
    assert log.epochs.latest == 0


def test_a_flush_from_before_a_truncation_does_not_cover_later_batches(homes: tuple[Home, Home]) -> None:
    home = homes[0]
    log = home.open()
    fill(home, log, 6)
    task = log.begin_flush()
    log.truncate_to(1, 0)
    for _ in range(20):
        home.append(log, a_batch(), epoch=5)
    task.run()
    log.end_flush(task)
    assert log.recovery_point <= 1


def test_a_file_that_was_cut_is_flushed_with_the_next_one(homes: tuple[Home, Home]) -> None:
    """Otherwise a crash of the machine brings back what was cut off, before the recovery point."""
    home = homes[0]
    log = home.open()
    fill(home, log, 3)
    flush(log)
    log.truncate_to(3, 0)
    home.append(log, a_batch(), epoch=5)
    assert len(home.files(".log")) == 2
    task = log.begin_flush()
    assert len(task.files) == 2
    task.run()
    log.end_flush(task)
    home.append(log, a_batch(), epoch=5)
    assert len(log.begin_flush().files) == 1


def test_a_cut_that_was_not_on_disk_when_the_machine_crashed_is_made_again(homes: tuple[Home, Home]) -> None:
    home = homes[0]
    log = home.open()
    fill(home, log, 3)
    flush(log)
    (path,) = home.files(".log")
    before = path.read_bytes()
    log.truncate_to(3, 0)
    home.append(log, a_batch(), epoch=5)
    expected = read_all(log)
    path.write_bytes(before)
    log = home.open(recovery_point=log.recovery_point)
    assert read_all(log) == expected
    assert b"".join(file.read_bytes() for file in home.files(".log")) == b"".join(expected)


def test_readers_end_at_the_offset_they_may_see(homes: tuple[Home, Home]) -> None:
    home = homes[0]
    log = home.open()
    fill(home, log)
    everything = read_all(log)
    boundaries = [0, *(header_of(batch).end_offset for batch in everything)]
    for number, end_offset in enumerate(boundaries):
        offset, seen = 0, b""
        while (found := log.read(offset, 150, True, end_offset)) is not None:
            seen += found.read()
            offset = header_of(everything[seen_count(everything, seen) - 1]).end_offset
        assert seen == b"".join(everything[:number])
        assert log.read(end_offset, 150, True, end_offset) is None
    with pytest.raises(KafkaError) as caught:
        log.read(log.log_end_offset + 1, 100, True, 0)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def seen_count(batches: list[bytes], seen: bytes) -> int:
    total = 0
    for number, batch in enumerate(batches, 1):
        total += len(batch)
        if total == len(seen):
            return number
    raise AssertionError("a batch was cut")


def test_unreplicated_records_are_neither_dropped_nor_deleted(tmp_path: Path) -> None:
    log = a_home(tmp_path / "a", retention_bytes=0).open()
    for _ in range(20):
        log.append_as_leader(a_batch(), 0, 0)
    with pytest.raises(KafkaError) as caught:
        log.delete_records(1)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.drop_expired(0) == []
    log.advance_high_watermark(9)
    log.drop_expired(0)
    assert 0 < log.log_start_offset <= 9
    log.delete_records(9)
    assert log.log_start_offset == 9


def test_the_high_watermark_never_falls_back_or_passes_the_end(homes: tuple[Home, Home]) -> None:
    log = homes[0].open()
    for _ in range(5):
        log.append_as_leader(a_batch(), 0, 0)
    assert log.high_watermark == 0
    log.advance_high_watermark(3)
    log.advance_high_watermark(2)
    assert log.high_watermark == 3
    log.advance_high_watermark(100)
    assert log.high_watermark == log.last_stable_offset == 5


def test_readers_end_at_the_offset_they_may_see_in_a_log_that_was_opened_and_has_grown(tmp_path: Path) -> None:
    """The last segment has batches from before and after the start."""
    home = Home(tmp_path)
    log = home.open()
    for _ in range(3):
        home.append(log, a_batch())
    log = home.restart(log)
    for _ in range(5):
        log.append_as_leader(a_batch(), 0, 0)
    for end_offset in range(1, 9):
        found = log.read(0, 1 << 20, True, end_offset)
        assert found is not None
        assert found.length == end_offset * len(a_batch())


@pytest.mark.parametrize("kept", [0, 1, 3])
def test_a_slice_of_what_was_cut_off_never_has_what_was_appended_later(tmp_path: Path, kept: int) -> None:
    home = Home(tmp_path)
    log = home.open()
    for _ in range(6):
        home.append(log, a_batch())
    held = log.read(0, 1 << 20)
    assert held is not None
    before = held.read()
    log.truncate_to(kept, 0)
    for _ in range(6):
        home.append(log, a_batch(timestamp=9000), epoch=1)
    after = os.pread(held.file.fileno(), held.length, held.position)
    assert before.startswith(after)
    assert len(read_all(log)) == kept + 6


def test_a_slice_is_kept_also_where_compaction_has_removed_what_was_before(tmp_path: Path) -> None:
    """The first batch of a follower's segment may begin after the segment does."""
    home = Home(tmp_path)
    log = home.open()
    batch = a_batch()
    batch[:8] = (5).to_bytes(8, "big")
    log.append_as_follower(memoryview(batch), 1, 0)
    held = log.read(5, 1 << 20)
    assert held is not None
    before = held.read()
    log.truncate_to(5, 0)
    log.append_as_leader(a_batch(timestamp=9000), 1, 0)
    assert before.startswith(os.pread(held.file.fileno(), held.length, held.position))
    assert log.log_end_offset == 6


def test_a_second_truncation_does_not_undo_what_the_first_says_about_a_running_flush(homes: tuple[Home, Home]) -> None:
    home = homes[0]
    log = home.open()
    fill(home, log, 6)
    task = log.begin_flush()
    log.truncate_to(1, 0)
    for _ in range(5):
        home.append(log, a_batch(), epoch=5)
    log.truncate_to(4, 0)
    task.run()
    log.end_flush(task)
    assert log.recovery_point <= 1


@pytest.mark.parametrize("offset", [2, 500])
def test_a_flush_from_before_a_restart_does_not_cover_the_new_log(homes: tuple[Home, Home], offset: int) -> None:
    home = homes[0]
    log = home.open(log_start_offset=10)
    for _ in range(5):
        home.append(log, a_batch())
    task = log.begin_flush()
    log.restart_at(offset, 0)
    batch = a_batch(20)
    stamp_offset(batch, offset, 3)
    log.append_as_follower(memoryview(batch), 3, 0)
    task.run()
    log.end_flush(task)
    assert log.recovery_point == offset


def test_the_first_file_of_a_log_that_begins_again_is_made_durable_with_its_name(homes: tuple[Home, Home]) -> None:
    home = homes[0]
    log = home.open()
    fill(home, log, 2)
    flush(log)
    log.restart_at(500, 0)
    assert log.begin_flush().directories == [home.directory]


def test_a_log_that_begins_again_does_not_know_the_producers_of_the_missing_batches(homes: tuple[Home, Home]) -> None:
    """A producer that has written to the missing part would be refused: its sequence is not the expected one."""
    home = homes[0]
    log = home.open()
    fill(home, log, 12)
    flush(log)
    log.delete_records(log.log_end_offset)
    log.roll(0)
    log.drop_expired(0)
    flush(log)
    assert (log.size_bytes, len(log.producers)) == (0, 1)
    assert home.files(".snapshot")
    log.restart_at(500, 0)
    assert len(log.producers) == 0
    assert home.files(".snapshot") == []
    assert not home.append(log, idempotent(9000), epoch=9).is_duplicate


def test_a_snapshot_of_producers_that_a_flush_writes_after_a_truncation_is_removed(homes: tuple[Home, Home]) -> None:
    """It describes batches that are gone. A later recovery would take a new batch for a duplicate of one of them."""
    home = homes[0]
    log = home.open()
    fill(home, log, 12)
    task = log.begin_flush()
    assert task.snapshots
    log.truncate_to(1, 0)
    task.run()
    log.end_flush(task)
    assert [path for path in home.files(".snapshot") if int(path.stem) > 1] == []
    for _ in range(30):
        home.append(log, a_batch(), epoch=5)
    assert not home.append(home.open(), idempotent(1, 2), epoch=6).is_duplicate


def test_a_snapshot_of_what_was_truncated_that_cannot_be_removed_fails_the_log(
    homes: tuple[Home, Home], monkeypatch: pytest.MonkeyPatch
) -> None:
    home = homes[0]
    log = home.open()
    fill(home, log, 12)
    task = log.begin_flush()
    log.truncate_to(1, 0)
    task.run()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", no_room)
        log.end_flush(task)
    assert "no room" in str(log.failure)


def test_an_old_snapshot_that_cannot_be_removed_does_no_harm(
    homes: tuple[Home, Home], monkeypatch: pytest.MonkeyPatch
) -> None:
    home = homes[0]
    log = home.open()
    fill(home, log, 12)
    task = log.begin_flush()
    task.run()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", no_room)
        log.end_flush(task)
    assert (log.failure, log.recovery_point) == (None, log.log_end_offset)
    assert len(home.files(".snapshot")) > 1


def test_a_truncation_whose_epochs_cannot_be_written_is_found_again_by_the_leader(
    homes: tuple[Home, Home], monkeypatch: pytest.MonkeyPatch
) -> None:
    home = homes[0]
    log = home.open()
    fill(home, log, 8)
    with monkeypatch.context() as patch:
        patch.setattr(leader_epochs, "replace_file", no_room)
        with pytest.raises(OSError, match="no room"):
            log.truncate_to(3, 0)
    assert (log.log_end_offset, log.epochs.latest) == (3, 1)
    log.truncate_to(3, 0)
    assert log.epochs.latest == 0


def test_a_log_whose_truncation_fails_half_way_accepts_nothing_more(
    homes: tuple[Home, Home], monkeypatch: pytest.MonkeyPatch
) -> None:
    home = homes[0]
    log = home.open()
    fill(home, log, 8)
    batch = read_all(log)[-1]
    with monkeypatch.context() as patch:
        patch.setattr(LogFile, "truncate", no_room)
        with pytest.raises(OSError, match="no room"):
            log.truncate_to(1, 0)
    with pytest.raises(KafkaError) as caught:
        log.append_as_follower(memoryview(batch), 1000, 0)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert read_all(home.open())


@pytest.mark.parametrize("fault", ["producers", "roll"])
def test_a_truncation_whose_producers_cannot_be_restored_forgets_no_truncation(
    homes: tuple[Home, Home], monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """A later leader would take a resent batch for a duplicate of one that was cut off, and acknowledge it."""
    home = homes[0]
    log = home.open()
    fill(home, log, 8)
    last = idempotent(13, 2)  # the last batch of `fill`
    assert home.append(log, bytearray(last), epoch=1).is_duplicate
    with monkeypatch.context() as patch:
        if fault == "producers":
            patch.setattr(log_module, "restore_producers", no_room)
        else:
            patch.setattr(Segments, "roll", no_room)
        with pytest.raises(OSError, match="no room"):
            log.truncate_to(3, 0)
    assert log.truncate_to(3, 0) == []
    with pytest.raises(KafkaError) as caught:
        home.append(log, bytearray(last), epoch=2)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    opened = home.open()
    assert len(read_all(opened)) == 2
    with pytest.raises(KafkaError) as caught:
        home.append(opened, bytearray(last), epoch=2)
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_log_that_begins_again_and_cannot_forget_its_producers_accepts_nothing_more(
    homes: tuple[Home, Home], monkeypatch: pytest.MonkeyPatch
) -> None:
    home = homes[0]
    log = home.open()
    fill(home, log, 8)
    with monkeypatch.context() as patch:
        patch.setattr(log_module, "forget_producers", no_room)
        with pytest.raises(OSError, match="no room"):
            log.restart_at(500, 0)
    with pytest.raises(KafkaError) as caught:
        home.append(log, a_batch(), epoch=2)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


# -- truncations that are prepared in a thread


@pytest.fixture
def always_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truncation, "SHORT_BYTES", -1)


def prepare(log: Log, offset: int) -> int:
    """Prepare a truncation as a follower does. Return how many checks that took."""
    for count in range(5):
        try:
            log.prepare_truncation(offset, 0)
        except UncheckedError as unchecked:
            log.run_check(unchecked.check)
            unchecked.check.finish()
        else:
            return count
    raise AssertionError("the truncation is never prepared")


@pytest.mark.usefixtures("always_prepared")
@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("flushed", [False, True])
def test_a_truncation_that_was_prepared_is_like_one_that_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flushed: bool, restarted: bool
) -> None:
    ends = [header_of(batch).end_offset for batch in read_all(a_home(tmp_path / "all").open_with_transactions())]
    for offset in ends[:-1]:
        logs = []
        for name in ("prepared", "other"):
            home = a_home(tmp_path / f"{offset}-{name}")
            log = home.open_with_transactions()
            if flushed:
                flush(log)
            logs.append(home.restart(log) if restarted else log)
        assert prepare(logs[0], offset) == 1
        with monkeypatch.context() as patch:
            patch.setattr(log_module, "restore_producers", no_room)  # it needs no replay any more
            logs[0].truncate_to(offset, 0)
        logs[1].truncate_to(offset, 0)
        assert state_of(logs[0]) == state_of(logs[1])


def state_of(log: Log) -> object:
    aborted = [[*segment.aborted] for segment in log.segments]
    producers = [
        (producer_id, entry.epoch, entry.batches, entry.transaction_start, entry.coordinator_epoch)
        for producer_id, entry in log.producers
    ]
    snapshots = sorted(path.name for path in log.directory.glob("*.snapshot"))
    return producers, log.last_stable_offset, log.max_timestamp(), aborted, read_all(log), snapshots


@pytest.mark.usefixtures("always_prepared")
def test_what_was_prepared_for_one_truncation_is_not_used_for_another(homes: tuple[Home, Home]) -> None:
    home = homes[0]
    log = home.open()
    fill(home, log, 12)
    assert prepare(log, 9) == 1
    log.truncate_to(7, 0)
    home.append(log, a_batch(), epoch=7)
    home.append(log, a_batch(), epoch=7)
    home.append(log, idempotent(7, 3), epoch=7)
    assert prepare(log, 9) == 1
    log.truncate_to(9, 0)
    assert home.append(log, idempotent(6), epoch=8).is_duplicate
    assert not home.append(log, idempotent(7, 3), epoch=8).is_duplicate


@pytest.mark.usefixtures("always_prepared")
def test_a_truncation_is_short_where_no_producer_is_known(
    homes: tuple[Home, Home], monkeypatch: pytest.MonkeyPatch
) -> None:
    home = homes[0]
    log = home.open()
    for _ in range(20):
        home.append(log, a_batch())
    assert prepare(log, 15) == 0
    monkeypatch.setattr(log_module, "restore_producers", no_room)
    log.truncate_to(15, 0)
    assert (log.log_end_offset, len(log.producers)) == (15, 0)


def test_damaged_indexes_are_rebuilt_in_a_thread_before_a_truncation(homes: tuple[Home, Home]) -> None:
    home = homes[0]
    log = home.open()
    fill(home, log, 12)
    offset = header_of(read_all(log)[1]).end_offset
    flush(log)
    log.close()
    index = home.files(".index")[0]
    index.write_bytes(b"\x5a" + index.read_bytes()[1:])
    log = home.open(clean=True)
    assert prepare(log, offset) == 1
    log.truncate_to(offset, 0)
    assert len(read_all(log)) == 2


def test_a_snapshot_from_before_what_is_not_replicated_is_kept(homes: tuple[Home, Home]) -> None:
    """Otherwise a truncation would read the whole log again to restore the producers."""
    home = homes[0]
    log = home.open()
    fill(home, log, 12)
    log.high_watermark = log.segments[2].base_offset
    for number in range(24, 34):
        log.append_as_leader(idempotent(number), 5, 0)
        flush(log)
    offsets = [int(path.stem) for path in home.files(".snapshot")]
    assert max(offset for offset in offsets if offset <= log.high_watermark) == log.high_watermark
    assert min(offsets) == log.high_watermark, "older ones are of no use"


def test_the_largest_timestamp_is_known_after_a_truncation_without_reading_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path)
    log = home.open()
    home.append(log, a_batch(timestamp=9000))
    for _ in range(20):
        home.append(log, a_batch())
    home.append(log, a_batch(timestamp=9999))
    log.truncate_to(21, 0)
    assert log.max_timestamp() == 9000
    with monkeypatch.context() as patch:
        patch.setattr(segment_module, "scan_past_damage", no_room)
        log.truncate_to(15, 0)
    assert log.max_timestamp() == 9000
    assert log.find_max_timestamp() == (9000, 0, 0)


def no_room(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "no room")
