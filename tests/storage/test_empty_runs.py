"""Batches that compaction has emptied: readers pass over them, and over many of them off the event loop."""

from __future__ import annotations

from pathlib import Path

import pytest

from skylog.records import Record, build_batch, read_records
from skylog.storage import Log, UncheckedError
from skylog.storage.empty_runs import PASSED_AT_ONCE, EmptyRunCheck, EmptyRuns
from tests.storage.logs import Home

from .test_compaction import COMPACT, compact, roll_and_flush


def log_of_many_producers(home: Home, producers: int) -> Log:
    """Each wrote the same key once, so that all of their batches but the last are empty."""
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
    """What a reader has to have done before it gets on, and the values that it then gets."""
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
def test_many_emptied_batches_are_passed_over_by_a_check_and_then_at_once(
    tmp_path: Path, offset: int, max_bytes: int
) -> None:
    log = log_of_many_producers(Home(tmp_path, **COMPACT), 5 * PASSED_AT_ONCE)
    checks, values = checks_until_read(log, offset, max_bytes)
    assert values == [b"last"]
    assert EmptyRunCheck in checks
    for later in (offset, offset + 1, offset + PASSED_AT_ONCE):
        assert checks_until_read(log, later, max_bytes) == ([], [b"last"])


def test_a_few_emptied_batches_are_passed_over_at_once(tmp_path: Path) -> None:
    log = log_of_many_producers(Home(tmp_path, **COMPACT), 50)
    checks, values = checks_until_read(log, 0, 1)
    assert values == [b"last"]
    assert EmptyRunCheck not in checks


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
