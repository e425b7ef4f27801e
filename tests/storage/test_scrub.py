"""A scrub finds damage anywhere below the high watermark, and a repair restores the file byte for byte."""

from __future__ import annotations

import os
import random
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skylog.errors import ErrorCode, KafkaError
from skylog.records import InvalidBatchError, Record, build_batch
from skylog.storage import Log, MisfitError, RangeRepair, UncheckedError, plan_repairs, plan_scrub
from tests.storage.logs import Home, a_batch, flush, read_all

SCRUBBED_AT_ONCE = 400


def scrub(log: Log, meanwhile: Callable[[], None] = lambda: None) -> None:
    offset = log.log_start_offset
    while True:
        try:
            part = plan_scrub(log, offset, SCRUBBED_AT_ONCE)
        except UncheckedError as unchecked:
            log.run_check(unchecked.check)
            unchecked.check.finish()
            continue
        if part is None:
            return
        log.run_check(part)
        meanwhile()
        part.finish()
        offset = part.next_offset


def repair(log: Log, source: Log) -> list[RangeRepair]:
    repairs = plan_repairs(log)
    for each in repairs:
        while each.missing_bytes:
            found = source.read(each.next_offset, each.missing_bytes, end_offset=source.high_watermark)
            assert found is not None
            each.add(memoryview(found.read()))
        each.run()
        each.finish()
    return repairs


def fill(home: Home, log: Log, numbers: random.Random, batches: int) -> None:
    for number in range(batches):
        batch = a_batch(numbers.randint(1, 4), numbers.choice([5, 60, 300]))
        home.append(log, batch, epoch=number * 3 // batches)


def contents(home: Home) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in home.files(".log")}


def flip(path: Path, position: int, mask: int = 1) -> None:
    """Change a byte of a file that a log may have open."""
    with open(path, "r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ mask]))


def a_pair(path: Path, batches: int = 60, **values: object) -> tuple[Home, Log, Log]:
    """A log, and a replica of it."""
    values = {"segment_bytes": 2000, "index_interval_bytes": 300} | values
    home, other = Home(path / "replica", **values), Home(path / "leader", **values)
    for each in (home, other):
        each.directory.parent.mkdir()
    leader, replica = other.open(), home.open()
    fill(other, leader, random.Random(batches), batches)
    copy(leader, replica, other)
    return home, replica, leader


def copy(leader: Log, replica: Log, home: Home) -> None:
    for batch in read_all(leader)[0:]:
        if int.from_bytes(batch[:8], "big") >= replica.log_end_offset:
            replica.append_as_follower(memoryview(batch), 9, home.clock.now_ms())
    replica.advance_high_watermark(leader.high_watermark)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1 << 32), flips=st.integers(1, 8), reopens=st.booleans())
def test_any_flipped_bits_are_found_and_the_file_is_restored(seed: int, flips: int, reopens: bool) -> None:
    numbers = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        home, log, leader = a_pair(Path(folder), batches=numbers.randint(1, 40))
        if reopens:
            log = home.restart(log)
        before = contents(home)
        stored = [path for path in home.files(".log") if path.stat().st_size]
        for _ in range(flips):
            path = numbers.choice(stored)
            flip(path, numbers.randrange(path.stat().st_size), 1 << numbers.randrange(8))
        is_changed = contents(home) != before
        scrub(log)
        assert bool(log.damages) is is_changed
        assert all(each.is_repaired for each in repair(log, leader))
        assert contents(home) == before
        assert log.damages == []
        assert read_all(log) == read_all(leader)


def test_a_scrub_of_sound_segments_finds_nothing(tmp_path: Path) -> None:
    home, log, _ = a_pair(tmp_path)
    scrub(log)
    scrub(home.restart(log))
    assert log.damages == []


