"""Existing batches are checked before they are read: one part at a time, in any thread, and once."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skylog.errors import ErrorCode, KafkaError
from skylog.records import Record, build_batch
from skylog.storage import FileSlice, Log, UncheckedError
from skylog.storage.log_dir import set_log_aside
from skylog.storage.ranges import Ranges
from skylog.storage.soundness import PART_BYTES
from tests.storage.logs import Home, a_batch, flush, header_of, read_all

SIZE = 60


@given(st.lists(st.tuples(st.integers(0, SIZE), st.integers(0, SIZE))))
def test_ranges_contain_exactly_the_added_positions(added: list[tuple[int, int]]) -> None:
    ranges = Ranges()
    positions: set[int] = set()
    for start, end in added:
        ranges.add(start, end)
        positions |= set(range(start, end))
    for position in range(SIZE + 1):
        expected = position
        while expected in positions:
            expected += 1
        assert ranges.end_at(position) == expected


def closed(home: Home, batches: list[bytearray]) -> list[bytes]:
    """A log that was stopped cleanly; its batches as they lie."""
    log = home.open()
    for batch in batches:
        home.append(log, batch)
    stored = read_all(log)
    flush(log)
    log.close()
    return stored


def damage(home: Home, position: int) -> None:
    (path,) = home.files(".log")
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def is_corrupt(log: Log, offset: int) -> bool:
    try:
        log.read(offset, 1)
    except KafkaError as error:
        if error.code is not ErrorCode.CORRUPT_MESSAGE:
            raise
        return True
    return False


def bytes_of(found: FileSlice | None) -> bytes:
    assert found is not None
    return found.read()


def offset_at(log: Log, timestamp: int) -> int:
    found = log.find_time(timestamp)
    assert found is not None
    return found.offset


def test_damage_is_remembered(tmp_path: Path) -> None:
    home = Home(tmp_path, index_interval_bytes=10_000)
    stored = closed(home, [a_batch(2) for _ in range(30)])
    damage(home, len(stored[0]) * 7 + 70)
    log = home.open(clean=True)
    assert [offset for offset in range(60) if is_corrupt(log, offset)] == [14, 15]
    assert [(found.due_offset, found.next_offset) for found in log.damages] == [(14, 16)]
    home.disk.calls.clear()
    assert is_corrupt(log, 14)
    assert home.disk.calls["read"] < 10  # only batch headers; nothing is checked again


def test_fake_batches_do_not_make_the_search_for_sound_ones_long(tmp_path: Path) -> None:
    home = Home(tmp_path, index_interval_bytes=4096, max_message_bytes=4_000_000)
    fake = bytes(a_batch(1, size_bytes=2000))[:61]  # a header whose batch is not there: plausible except for the CRC
    hostile = build_batch([Record(value=fake * 16_000)])
    stored = closed(home, [a_batch(), hostile, *[a_batch() for _ in range(100)]])
    damage(home, len(stored[0]) + len(stored[1]) - 1)
    log = home.open(clean=True)
    home.disk.calls.clear()
    assert is_corrupt(log, 1)
    assert bytes_of(log.read(2, 1)) == stored[2]
    assert home.disk.calls["read"] < 500, "each candidate was read"


def test_a_check_runs_in_another_thread_while_the_log_goes_on(tmp_path: Path) -> None:
    home = Home(tmp_path, index_interval_bytes=100)
    stored = closed(home, [a_batch(3) for _ in range(50)])
    damage(home, len(stored[0]) * 20 + 70)
    log = home.open(clean=True)
    with pytest.raises(UncheckedError) as caught:
        log.read_checked(30, 1000)
    thread = threading.Thread(target=caught.value.check.run)
    thread.start()
    appended = [home.append(log, a_batch(3)).base_offset for _ in range(50)]
    thread.join()
    caught.value.check.finish()
    assert bytes_of(log.read_checked(30, 1)) == stored[10]
    assert [offset for offset in range(0, 150, 3) if is_corrupt(log, offset)] == [60]
    assert [header_of(bytes_of(log.read(offset, 1))).base_offset for offset in appended] == appended


def test_one_check_covers_a_part_of_a_large_segment(tmp_path: Path) -> None:
    home = Home(tmp_path, max_message_bytes=2_000_000)
    batch = a_batch(1, size_bytes=1_000_000)
    stored = closed(home, [a_batch(1, size_bytes=1_000_000) for _ in range(10)])
    log = home.open(clean=True)
    assert bytes_of(log.read(0, 1)) == stored[0]
    reach = PART_BYTES // len(batch)
    assert bytes_of(log.read_checked(reach - 1, 1)) == stored[reach - 1]
    with pytest.raises(UncheckedError):
        log.read_checked(9, 1)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("how", ["flipped", "removed while the log is open"])
def test_a_check_rebuilds_an_index_that_is_found_damaged_at_the_first_read(
    tmp_path: Path, suffix: str, how: str
) -> None:
    home = Home(tmp_path, index_interval_bytes=100)
    stored = closed(home, [a_batch(2, timestamp=1000 + number) for number in range(50)])
    (path,) = home.files(suffix)
    if how == "flipped":
        path.write_bytes(b"\x5a" + path.read_bytes()[1:])
    log = home.open(clean=True)
    if how != "flipped":
        path.unlink()
    with pytest.raises(UncheckedError):
        log.read_checked(40, 1)
    assert read_all(log) == stored
    assert offset_at(log, 1020) == 39
    home.append(log, a_batch(2, timestamp=2000))
    assert offset_at(log, 1500) == 100
    assert read_all(home.restart(log))[:-1] == stored


def test_a_failed_log_raises_a_new_exception_for_each_append(tmp_path: Path) -> None:
    home = Home(tmp_path)
    log = home.open()
    home.append(log, a_batch())
    task = log.begin_flush()
    log.end_flush(task, OSError(5, "Input/output error"))

    def refused() -> KafkaError:
        with pytest.raises(KafkaError) as caught:
            home.append(log, a_batch())
        return caught.value

    first, second = refused(), refused()
    assert first is not second
    assert first.code is second.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_the_index_of_a_deleted_log_is_not_rebuilt_in_the_folder_of_the_next(tmp_path: Path) -> None:
    home = Home(tmp_path, index_interval_bytes=100)
    closed(home, [a_batch(2) for _ in range(50)])
    (path,) = home.files(".index")
    path.write_bytes(b"\x5a" + path.read_bytes()[1:])
    log = home.open(clean=True)
    with pytest.raises(UncheckedError) as caught:
        log.read_checked(40, 1)
    log.retire()
    set_log_aside(log)
    again = home.open()
    home.append(again, a_batch())
    before = {each.name: each.read_bytes() for each in home.directory.iterdir()}
    caught.value.check.run()
    caught.value.check.finish()
    assert {each.name: each.read_bytes() for each in home.directory.iterdir()} == before
    with pytest.raises(KafkaError):
        log.read_checked(40, 1)


def test_a_check_of_batches_that_are_truncated_meanwhile_has_no_effect(tmp_path: Path) -> None:
    home = Home(tmp_path, index_interval_bytes=100)
    stored = closed(home, [a_batch(3) for _ in range(50)])
    damage(home, len(stored[0]) * 30 + 70)
    log = home.open(clean=True)
    with pytest.raises(UncheckedError) as caught:
        log.read_checked(30, 100_000)
    caught.value.check.run()
    log.truncate_to(60, 0)
    caught.value.check.finish()
    appended = [bytes(batch) for batch in _append_some(home, log)]
    assert log.damages == []
    assert read_all(log) == stored[:20] + appended


def test_an_index_of_a_segment_that_is_truncated_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    home = Home(tmp_path, index_interval_bytes=100)
    stored = closed(home, [a_batch(3) for _ in range(50)])
    (path,) = home.files(".index")
    path.write_bytes(b"\x5a" + path.read_bytes()[1:])
    log = home.open(clean=True)
    with pytest.raises(UncheckedError) as caught:
        log.read_checked(30, 1000)
    caught.value.check.run()
    log.truncate_to(60, 0)
    caught.value.check.finish()
    appended = [bytes(batch) for batch in _append_some(home, log)]
    assert read_all(log) == stored[:20] + appended
    assert read_all(home.restart(log)) == stored[:20] + appended


def _append_some(home: Home, log: Log) -> list[bytearray]:
    batches = [a_batch(2, size_bytes=33) for _ in range(10)]
    for batch in batches:
        home.append(log, batch, epoch=1)
    return batches
