"""The two indexes: lookups agree with a plain search, and damaged files are rebuilt."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skylog.storage.index import SPILL_COUNT, IntegerFile, OffsetIndex, TimeIndex
from skylog.testing import DiskFaults
from tests.present import present
from tests.storage.logs import Home, a_batch, flush, read_all

steps = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 5000)), max_size=60)


@given(steps, st.integers(0, 60), st.integers(0, 3000), st.integers(0, 300_000))
@settings(max_examples=60)
def test_offset_lookups_agree_with_a_linear_search(
    gaps: list[tuple[int, int]], sealed_after: int, offset: int, position: int
) -> None:
    with TemporaryDirectory() as folder:
        index = OffsetIndex(Path(folder) / "x.index", 1000)
        entries = [(1000, 0)]
        for number, (offset_gap, position_gap) in enumerate(gaps):
            entries.append((entries[-1][0] + offset_gap, entries[-1][1] + position_gap))
            index.append(*entries[-1])
            if number == sealed_after:
                index.items.seal(0)
        assert index.lookup(1000 + offset) == max(entry for entry in entries if entry[0] <= 1000 + offset)
        assert index.boundary(position) == max(entry[1] for entry in entries if entry[1] <= position)


@given(st.lists(st.integers(0, 40), max_size=60), st.integers(0, 60), st.integers(0, 45))
@settings(max_examples=60)
def test_time_lookups_agree_with_a_linear_search(times: list[int], sealed_after: int, timestamp: int) -> None:
    with TemporaryDirectory() as folder:
        index = TimeIndex(Path(folder) / "x.timeindex")
        entries: list[tuple[int, int]] = []
        for offset, time in enumerate(times):
            index.append(time, offset)
            if time > max((entry[0] for entry in entries), default=-1):
                entries.append((time, offset))
            if offset == sealed_after:
                index.items.seal(0)
        assert index.last == (entries[-1] if entries else (-1, -1))
        assert index.lookup(timestamp) == max((offset for time, offset in entries if time < timestamp), default=None)


def test_entries_spill_into_the_file_and_are_found_in_both_places(tmp_path: Path) -> None:
    index = OffsetIndex(tmp_path / "x.index", 0)
    for number in range(1, 2 * SPILL_COUNT + 100):
        index.append(number * 10, number * 100)
    assert index.items.stored_count == 2 * SPILL_COUNT
    assert len(index.items.tail) == 99
    for number in (1, SPILL_COUNT, SPILL_COUNT + 1, 2 * SPILL_COUNT + 99):
        assert index.lookup(number * 10 + 5) == (number * 10, number * 100)


def test_index_entries_stay_in_memory_if_the_disk_is_full(tmp_path: Path) -> None:
    disk = DiskFaults()
    disk.suffixes = (".index",)
    items = IntegerFile(tmp_path / "x.index", 1, disk.open_file)
    disk.free_bytes = 100
    for number in range(2 * SPILL_COUNT + 10):
        items.append(number)
    assert items.stored_count == 0
    disk.free_bytes = None
    for number in range(2 * SPILL_COUNT + 10, 3 * SPILL_COUNT):
        items.append(number)
    assert items.stored_count == 3 * SPILL_COUNT
    assert list(items.stored) == list(range(3 * SPILL_COUNT))


def test_a_seal_is_known_again_and_lies_outside_the_entries(tmp_path: Path) -> None:
    items = IntegerFile(tmp_path / "x.index", 1)
    for number in range(10):
        items.append(number)
    items.seal(4321)
    again = IntegerFile(tmp_path / "x.index", 1)
    assert (again.sealed_size_bytes, len(again), list(again.stored)) == (4321, 10, list(range(10)))
    assert again.was_intact()
    again.append(10)
    again.seal(5000)
    third = IntegerFile(tmp_path / "x.index", 1)
    assert (third.sealed_size_bytes, list(third.stored)) == (5000, list(range(11)))
    assert third.was_intact()


def test_every_flipped_bit_breaks_the_seal(tmp_path: Path) -> None:
    path = tmp_path / "x.index"
    items = IntegerFile(path, 1)
    for number in range(4):
        items.append(number << 32 | 7)
    items.seal(99)
    content = path.read_bytes()
    for index in range(len(content)):
        for bit in range(8):
            damaged = bytearray(content)
            damaged[index] ^= 1 << bit
            path.write_bytes(damaged)
            again = IntegerFile(path, 1)
            assert again.sealed_size_bytes != 99 or not again.was_intact()


# -- index files of a log, between two openings


def closed_log(home: Home) -> list[bytes]:
    log = home.open()
    for number in range(40):
        home.append(log, a_batch(2, timestamp=1000 + number * 10))
    flush(log)
    log.close()
    return read_all(home.open(clean=True))


DAMAGES = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-8]),
    "cut at an odd byte": lambda path: path.write_bytes(path.read_bytes()[:-3]),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "garbage": lambda path: path.write_bytes(b"\x5a\x17" * (path.stat().st_size // 2)),
    "garbage before the seal": lambda path: path.write_bytes(b"\x00\x01" + path.read_bytes()[2:]),
}


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", list(DAMAGES))
@pytest.mark.parametrize("clean", [True, False])
def test_damaged_index_files_are_rebuilt(home: Home, suffix: str, damage: str, clean: bool) -> None:
    stored = closed_log(home)
    before = {path: path.read_bytes() for path in home.files(suffix)}
    for path in list(before)[:-1]:
        DAMAGES[damage](path)
    log = home.open(clean=clean, recovery_point=80)
    for number in range(40):
        found = log.find_time(1000 + number * 10)
        assert (present(found).timestamp, present(found).offset) == (1000 + number * 10, number * 2)
        assert present(log.read(number * 2 + 1, 1)).read() == stored[number]
    assert [segment.max_timestamp for segment in log.segments][-1] == 1391
    assert read_all(log) == stored
    assert {path: path.read_bytes() for path in list(before)[:-1]} == {path: before[path] for path in list(before)[:-1]}


def test_an_index_that_could_not_be_written_is_rebuilt_at_the_next_start(home: Home) -> None:
    home.disk.suffixes = (".index", ".timeindex")
    log = home.open()
    home.disk.free_bytes = 0
    for number in range(40):
        home.append(log, a_batch(timestamp=1000 + number))
    assert len(log.segments) > 3
    stored = read_all(log)
    home.disk.free_bytes = None
    assert read_all(home.open()) == stored
    flush(log)
    log.close()
    reopened = home.open(clean=True)
    assert read_all(reopened) == stored
    assert present(reopened.find_time(1005)).offset == 5
    assert all(segment.has_sealed_indexes() for segment in reopened.segments)


def test_a_stop_that_cannot_write_its_index_is_not_clean(home: Home) -> None:
    log = home.open()
    home.append(log, a_batch())
    home.disk.suffixes = (".index",)
    home.disk.free_bytes = 0
    with pytest.raises(OSError, match="No space"):
        log.close()


def test_an_index_that_grows_again_after_a_clean_stop_is_not_rebuilt(tmp_path: Path) -> None:
    home = Home(tmp_path, index_interval_bytes=0)
    log = home.open()
    home.append(log, a_batch())
    home.append(log, a_batch())
    log = home.restart(log)
    home.disk.calls.clear()
    for _ in range(SPILL_COUNT + 10):
        home.append(log, a_batch())
    log.roll(home.clock.now_ms())
    assert home.disk.calls["read"] == 0
    assert log.segments[0].has_sealed_indexes()
    assert len(read_all(log)) == SPILL_COUNT + 12