def test_damage_to_a_batch_of_this_process_is_not_served_after_the_scrub(tmp_path: Path) -> None:
    home, log, leader = a_pair(tmp_path, batches=12, segment_bytes=1 << 20, index_interval_bytes=10_000)
    batches = read_all(log)
    flip(home.files(".log")[0], sum(map(len, batches[:5])) + 70)
    scrub(log)
    (damage,) = log.damages
    with pytest.raises(KafkaError) as refused:
        log.read_checked(damage.due_offset, 1)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    with pytest.raises(KafkaError) as refused:
        log.read_as_replica(damage.due_offset, 1, True)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    before, after = log.read_checked(0, 1 << 20), log.read_checked(damage.next_offset, 1 << 20)
    assert before is not None
    assert before.read() == b"".join(batches[:5])
    assert after is not None
    assert after.read() == b"".join(batches[6:])
    home.append(leader, a_batch(2), epoch=5)
    copy(leader, log, home)
    new = log.read_checked(log.log_end_offset - 1, 1 << 20)
    assert new is not None
    assert new.read() == read_all(leader)[-1]


def test_a_damaged_length_does_not_hide_the_high_watermark(tmp_path: Path) -> None:
    home = Home(tmp_path, index_interval_bytes=10_000)
    log = home.open()
    for _ in range(10):
        home.append(log, a_batch(1))
    batch_bytes = log.segments[0].size_bytes // 10
    log = home.restart(log)
    flip(home.files(".log")[0], batch_bytes * 3 + 8, 0x40)  # the length of the fourth batch
    log.restore_high_watermark(8)
    found = log.read(5, 1 << 20, end_offset=log.high_watermark)
    assert found is not None
    assert (found.position, found.length) == (batch_bytes * 5, batch_bytes * 3)


def test_a_damaged_leader_epoch_is_found(tmp_path: Path) -> None:
    home, log, leader = a_pair(tmp_path)
    path = home.files(".log")[1]
    before = path.read_bytes()
    flip(path, 15)  # the CRC does not cover it
    scrub(log)
    assert len(log.damages) == 1
    repair(log, leader)
    assert path.read_bytes() == before


def test_a_scrub_stops_below_the_high_watermark(tmp_path: Path) -> None:
    _, log, _ = a_pair(tmp_path, batches=20)
    size = log.segments[-1].size_bytes
    log.append_as_follower(memoryview(stamped(a_batch(1), log.log_end_offset, 9)), 9, 0)
    flip(log.segments[-1].path, size + 70 if size < 1900 else 70)
    scrub(log)
    assert log.damages == []


def stamped(batch: bytearray, offset: int, epoch: int) -> bytearray:
    batch[:8] = offset.to_bytes(8, "big")
    batch[12:16] = epoch.to_bytes(4, "big")
    return batch


def test_damage_found_by_a_read_is_repaired(tmp_path: Path) -> None:
    home, log, leader = a_pair(tmp_path)
    log = home.restart(log)
    before = contents(home)
    flip(home.files(".log")[1], 100)
    with pytest.raises(KafkaError):
        read_all(log)
    assert [each.is_repaired for each in repair(log, leader)] == [True]
    assert contents(home) == before
    assert read_all(log) == read_all(leader)


