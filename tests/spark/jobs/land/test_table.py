"""A table of the warehouse: commits, crashes between any two steps, merges, readers."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from skylog.spark.jobs.land import files as land_files
from skylog.spark.jobs.land import visible
from skylog.spark.jobs.land.commit_log import CommitLog
from skylog.spark.jobs.land.errors import ConcurrentWriterError, TableError
from skylog.spark.jobs.land.merge import MANY_FILES, Merger, MergeSettings
from skylog.spark.jobs.land.staged import landed
from skylog.spark.jobs.land.table import Table, home_of, snapshot
from skylog.testing import ManualClock
from tests.spark.jobs.land.making import HOUR_MS, offsets_in, offsets_listed, offsets_seen, put, stage

STATE_EVERY = 10
TARGET_BYTES = 1 << 20
NO_GRACE = MergeSettings(after_ms=0, grace_ms=0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "warehouse" / "views"


@contextmanager
def opened(path: Path, clock: ManualClock | None = None) -> Iterator[Table]:
    table = Table(path, "views", clock or ManualClock())
    try:
        yield table
    finally:
        table.close()


def merge(table: Table, settings: MergeSettings = NO_GRACE) -> int:
    return Merger([table], TARGET_BYTES, settings).run()


def file_count(path: Path) -> int:
    return len(list(path.glob("event_date=*/event_hour=*/*.parquet")))


def test_increments_are_seen_by_plain_readers_and_in_snapshots(path: Path) -> None:
    with opened(path) as table:
        put(table, 0, 10)
        put(table, 10, 15)
        assert table.state.end_offsets == {0: 15}
    assert offsets_seen(path) == offsets_in(snapshot(path)) == list(range(15))
    assert sorted(found.name for found in (path / "event_date=2026-03-01").iterdir()) == [
        "event_hour=12",
        "event_hour=13",
    ]


def test_what_does_not_parse_is_in_the_side_table_in_the_same_commit(path: Path) -> None:
    with opened(path) as table:
        put(table, 0, 10, unparsed=[3, 4])
        assert sum(count.messages for part in table.unreported[0].landed for count in part.counts) == 10
    assert offsets_seen(path) == [0, 1, 2, 5, 6, 7, 8, 9]
    assert offsets_seen(path.with_name("views__unparsed")) == offsets_in(snapshot(path, unparsed=True)) == [3, 4]


def test_a_second_writer_is_refused(path: Path) -> None:
    with opened(path) as table:
        with pytest.raises(ConcurrentWriterError, match="another land job writes this table"):
            Table(path, "views")
        put(table, 0, 1)
    with opened(path) as table:
        assert table.state.end_offsets == {0: 1}


def test_a_writer_that_does_not_see_the_lock_cannot_commit_the_same_version(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fcntl.flock", lambda *_: None)
    with opened(path) as table, opened(path) as other:
        files = stage(other, range(5))
        put(table, 0, 10)
        with pytest.raises(ConcurrentWriterError):
            other.land(files, [], {0: 5}, {})
        with pytest.raises(TableError, match="open the table again"):
            put(other, 0, 5)
    assert offsets_in(snapshot(path)) == list(range(10))


def test_what_has_landed_is_refused_when_it_comes_again(path: Path) -> None:
    with opened(path) as table:
        put(table, 0, 10)
        files = stage(table, range(5, 15))
        with pytest.raises(TableError, match="views-0 has landed up to offset 10, and offset 5 comes again"):
            table.land(files, landed("views", files, {0: 5}, {0: 15}), {0: 15}, {})
        put(table, 10, 12)  # the table is as good as before
    assert offsets_seen(path) == list(range(12))


def test_a_disk_that_refuses_is_told_and_nothing_is_lost(path: Path) -> None:
    with opened(path) as table:
        put(table, 0, 10)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(TableError, match=r"the commit failed .*No space left on device.* run the job again"):
                put(table, 10, 20)
    assert offsets_seen(path) == list(range(10))
    with opened(path) as table:
        put(table, 10, 20)
    assert offsets_seen(path) == list(range(20))


def full(_: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_table_of_another_topic_is_refused(path: Path) -> None:
    with opened(path) as table:
        put(table, 0, 1)
    with pytest.raises(TableError, match="is the table of topic 'views', not of 'clicks'"):
        Table(path, "clicks")


def test_a_long_log_is_shortened_and_says_the_same(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skylog.spark.jobs.land.table.STATE_EVERY", STATE_EVERY)
    with opened(path) as table:
        for number in range(2 * STATE_EVERY + 5):
            put(table, number, number + 1, hours=1)
    names = sorted(os.listdir(home_of(path) / "log"))
    assert len([name for name in names if name.endswith(".state.json")]) == 2
    assert f"{STATE_EVERY:020d}.json" not in names
    with opened(path) as table:
        assert table.state.end_offsets == {0: 2 * STATE_EVERY + 5}
    assert len(snapshot(path)) == file_count(path) == 2 * STATE_EVERY + 5
    (home_of(path) / "log" / f"{2 * STATE_EVERY + 2:020d}.json").unlink()
    with pytest.raises(TableError, match=f"version {2 * STATE_EVERY + 2} is missing"):
        CommitLog(home_of(path) / "log").read()


# -- merges


def test_small_files_of_an_hour_become_one_and_snapshots_from_before_still_read(path: Path) -> None:
    clock = ManualClock()
    with opened(path, clock) as table:
        for number in range(5):
            put(table, number * 10, number * 10 + 10)
        before = snapshot(path)
        assert merge(table, MergeSettings(after_ms=60_000)) == 0  # something landed a moment ago
        clock.advance_ms(60_000)
        assert merge(table, MergeSettings(after_ms=60_000)) == 10
        assert file_count(path) == len(snapshot(path)) == 2
        assert offsets_in(before) == offsets_seen(path) == offsets_in(snapshot(path)) == list(range(50))
        assert merge(table, MergeSettings(after_ms=60_000)) == 0
        clock.advance_ms(HOUR_MS)
        merge(table)
        assert not any(Path(file).exists() for file in before)
        assert table.state.end_offsets == {0: 50}
        assert offsets_seen(path) == list(range(50))


def test_an_hour_that_is_written_to_is_merged_once_it_has_many_files(path: Path) -> None:
    with opened(path) as table:
        for number in range(MANY_FILES - 1):
            put(table, number, number + 1, hours=1)
        assert merge(table, MergeSettings()) == 0
        put(table, MANY_FILES - 1, MANY_FILES, hours=1)
        assert merge(table, MergeSettings()) == MANY_FILES
        assert offsets_seen(path) == list(range(MANY_FILES))


def test_merged_files_are_about_as_large_as_they_should_be(path: Path) -> None:
    with opened(path) as table:
        for number in range(20):
            put(table, number * 1000, number * 1000 + 1000, hours=1)
        size_bytes = sum(file.size_bytes for files in table.current().values() for file in files)
        Merger([table], size_bytes // 4, NO_GRACE).run()
        sizes = [file.rows for files in table.current().values() for file in files]
        assert sizes == [5000] * 4
        assert offsets_seen(path) == list(range(20_000))


def test_files_with_more_columns_are_merged_with_those_before(path: Path) -> None:
    with opened(path) as table:
        put(table, 0, 3, hours=1)
        put(table, 3, 5, hours=1, page="/about")
        merge(table)
    (file,) = snapshot(path)
    assert pq.read_table(file)["page"].to_pylist() == [None, None, None, "/about", "/about"]


def test_where_directories_cannot_be_exchanged_nothing_is_merged(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(land_files, "_renameat2", lambda: None)
    with opened(path) as table:
        put(table, 0, 5)
        put(table, 5, 9)
        assert merge(table) == 0
    assert "small files are not merged" in caplog.text
    assert offsets_seen(path) == list(range(9))


# -- crashes


class Died(BaseException):
    """The process is gone: nobody catches this."""


CALLS = ("rename", "link", "fsync", "unlink", "mkdir", "rmdir")


class Mortal:
    """Lets the process die before its n-th call that changes a disk; from then on nothing reaches the disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, survives: int) -> None:
        self.left = survives
        for name in CALLS:
            monkeypatch.setattr(os, name, self._mortal(getattr(os, name)))
        monkeypatch.setattr(visible, "exchange", self._mortal(land_files.exchange))
        monkeypatch.setattr(visible, "remove_tree", self._mortal(land_files.remove_tree))

    def _mortal(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **options: Any) -> Any:
            if not self.left:
                raise Died
            self.left -= 1
            return call(*arguments, **options)

        return called


