"""The data directory: identity, lock, checkpoints, the mark of a clean stop, and logs that come and go."""

from __future__ import annotations

import errno
import os
import shutil
import tracemalloc
from pathlib import Path

import pytest

from skylog.errors import SkylogError
from skylog.model import MAX_TOPIC_NAME_LENGTH, TopicPartition
from skylog.storage import LogDir
from skylog.storage.checkpoint import LOG_STARTS, RECOVERY_POINTS, read_checkpoint, write_checkpoint
from skylog.storage.log_dir import CLEAN_SHUTDOWN, delete
from skylog.testing import DiskFaults, ManualClock
from tests.present import present
from tests.storage.logs import a_batch, flush, read_all, settings

CLICKS = TopicPartition("clicks", 0)
VIEWS = TopicPartition("page-views", 11)
CONFIG = settings(segment_bytes=600, index_interval_bytes=100)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def crash(log_dir: LogDir, into: Path) -> Path:
    """The directory as a kill -9 leaves it: a copy, since this process still holds the lock of the original."""
    shutil.copytree(log_dir.path, into)
    return into


def fill(log_dir: LogDir, name: TopicPartition = CLICKS, count: int = 20) -> list[bytes]:
    log = log_dir.open_log(name, CONFIG)
    for _ in range(count):
        log.advance_high_watermark(log.append_as_leader(a_batch(), 0, 0).end_offset)
    return read_all(log)


def test_a_second_broker_fails_because_the_directory_is_in_use(tmp_path: Path, clock: ManualClock) -> None:
    first = LogDir(tmp_path, clock)
    with pytest.raises(SkylogError, match="in use"):
        LogDir(tmp_path, clock)
    first.close()
    LogDir(tmp_path, clock).close()


def test_a_path_that_cannot_be_a_directory_is_an_error_that_names_it(tmp_path: Path, clock: ManualClock) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(SkylogError, match=r"cannot be a data directory.*choose another --data-dir"):
            LogDir(path, clock)