def a_repair(tmp_path: Path) -> tuple[Home, Log, list[bytes], RangeRepair]:
    """The repair of the third of some batches of two records."""
    home = Home(tmp_path, index_interval_bytes=10_000)
    log = home.open()
    for number in range(6):
        home.append(log, a_batch(2), epoch=number // 4)
    batches = read_all(log)
    flip(home.files(".log")[0], sum(map(len, batches[:2])) + 70)
    scrub(log)
    (planned,) = plan_repairs(log)
    return home, log, batches, planned


def a_batch_of(size_bytes: int, count: int) -> bytearray:
    """A batch of a given size."""
    padding = size_bytes - len(build_batch([Record(value=b"")] * count))
    return build_batch([Record(value=b"v" * padding), *[Record(value=b"")] * (count - 1)])


@pytest.mark.parametrize(
    "what",
    ["later", "earlier", "another epoch", "smaller", "larger", "with a gap", "more offsets", "nothing"],
)
def test_batches_that_do_not_fit_are_refused(tmp_path: Path, what: str) -> None:
    _, log, batches, planned = a_repair(tmp_path)
    size_bytes = len(batches[2])
    wrong: dict[str, bytes | bytearray] = {
        "later": batches[3],
        "earlier": stamped(bytearray(batches[2]), 3, 0),
        "another epoch": stamped(bytearray(batches[2]), 4, 1),
        "smaller": stamped(a_batch_of(size_bytes - 1, 2), 4, 0),
        "larger": stamped(a_batch_of(size_bytes + 1, 2), 4, 0),
        "with a gap": stamped(a_batch_of(size_bytes, 1), 5, 0),
        "more offsets": stamped(a_batch_of(size_bytes, 3), 4, 0),
        "nothing": b"",
    }
    if what in ("with a gap", "more offsets"):
        assert len(wrong[what]) == size_bytes
    with pytest.raises(MisfitError):
        planned.add(memoryview(wrong[what]))
    assert len(log.damages) == 1


def test_a_damaged_batch_of_the_other_replica_is_refused(tmp_path: Path) -> None:
    _, log, batches, planned = a_repair(tmp_path)
    damaged = bytearray(batches[2])
    damaged[-1] ^= 1
    with pytest.raises(InvalidBatchError):
        planned.add(memoryview(damaged))
    assert len(log.damages) == 1


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_range_that_cannot_be_written_stays_damaged(tmp_path: Path, operation: str) -> None:
    home, log, batches, planned = a_repair(tmp_path)
    planned.add(memoryview(batches[2]))
    home.disk.failing.add(operation)  # type: ignore[arg-type]
    with pytest.raises(OSError, match="Input/output"):
        planned.run()
    home.disk.failing.clear()
    with pytest.raises(KafkaError):
        log.read_checked(4, 1)
    (again,) = plan_repairs(log)
    again.add(memoryview(batches[2]))
    again.run()
    again.finish()
    assert read_all(log) == batches


def test_a_truncation_ends_a_repair(tmp_path: Path) -> None:
    home, log, batches, planned = a_repair(tmp_path)
    planned.add(memoryview(batches[2]))
    for path in log.truncate_to(2, 0):
        os.unlink(path)
    for _ in range(3):
        home.append(log, a_batch(2, size_bytes=21), epoch=2)
    after = read_all(log)
    planned.run()
    planned.finish()
    assert not planned.is_repaired
    assert read_all(home.restart(log)) == after


def test_a_truncation_waits_for_a_write_under_way(tmp_path: Path) -> None:
    _, log, batches, planned = a_repair(tmp_path)
    planned.add(memoryview(batches[2]))
    truncating = threading.Thread(target=log.truncate_to, args=(2, 0))
    with log.rewriting:
        truncating.start()
        truncating.join(0.05)
        assert log.log_end_offset == 12
    truncating.join()
    assert log.log_end_offset == 2


def test_a_scrub_of_a_segment_that_is_truncated_meanwhile_finds_nothing(tmp_path: Path) -> None:
    home, log, batches, _ = a_repair(tmp_path)

    def truncate() -> None:
        log.truncate_to(2, 0)
        home.append(log, a_batch(2), epoch=2)

    scrub(log, meanwhile=truncate)
    assert log.damages == []
    assert read_all(log)[0] == batches[0]


def test_damage_stays_known_while_producers_go_on(tmp_path: Path) -> None:
    home, log, batches, planned = a_repair(tmp_path)
    for _ in range(5):
        home.append(log, a_batch(2), epoch=1)
    flush(log)
    log.roll(0)
    home.append(log, a_batch(2), epoch=1)
    with pytest.raises(KafkaError):
        log.read_checked(5, 1)
    planned.add(memoryview(batches[2]))
    planned.run()
    planned.finish()
    assert read_all(log)[:6] == batches