def live_and_merge(path: Path, clock: ManualClock) -> None:
    """What the job does, from wherever the table is."""
    with opened(path, clock) as table:
        put(table, 0, 6, unparsed=[2] if not table.state.end_offsets else [])
        put(table, 6, 9)
        put(table, 9, 12)
        merge(table)


def test_a_crash_between_any_two_steps_leaves_each_record_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dies at every call that changes the disk in the life of a table, one after the other, and lives once more."""
    monkeypatch.setattr(os, "fsync", lambda _: None)  # a process that dies leaves the page cache as it is
    clock = ManualClock()
    for survives in range(1000):
        path = tmp_path / str(survives) / "views"
        with pytest.MonkeyPatch.context() as patch:
            mortal = Mortal(patch, survives)
            try:
                live_and_merge(path, clock)
            except Died:
                pass
            else:
                break
            finally:
                assert mortal.left >= 0
        check_readers(path)
        if home_of(path).exists():
            with opened(path, clock) as table:
                check_readers(path)
                end = table.state.end_offsets.get(0, 0)
                assert end in (0, 6, 9, 12)
                assert offsets_listed(path) == offsets_in(snapshot(path)) == [n for n in range(end) if n != 2]
                kept = {file.name for files in table.current().values() for file in files}
                kept |= {Path(name).name for name in table.state.removed}
                assert {found.name for found in (home_of(path) / "files").rglob("*.parquet")} <= kept
                assert not list(table.staging.iterdir())
        live_and_merge(path, clock)
        assert offsets_listed(path) == offsets_in(snapshot(path)) == [n for n in range(12) if n != 2]
        assert offsets_listed(path.with_name("views__unparsed")) == [2]
    assert survives > 60


def check_readers(path: Path) -> None:
    """Before the table is opened again a reader sees no record twice, and none that was not committed."""
    seen = offsets_listed(path)
    assert len(seen) == len(set(seen))
    if (home_of(path) / "log").is_dir():
        assert set(seen) <= set(offsets_in(snapshot(path)))