def test_a_directory_that_cannot_be_written_to_is_named(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    expected = r"cannot be a data directory: Read-only file system; choose another --data-dir"
    log_dir = LogDir(tmp_path / "full", clock)
    monkeypatch.setattr("skylog.storage.log_dir.replace_file", refuse)
    with pytest.raises(SkylogError, match=expected):
        log_dir.identify(1)
    monkeypatch.setattr("os.open", refuse)
    with pytest.raises(SkylogError, match=expected):
        LogDir(tmp_path, clock)


def test_the_identity_stays_and_another_brokers_directory_is_refused(tmp_path: Path, clock: ManualClock) -> None:
    log_dir = LogDir(tmp_path, clock)
    identity = log_dir.identify(3)
    assert len(identity.cluster_id) == 22
    assert log_dir.identify(3) == identity
    with pytest.raises(SkylogError, match="belongs to broker 3"):
        log_dir.identify(4)


@pytest.mark.parametrize("content", ["", "cluster.id=x\n", "cluster.id=x\nnode.id=one\n", "no separator\n"])
def test_a_damaged_identity_is_an_error(tmp_path: Path, clock: ManualClock, content: str) -> None:
    log_dir = LogDir(tmp_path, clock)
    (tmp_path / "meta.properties").write_text(content)
    with pytest.raises(SkylogError, match=r"meta\.properties is damaged"):
        log_dir.identify(1)


def test_after_a_clean_stop_no_log_file_is_read(tmp_path: Path, clock: ManualClock) -> None:
    log_dir = LogDir(tmp_path, clock)
    assert not log_dir.clean
    stored = {name: fill(log_dir, name) for name in (CLICKS, VIEWS)}
    log_dir.close()
    assert (tmp_path / CLEAN_SHUTDOWN).exists()
    disk = DiskFaults()
    again = LogDir(tmp_path, clock, disk.open_file)
    assert again.clean
    assert not (tmp_path / CLEAN_SHUTDOWN).exists()
    logs = {name: again.open_log(name, CONFIG) for name in (CLICKS, VIEWS)}
    assert disk.calls["read"] == 0
    assert {name: read_all(log) for name, log in logs.items()} == stored
    assert all(log.recovery_point == log.log_end_offset for log in logs.values())


@pytest.mark.parametrize("number", [0, 1, -1])
def test_a_log_that_was_cut_after_a_clean_stop_is_checked(tmp_path: Path, clock: ManualClock, number: int) -> None:
    log_dir = LogDir(tmp_path, clock)
    stored = fill(log_dir)
    log_dir.close()
    victim = sorted((tmp_path / str(CLICKS)).glob("*.log"))[number]
    victim.write_bytes(victim.read_bytes()[:-1])
    log = LogDir(tmp_path, clock).open_log(CLICKS, CONFIG)
    expected_end = 20 if number != -1 else 19
    assert log.log_end_offset == expected_end
    assert present(log.read(expected_end - 1, 1)).read() == stored[expected_end - 1]


def test_a_last_segment_that_went_missing_after_a_clean_stop_is_noticed(tmp_path: Path, clock: ManualClock) -> None:
    log_dir = LogDir(tmp_path, clock)
    stored = fill(log_dir, count=12)
    sizes = [segment.size_bytes for segment in log_dir.logs[CLICKS].segments]
    assert sizes == [sizes[0]] * len(sizes)  # all of one size: the last one alone would not tell
    log_dir.close()
    last = sorted((tmp_path / str(CLICKS)).glob("*.log"))[-1]
    last.unlink()
    log = LogDir(tmp_path, clock).open_log(CLICKS, CONFIG)
    assert log.log_end_offset == int(last.stem)
    assert read_all(log) == stored[: int(last.stem)]


def test_a_crash_loses_nothing_and_starts_at_the_checkpoint(tmp_path: Path, clock: ManualClock) -> None:
    log_dir = LogDir(tmp_path / "a", clock)
    stored = fill(log_dir)
    flush(log_dir.logs[CLICKS])
    log_dir.checkpoint_writer()()
    later = [a_batch() for _ in range(5)]
    for batch in later:
        log_dir.logs[CLICKS].append_as_leader(batch, 0, 0)
    again = LogDir(crash(log_dir, tmp_path / "b"), clock)
    assert not again.clean
    log = again.open_log(CLICKS, CONFIG)
    assert (log.recovery_point, log.log_end_offset) == (20, 25)
    assert read_all(log) == [*stored, *map(bytes, later)]


@pytest.mark.parametrize("stop", ["clean", "crash"])
def test_deleted_records_stay_deleted(tmp_path: Path, clock: ManualClock, stop: str) -> None:
    log_dir = LogDir(tmp_path / "a", clock)
    fill(log_dir)
    log_dir.logs[CLICKS].delete_records(7)
    log_dir.checkpoint_writer()()
    if stop == "clean":
        log_dir.close()
        again = LogDir(tmp_path / "a", clock)
    else:
        again = LogDir(crash(log_dir, tmp_path / "b"), clock)
    assert again.open_log(CLICKS, CONFIG).log_start_offset == 7


def test_a_checkpoint_that_is_written_late_does_not_undo_a_newer_one(tmp_path: Path, clock: ManualClock) -> None:
    log_dir = LogDir(tmp_path, clock)
    fill(log_dir)
    older = log_dir.checkpoint_writer()
    log_dir.logs[CLICKS].delete_records(7)
    log_dir.checkpoint_writer()()
    older()
    assert read_checkpoint(tmp_path / LOG_STARTS) == {CLICKS: 7}


def test_a_checkpoint_during_the_start_keeps_the_offsets_of_logs_still_to_open(
    tmp_path: Path, clock: ManualClock
) -> None:
    log_dir = LogDir(tmp_path, clock)
    for name in (CLICKS, VIEWS):
        fill(log_dir, name)
        log_dir.logs[name].delete_records(7)
    log_dir.close()
    again = LogDir(tmp_path, clock)
    again.open_log(CLICKS, CONFIG)
    again.checkpoint_writer()()
    assert read_checkpoint(tmp_path / LOG_STARTS) == {CLICKS: 7, VIEWS: 7}
    again.opened()
    again.checkpoint_writer()()
    assert read_checkpoint(tmp_path / LOG_STARTS) == {CLICKS: 7}


def test_a_log_that_takes_the_name_of_a_deleted_one_does_not_take_its_start(tmp_path: Path, clock: ManualClock) -> None:
    log_dir = LogDir(tmp_path / "a", clock)
    log_dir.opened()
    fill(log_dir)
    log_dir.logs[CLICKS].delete_records(15)
    log_dir.checkpoint_writer()()
    late = log_dir.checkpoint_writer()
    delete(log_dir.remove_log(CLICKS))
    assert not (tmp_path / "a" / str(CLICKS)).exists()
    stored = fill(log_dir, count=5)
    late()
    again = LogDir(crash(log_dir, tmp_path / "b"), clock)
    log = again.open_log(CLICKS, CONFIG)
    assert log.log_start_offset == 0
    assert read_all(log) == stored


def test_a_removed_log_is_set_aside_at_once_and_readers_finish(tmp_path: Path, clock: ManualClock) -> None:
    log_dir = LogDir(tmp_path, clock)
    stored = fill(log_dir)
    held = log_dir.logs[CLICKS].read(0, 1)
    aside = log_dir.remove_log(CLICKS)
    assert log_dir.leftovers() == [aside]
    delete(aside)
    assert present(held).read() == stored[0]
    assert log_dir.leftovers() == []


def test_a_log_with_the_longest_name_can_be_removed(tmp_path: Path, clock: ManualClock) -> None:
    log_dir = LogDir(tmp_path, clock)
    name = TopicPartition("n" * MAX_TOPIC_NAME_LENGTH, 99_999)
    fill(log_dir, name)
    aside = log_dir.remove_log(name)
    assert log_dir.leftovers() == [aside]


def test_only_folders_that_are_logs_count_as_left_over(tmp_path: Path, clock: ManualClock) -> None:
    log_dir = LogDir(tmp_path, clock)
    fill(log_dir, CLICKS)
    fill(log_dir, VIEWS)
    log_dir.close()
    for name, file in (("photos-2024", "beach.jpg"), ("backup.deleted", "x"), ("notes", "a"), ("logs-1", "a.log")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text("precious")
    (tmp_path / "a-file-1").write_text("precious")
    again = LogDir(tmp_path, clock)
    again.open_log(CLICKS, CONFIG)
    assert again.leftovers() == [tmp_path / str(VIEWS)]


def test_a_log_that_failed_leaves_no_mark_of_a_clean_stop(tmp_path: Path, clock: ManualClock) -> None:
    disk = DiskFaults()
    log_dir = LogDir(tmp_path, clock, disk.open_file)
    fill(log_dir)
    disk.failing.add("sync")
    log_dir.close()
    assert not (tmp_path / CLEAN_SHUTDOWN).exists()
    disk.failing.clear()
    again = LogDir(tmp_path, clock, disk.open_file)
    assert len(read_all(again.open_log(CLICKS, CONFIG))) == 20


def test_a_stop_that_cannot_write_its_checkpoints_still_gives_the_directory_free(
    tmp_path: Path, clock: ManualClock
) -> None:
    log_dir = LogDir(tmp_path, clock)
    stored = fill(log_dir)
    (tmp_path / f"{RECOVERY_POINTS}.tmp").mkdir()
    log_dir.close()
    assert not (tmp_path / CLEAN_SHUTDOWN).exists()
    assert read_all(LogDir(tmp_path, clock).open_log(CLICKS, CONFIG)) == stored


@pytest.mark.parametrize("content", ["", "0\n", "1\n0\n", "0\n2\nclicks 0 5\n", "0\n1\nclicks zero 5\n", "\udcff"])
def test_a_damaged_checkpoint_counts_as_none(tmp_path: Path, content: str) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(content.encode(errors="surrogateescape"))
    assert read_checkpoint(path) == {}
    assert read_checkpoint(tmp_path / "missing") == {}


def test_a_checkpoint_has_kafkas_form(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    offsets = {CLICKS: 5, VIEWS: 2**40}
    write_checkpoint(path, offsets)
    assert path.read_text() == f"0\n2\nclicks 0 5\npage-views 11 {2**40}\n"
    assert read_checkpoint(path) == offsets


def test_an_open_log_takes_a_few_kilobytes(tmp_path: Path, clock: ManualClock) -> None:
    log_dir = LogDir(tmp_path, clock)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(100):
            log_dir.open_log(TopicPartition("many", number), CONFIG).append_as_leader(a_batch(), 0, 0)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / 100 < 10_000
