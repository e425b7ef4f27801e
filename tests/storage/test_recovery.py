"""Opening a log after a crash: the torn end is cut, nothing sound is lost, nothing damaged is served, no hole left."""

from __future__ import annotations

import shutil
from pathlib import Path
from struct import pack_into

import pytest

from skylog.errors import ErrorCode, KafkaError
from skylog.records import Codec, Record, build_batch, check_batch
from skylog.storage import Log
from skylog.storage.leader_epochs import LeaderEpochs
from tests.present import present
from tests.storage.logs import Home, a_batch, flush, header_of, idempotent, read_all


def mixed(home: Home, count: int = 18) -> list[bytes]:
    """A log of plain, compressed, idempotent and large batches, left as a crash leaves it; its batches."""
    log = home.open()
    for number in range(count):
        batch = (
            a_batch(1 + number % 3, 5 * number),
            a_batch(2, 30, codec=Codec.ZSTD),
            idempotent(number // 3),
        )[number % 3]
        home.append(log, batch, epoch=number // 7)
    return read_all(log)


def copy_of(home: Home, place: Path) -> Home:
    other = Home(place)
    other.config = home.config
    if other.directory.exists():
        shutil.rmtree(other.directory)
    shutil.copytree(home.directory, other.directory)
    return other


def ends(batches: list[bytes]) -> list[int]:
    """The positions at which batches end, in one file."""
    position, result = 0, [0]
    for batch in batches:
        position += len(batch)
        result.append(position)
    return result


def test_a_log_cut_at_any_byte_ends_with_its_last_whole_batch(home: Home, tmp_path: Path) -> None:
    stored = mixed(home, 11)
    last = home.files(".log")[-1]
    base_offset, data = int(last.stem), last.read_bytes()
    older = [batch for batch in stored if header_of(batch).base_offset < base_offset]
    in_last = stored[len(older) :]
    assert len(in_last) >= 3
    for size_bytes in range(len(data)):
        other = copy_of(home, tmp_path / "cut")
        (other.directory / last.name).write_bytes(data[:size_bytes])
        whole = sum(end <= size_bytes for end in ends(in_last)) - 1
        log = other.open(recovery_point=base_offset if size_bytes % 2 else 0)
        expected = older + in_last[:whole]
        assert log.log_end_offset == header_of(expected[-1]).end_offset
        assert home.append(log, a_batch(3)).base_offset == header_of(expected[-1]).end_offset
        assert read_all(log)[:-1] == expected


@pytest.mark.parametrize("kept", [0.0, 0.5, None])
def test_a_log_that_lacks_what_was_on_disk_says_so(
    home: Home, caplog: pytest.LogCaptureFixture, kept: float | None
) -> None:
    stored = mixed(home, 11)
    end_offset = header_of(stored[-1]).end_offset
    assert home.open(recovery_point=end_offset).log_end_offset == end_offset
    assert "was on disk" not in caplog.text
    last = home.files(".log")[-1]
    data = last.read_bytes()
    if kept is None:
        last.unlink()
    else:
        last.write_bytes(data[: int(len(data) * kept)])
    log = home.open(recovery_point=end_offset)
    expected = f"ends at offset {log.log_end_offset}, although all before {end_offset} was on disk"
    assert f"{home.directory}: {expected}" in caplog.text


def test_any_flipped_bit_after_a_crash_is_found_and_the_log_ends_before_it(home: Home, tmp_path: Path) -> None:
    stored = mixed(home, 11)
    last = home.files(".log")[-1]
    base_offset, data = int(last.stem), last.read_bytes()
    older = [batch for batch in stored if header_of(batch).base_offset < base_offset]
    in_last = stored[len(older) :]
    positions = ends(in_last)
    for index in range(len(data)):
        damaged = bytearray(data)
        damaged[index] ^= 1 << index % 8
        number = sum(end <= index for end in positions) - 1
        if 12 <= index - positions[number] < 16:
            continue  # the leader epoch: no checksum covers it
        other = copy_of(home, tmp_path / "flipped")
        (other.directory / last.name).write_bytes(damaged)
        log = other.open(recovery_point=base_offset)
        assert read_all(log) == older + in_last[:number], f"byte {index}"


def test_garbage_of_any_kind_behind_the_log_is_cut(home: Home, tmp_path: Path) -> None:
    stored = mixed(home)
    last = home.files(".log")[-1]
    huge = build_batch([Record(value=b"x" * 50)], base_offset=10**6)
    pack_into(">i", huge, 8, 2**31 - 1)
    for garbage in (b"\0", b"\0" * 61, b"\0" * 100_000, b"\xff" * 300, bytes(huge), stored[0], b"\x02" * 5000):
        other = copy_of(home, tmp_path / "garbage")
        path = other.directory / last.name
        path.write_bytes(path.read_bytes() + garbage)
        log = other.open()
        assert read_all(log) == stored
        assert path.stat().st_size == last.stat().st_size


def test_a_batch_larger_than_a_chunk_is_checked_whole(tmp_path: Path) -> None:
    home = Home(tmp_path, max_message_bytes=20_000_000)
    log = home.open()
    for size_bytes in (100, 5_000_000, 100, 4_194_000, 100):
        home.append(log, a_batch(1, size_bytes))
    stored = read_all(log, 1 << 24)
    assert read_all(home.open(), 1 << 24) == stored
    path = home.files(".log")[0]
    with path.open("r+b") as file:
        file.seek(4_900_000)
        file.write(b"!")
    assert read_all(home.open(), 1 << 24) == stored[:1]


def test_segments_behind_a_cut_are_removed_at_once_and_their_names_used_again(home: Home) -> None:
    log = home.open()
    for _ in range(40):
        home.append(log, a_batch())
    stored, bases = read_all(log), [segment.base_offset for segment in log.segments]
    second = home.files(".log")[1]
    second.write_bytes(second.read_bytes()[:-1])
    log = home.open()
    assert log.log_end_offset == bases[2] - 1
    assert len(home.files(".log")) == 2
    assert {path.stem for path in home.files("index")} <= {path.stem for path in home.files(".log")}
    for _ in range(40):
        home.append(log, a_batch(timestamp=7))
    assert read_all(log)[: bases[2] - 1] == stored[: bases[2] - 1]
    assert len(read_all(log)) == bases[2] - 1 + 40
    assert read_all(home.open()) == read_all(log)


def test_a_missing_middle_segment_leaves_no_hole(home: Home) -> None:
    stored = mixed(home, 40)
    middle = home.files(".log")[2]
    middle.unlink()
    log = home.open()
    assert log.log_end_offset == int(middle.stem)
    assert read_all(log) == [batch for batch in stored if header_of(batch).base_offset < int(middle.stem)]


def test_a_gap_below_the_recovery_point_is_reported_and_the_rest_is_kept(home: Home) -> None:
    log = home.open()
    for _ in range(40):
        home.append(log, a_batch())
    flush(log)
    stored = read_all(log)
    first, middle, after = (int(path.stem) for path in home.files(".log")[1:4])
    home.files(".log")[2].unlink()
    log = home.open(recovery_point=40)
    assert log.log_end_offset == 40
    for offset in range(40):
        if middle <= offset < after:
            with pytest.raises(KafkaError) as caught:
                log.read(offset, 1000)
            assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
        else:
            assert present(log.read(offset, 1)).read() == stored[offset]
    assert first < middle


def test_damage_below_the_recovery_point_costs_nothing_else(home: Home) -> None:
    log = home.open()
    for _ in range(3):
        home.append(log, a_batch())
    flush(log)
    home.append(log, a_batch())
    stored = read_all(log)
    path = home.files(".log")[0]
    for index in range(len(stored[0]), 2 * len(stored[0])):
        damaged = bytearray(b"".join(stored))
        damaged[index] ^= 0x40
        path.write_bytes(damaged)
        log = home.open(recovery_point=3)
        assert log.log_end_offset == 4
        assert [present(log.read(offset, 1)).read() for offset in (0, 2, 3)] == [stored[0], stored[2], stored[3]]


def test_recovery_reads_only_from_the_recovery_point_on(tmp_path: Path) -> None:
    home = Home(tmp_path, segment_bytes=100_000, index_interval_bytes=200)
    log = home.open()
    for number in range(4000):
        home.append(log, a_batch(timestamp=number))
    flush(log)
    for number in range(10):
        home.append(log, a_batch(timestamp=5000 + number))
    stored = read_all(log)
    for path in home.files(".log")[:-1]:
        path.write_bytes(bytes(path.stat().st_size))
    home.disk.calls.clear()
    log = home.open(recovery_point=4000)
    assert home.disk.calls["read"] < 30
    assert log.log_end_offset == 4010
    offset = log.segments[-1].base_offset
    assert present(log.read(offset, 1)).read() == stored[offset]
    assert present(log.find_max_timestamp()).offset == 4009


@pytest.mark.parametrize("shift", [1, 60, 1 << 32, 5 << 32, 3 * len(a_batch()), -3 * len(a_batch())])
def test_an_index_that_lies_does_not_make_recovery_cut_sound_batches(tmp_path: Path, shift: int) -> None:
    home = Home(tmp_path, index_interval_bytes=100)
    log = home.open()
    for number in range(2500):
        if number == 2200:
            flush(log)
        home.append(log, a_batch(timestamp=number))
    stored = read_all(log)
    path = home.files(".index")[0]
    entries = memoryview(bytearray(path.read_bytes())).cast("q")
    assert len(entries) == 1024
    for number in range(3, len(entries)):
        entries[number] += shift
    path.write_bytes(entries)
    log = home.open(recovery_point=2200 if shift % 2 else 2010)
    assert log.log_end_offset == 2500
    assert [present(log.read(offset, 1)).read() for offset in range(0, 2500, 7)] == stored[::7]


def test_the_latest_time_below_the_recovery_point_is_known_after_a_crash(home: Home) -> None:
    log = home.open()
    for timestamp in (10, 900, 20, 30):
        home.append(log, a_batch(timestamp=timestamp))
    flush(log)
    home.append(log, a_batch(timestamp=40))
    log = home.open(recovery_point=4)
    assert log.segments[-1].max_timestamp == 900
    assert present(log.find_time(100)).offset == 1


def test_an_index_left_by_a_segment_that_is_gone_is_not_taken_for_a_new_ones(home: Home) -> None:
    log = home.open()
    while log.segments[-1].size_bytes + len(a_batch()) <= 600:
        home.append(log, a_batch())
    for suffix in (".index", ".timeindex"):
        (home.directory / f"{log.log_end_offset:020d}{suffix}").write_bytes(b"\x01\x00\x00\x00\x00\x00\x00\x00" * 20)
    for _ in range(5):
        home.append(log, a_batch(timestamp=5))
    assert log.segments[-1].max_timestamp == 5
    assert len(read_all(log, 1)) == log.log_end_offset


def test_a_recovery_point_beyond_the_file_is_not_believed(home: Home) -> None:
    stored = mixed(home)
    last = home.files(".log")[-1]
    last.write_bytes(last.read_bytes()[:-5])
    log = home.open(recovery_point=10**6)
    assert read_all(log) == stored[:-1]
    assert log.recovery_point == log.log_end_offset


def test_a_gap_in_the_offsets_is_believed_where_the_next_batch_confirms_it(home: Home) -> None:
    """Compaction leaves such gaps."""
    log = home.open()
    for _ in range(4):
        home.append(log, a_batch())
    stored = read_all(log)
    home.files(".log")[0].write_bytes(stored[0] + stored[2] + stored[3])
    log = home.open()
    assert read_all(log) == [stored[0], stored[2], stored[3]]
    assert present(log.read(1, 1)).read() == stored[2]
    log = home.restart(log)
    assert read_all(log, 1) == [stored[0], stored[2], stored[3]]


# -- after a clean stop


def closed(home: Home, batches: int = 40) -> list[bytes]:
    log = home.open()
    for number in range(batches):
        home.append(log, a_batch(1 + number % 2, timestamp=number * 10))
    stored = read_all(log)
    flush(log)
    log.close()
    return stored


def test_opening_after_a_clean_stop_reads_nothing_of_the_data(home: Home) -> None:
    stored = closed(home)
    contents = {path: path.read_bytes() for path in home.files(".log")}
    for path, data in contents.items():
        path.write_bytes(bytes(len(data)))
    home.disk.calls.clear()
    log = home.open(clean=True)
    assert home.disk.calls["read"] == 0
    assert log.log_end_offset == header_of(stored[-1]).end_offset
    assert log.segments[-1].max_timestamp == 391
    for path, data in contents.items():
        path.write_bytes(data)
    assert read_all(log) == stored


def test_appends_go_on_after_a_clean_stop(home: Home) -> None:
    stored = closed(home)
    log = home.open(clean=True)
    for _ in range(3):
        batch = a_batch(2)
        home.append(log, batch)
        stored.append(bytes(batch))
        log = home.restart(log)
    assert read_all(log) == stored


def corrupt_or(log: Log, offset: int, max_bytes: int = 1) -> bytes | None:
    """Return the bytes that a reader gets at `offset`; None if it gets an error about damage."""
    try:
        return present(log.read(offset, max_bytes)).read()
    except KafkaError as error:
        if error.code is not ErrorCode.CORRUPT_MESSAGE:
            raise
        return None


@pytest.mark.parametrize("interval", [0, 100, 10_000])
def test_a_damaged_old_batch_is_never_served_and_its_neighbours_are(tmp_path: Path, interval: int) -> None:
    home = Home(tmp_path, index_interval_bytes=interval)
    stored = closed(home, 5)
    path = home.files(".log")[0]
    data = path.read_bytes()
    positions = ends(stored)
    for index in range(positions[2], positions[3]):
        if 12 <= index - positions[2] < 16:
            continue  # the leader epoch: no checksum covers it
        damaged = bytearray(data)
        damaged[index] ^= 1 << index % 8
        path.write_bytes(damaged)
        log = home.open(clean=True)
        for batch in stored:
            header = header_of(batch)
            for offset in range(header.base_offset, header.end_offset):
                assert corrupt_or(log, offset) == (None if batch is stored[2] else batch), f"byte {index}"
        assert corrupt_or(log, 0, 10_000) == stored[0] + stored[1]
        assert corrupt_or(log, header_of(stored[3]).base_offset, 10_000) == stored[3] + stored[4]
        another = a_batch()
        end_offset = home.append(log, another).base_offset
        assert corrupt_or(log, end_offset) == bytes(another)


def test_a_damaged_batch_in_a_closed_segment_leaves_the_other_segments_alone(home: Home) -> None:
    stored = closed(home)
    path = home.files(".log")[1]
    victim = next(batch for batch in stored if header_of(batch).base_offset == int(path.stem))
    path.write_bytes(path.read_bytes().replace(victim, victim[:-1] + b"!"))
    log = home.open(clean=True)
    for batch in stored:
        assert corrupt_or(log, header_of(batch).base_offset) == (None if batch is victim else batch)


def test_checked_batches_are_not_checked_again(home: Home) -> None:
    closed(home)
    log = home.open(clean=True)
    read_all(log)
    path = home.files(".log")[-1]
    base_offset = int(path.stem)
    log.read(base_offset, 1 << 20)
    home.disk.calls.clear()
    log.read(base_offset, 1 << 20)
    assert home.disk.calls["read"] == 0


def test_a_read_from_checked_batches_into_damaged_ones_ends_before_them(tmp_path: Path) -> None:
    home = Home(tmp_path)
    stored = closed(home, 5)
    path = home.files(".log")[0]
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    log = home.open(clean=True)
    assert corrupt_or(log, 0, len(stored[0])) == stored[0]
    assert corrupt_or(log, 0, 10_000) == b"".join(stored[:4])


@pytest.mark.parametrize("interval", [0, 150, 10_000])
@pytest.mark.parametrize("index", ["sound", "damaged", "missing"])
def test_batches_written_after_a_restart_are_found_past_old_damage(tmp_path: Path, interval: int, index: str) -> None:
    home = Home(tmp_path, index_interval_bytes=interval)
    stored = closed(home, 5)
    if index == "damaged":
        path = home.files(".timeindex")[0]
        path.write_bytes(b"!" + path.read_bytes()[1:])
    if index == "missing":
        home.files(".index")[0].unlink()
    path = home.files(".log")[0]
    data = bytearray(path.read_bytes())
    pack_into(">i", data, ends(stored)[4] + 8, 75)  # the last old batch claims another length
    path.write_bytes(data)
    log = home.open(clean=True)
    fresh = [a_batch(2) for _ in range(5)]
    for batch in fresh:
        home.append(log, batch)
    for batch in fresh:
        for offset in range(header_of(batch).base_offset, header_of(batch).end_offset):
            assert corrupt_or(log, offset) == bytes(batch)


# -- leader epochs


def test_epochs_are_kept_and_those_lost_in_a_crash_are_restored_from_the_batches(home: Home) -> None:
    log = home.open()
    for epoch in (0, 0, 2, 2, 5):
        home.append(log, a_batch(), epoch=epoch)
    expected = [(0, 0), (2, 2), (5, 4)]
    for forget in (False, True):
        if forget:
            (home.directory / "leader-epoch-checkpoint").unlink()
        log = home.open()
        assert [log.epochs.epoch_of(start) for _, start in expected] == [epoch for epoch, _ in expected]
        assert log.epochs.latest == 5
        assert log.epochs.end_offset_for(0, log.log_end_offset) == (0, 2)
        assert log.epochs.end_offset_for(3, log.log_end_offset) == (2, 4)
        assert log.epochs.end_offset_for(5, log.log_end_offset) == (5, 5)
        assert log.epochs.end_offset_for(6, log.log_end_offset) == (-1, -1)


@pytest.mark.parametrize("content", [None, b"", b"0\n9\n0 0\n"])
def test_a_lost_history_of_epochs_is_restored_from_all_batches_also_after_a_clean_stop(
    home: Home, content: bytes | None
) -> None:
    """Without it a follower would say that its log is empty, and its leader would not look for a divergence."""
    log = home.open()
    for epoch in (0, 0, 2, 2, 5):
        home.append(log, a_batch(), epoch=epoch)
    flush(log)
    log.close()
    path = home.directory / "leader-epoch-checkpoint"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    opened = home.open(clean=True)
    assert [opened.epochs.epoch_of(offset) for offset in range(5)] == [0, 0, 2, 2, 5]
    assert opened.epochs.latest == 5


def test_a_history_of_epochs_from_before_a_truncation_is_corrected_by_the_batches(home: Home) -> None:
    """The machine crashes after a follower has replaced batches of epoch 3. Its file still says that they are there."""
    log = home.open()
    for epoch in (0, 0, 3, 3):
        home.append(log, a_batch(), epoch=epoch)
    path = home.directory / "leader-epoch-checkpoint"
    before = path.read_bytes()
    log.truncate_to(2, 0)
    for epoch in (1, 1, 4):
        home.append(log, a_batch(), epoch=epoch)
    path.write_bytes(before)
    opened = home.open(recovery_point=2)
    assert [opened.epochs.epoch_of(offset) for offset in range(5)] == [0, 0, 1, 1, 4]
    assert opened.epochs.end_offset_for(1, opened.log_end_offset) == (1, 4)


def test_epochs_of_batches_that_were_cut_are_forgotten(home: Home) -> None:
    log = home.open()
    home.append(log, a_batch(), epoch=1)
    home.append(log, a_batch(), epoch=2)
    path = home.files(".log")[0]
    path.write_bytes(path.read_bytes()[:-1])
    log = home.open()
    assert log.epochs.latest == 1
    home.append(log, a_batch(), epoch=3)
    assert log.epochs.end_offset_for(1, log.log_end_offset) == (1, 1)


@pytest.mark.parametrize("recovery_point", [0, 1])
def test_epochs_of_batches_that_did_not_reach_the_disk_are_forgotten(home: Home, recovery_point: int) -> None:
    """The file with the epochs was on disk before the batches, and the log ends with a whole batch."""
    log = home.open()
    home.append(log, a_batch(), epoch=1)
    size_bytes = log.size_bytes
    home.append(log, a_batch(), epoch=2)
    path = home.files(".log")[0]
    path.write_bytes(path.read_bytes()[:size_bytes])
    log = home.open(recovery_point=recovery_point)
    assert log.epochs.latest == 1
    assert LeaderEpochs(home.directory).latest == 1


def test_epochs_are_those_of_the_batches_if_a_truncation_did_not_reach_the_disk(home: Home) -> None:
    log = home.open()
    home.append(log, a_batch(), epoch=0)
    home.append(log, a_batch(), epoch=1)
    LeaderEpochs(home.directory)._save([(0, 0), (2, 1)])
    log = home.open(recovery_point=1)
    assert log.epochs.latest == 1
    assert log.epochs.end_offset_for(0, log.log_end_offset) == (0, 1)


@pytest.mark.parametrize("content", ["", "0\n", "0\n2\n1 0\n", "7\n1\n1 0\n", "0\n1\nx y\n", "0\n2\n2 5\n1 7\n"])
def test_a_damaged_epoch_file_is_rewritten(home: Home, content: str) -> None:
    log = home.open()
    home.append(log, a_batch(), epoch=4)
    path = home.directory / "leader-epoch-checkpoint"
    path.write_text(content)
    assert LeaderEpochs(home.directory).latest == -1
    assert home.open().epochs.latest == 4


def test_an_epoch_that_could_not_be_written_is_written_with_the_next_append(home: Home) -> None:
    log = home.open()
    blocker = home.directory / "leader-epoch-checkpoint.tmp"
    blocker.mkdir()
    with pytest.raises(KafkaError) as caught:
        home.append(log, a_batch(), epoch=1)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    blocker.rmdir()
    home.append(log, a_batch(), epoch=1)
    assert LeaderEpochs(home.directory).latest == 1
    check_batch(read_all(log)[0])
