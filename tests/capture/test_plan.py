"""Which changes are written, and when a transaction of the log ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skylog.capture.pgoutput import Begin, Commit
from skylog.capture.plan import Limits, Plan
from skylog.capture.position import Part, Position, PositionError, Progress

LIMITS = Limits(records=10, seconds=1.0, split_s=60.0)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=8), st.lists(st.integers(1, 25), max_size=6))
def test_every_change_is_written_once_wherever_a_capture_ends(sizes: list[int], lives: list[int]) -> None:
    """A capture lives for some messages, stores its position at a random one of them, and starts there again."""
    stream = [
        (kind, number, change)
        for number, size in enumerate(sizes)
        for kind, change in [("begin", 0), *(("change", at) for at in range(size)), ("commit", 0)]
    ]
    written: list[tuple[int, int]] = []
    lsn, part = 0, None
    for life in [*lives, 10_000]:
        plan = Plan(lsn, part, LIMITS)
        new: list[tuple[int, int]] = []
        for kind, number, change in [each for each in stream if number_end(each[1]) > lsn][:life]:
            if kind == "begin":
                plan.begin(Begin(number * 100 + 50, 0, number))
            elif kind == "commit":
                plan.commit(Commit(number * 100 + 50, number_end(number), 0))
            elif plan.change():
                new.append((number, change))
        written += new
        lsn, part = plan.lsn, plan.part
    assert written == [(number, change) for number, size in enumerate(sizes) for change in range(size)]


def number_end(number: int) -> int:
    return number * 100 + 100


def test_a_transaction_that_is_sent_again_although_it_is_in_the_log_is_skipped() -> None:
    plan = Plan(200, None, LIMITS)
    plan.begin(Begin(150, 0, 1))
    assert not plan.change()
    plan.commit(Commit(150, 200, 0))
    plan.begin(Begin(250, 0, 2))
    assert plan.change()
    assert plan.part == Part(250, 1)


def test_the_log_is_committed_between_transactions_unless_one_takes_long() -> None:
    plan = Plan(0, None, LIMITS)
    plan.begin(Begin(50, 0, 1))
    assert not plan.is_due(10_000, 59.0, is_idle=True)
    assert plan.is_due(10_000, 60.0, is_idle=False)
    plan.commit(Commit(50, 100, 0))
    assert plan.is_due(1, 0.0, is_idle=True)
    assert not plan.is_due(9, 0.5, is_idle=False)
    assert plan.is_due(10, 0.5, is_idle=False)
    assert plan.is_due(9, 1.0, is_idle=False)
    assert not plan.is_due(0, 100.0, is_idle=True)


def test_a_place_that_the_stream_has_passed_counts_between_transactions_only() -> None:
    plan = Plan(10, None, LIMITS)
    plan.begin(Begin(50, 0, 1))
    plan.passed(500)
    assert plan.lsn == 10
    plan.commit(Commit(50, 100, 0))
    plan.passed(500)
    assert plan.lsn == 500


@pytest.mark.parametrize("part", [None, Part(7, 3)])
def test_a_position_is_stored_as_it_is(part: Part | None) -> None:
    begun = Progress(False, ("1", "x"), True, oid=4711, key=("a", "b"), key_types=(23, 25), since=2**62)
    tables = {"public.a": Progress(True, None, True), "public.b": begun}
    position = Position("system", 2**63, part, tables)
    assert Position.decode(position.encode()) == position
    assert position.next_table == "public.b"


def test_what_is_not_a_position_is_an_error() -> None:
    with pytest.raises(PositionError):
        Position.decode(b"{}")
