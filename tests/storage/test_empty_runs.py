"""Batches that compaction has emptied: readers skip them, long runs off the event loop."""

from __future__ import annotations

from pathlib import Path

import pytest

from skylog.records import Record, build_batch, read_records
from skylog.storage import Log, UncheckedError
from skylog.storage.empty_runs import PASSED_AT_ONCE, EmptyRunCheck, EmptyRuns
from tests.storage.logs import Home

from .test_compaction import COMPACT, compact, roll_and_flush


def log_of_many_producers(home: Home, producers: int) -> Log:
    """A log in which each producer wrote the same key once, so that all batches except the last are empty."""
    log = home.open()
    for producer in range(producers):
        record = Record(b"value", b"key", home.clock.now_ms())
        home.append(log, build_batch([record], producer_id=producer, producer_epoch=0, base_sequence=0))
    roll_and_flush(home, log)
    home.append(log, build_batch([Record(b"last", b"key", home.clock.now_ms())]))
    roll_and_flush(home, log)
    compact(home, log)
    return log


def checks_until_read(log: Log, offset: int, max_bytes: int) -> tuple[list[type], list[bytes | None]]:
    """Run the checks that a read requires. Return them and the values that the read then returns."""
    checks: list[type] = []
    while True:
        try:
            found = log.read_checked(offset, max_bytes)
        except UncheckedError as unchecked:
            checks.append(type(unchecked.check))
            unchecked.check.run()
            unchecked.check.finish()
        else:
            assert found is not None
            return checks, [record.value for record in read_records(found.read())]


@pytest.mark.parametrize("max_bytes", [1, 100_000])
@pytest.mark.parametrize("offset", [0, 1, PASSED_AT_ONCE, 3 * PASSED_AT_ONCE])
def test_a_check_skips_many_emptied_batches_and_later_reads_skip_them_immediately(
    tmp_path: Path, offset: int, max_bytes: int
) -> None:
    log = log_of_many_producers(Home(tmp_path, **COMPACT), 5 * PASSED_AT_ONCE)
    checks, values = checks_until_read(log, offset, max_bytes)
    assert values == [b"last"]
    assert EmptyRunCheck in checks
    for later in (offset, offset + 1, offset + PASSED_AT_ONCE):
        assert checks_until_read(log, later, max_bytes) == ([], [b"last"])


def test_a_few_emptied_batches_are_skipped_immediately(tmp_path: Path) -> None:
    log = log_of_many_producers(Home(tmp_path, **COMPACT), 50)
    checks, values = checks_until_read(log, 0, 1)
    assert values == [b"last"]
    assert EmptyRunCheck not in checks


def test_a_log_that_begins_inside_an_emptied_batch_is_read_from_there(tmp_path: Path) -> None:
    home = Home(tmp_path, **COMPACT)
    log = home.open()
    records = [Record(b"value", b"key", home.clock.now_ms()) for _ in range(3)]
    home.append(log, build_batch(records, producer_id=7, producer_epoch=0, base_sequence=0))
    home.append(log, build_batch([Record(b"last", b"key", home.clock.now_ms())]))
    roll_and_flush(home, log)
    compact(home, log)
    log.delete_records(1)
    _, values = checks_until_read(log, 1, 1)
    assert values == [b"last"]


def test_runs_that_overlap_or_touch_become_one() -> None:
    runs = EmptyRuns()
    runs.add(100, 200, 20)
    runs.add(400, 500, 50)
    assert [runs.next_offset(position) for position in (99, 100, 199, 200, 400)] == [None, 20, 20, None, 50]
    runs.add(150, 300, 30)
    runs.add(50, 100, 10)
    assert [runs.next_offset(position) for position in (50, 100, 299, 300)] == [30, 30, 30, None]
    runs.add(300, 400, 40)
    assert {runs.next_offset(position) for position in range(50, 500)} == {50}
