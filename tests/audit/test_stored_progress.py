"""How far a partition is counted: whatever former leaders report late, the leader makes the chain of reports whole."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skylog.audit.ledger import Ledger
from skylog.audit.report import Report, Tier
from skylog.audit.stored_progress import REMEMBERED_STARTS, StoredProgress

OURS, THEIRS = "the-topic", "the-topic-before"
LOG_END = 60

Range = tuple[int, int, str | None]


def progress(*reports: Range) -> StoredProgress | None:
    """The progress that a broker derives from reports."""
    found: StoredProgress | None = None
    for report in reports:
        if found is None:
            found = StoredProgress.first(*report)
        else:
            found.add(*report)
    return found


def in_force(reports: Sequence[Range]) -> list[tuple[int, int]]:
    """The ranges that a reader of the audit adds up."""
    ledger = Ledger(60_000)
    for start, end, _ in reports:
        ledger.add(Report(Tier.STORED, "broker-1", "clicks", [], 0, 0, start, end))
    return [(each.start_offset, each.end_offset) for each in ledger.ranges.get(0, [])]


def next_report(known: Sequence[Range], end: int, topic_id: str = OURS) -> Range | None:
    """The report of a leader that knows some reports, and whose log ends at `end`; None if it has nothing to report."""
    found = progress(*known)
    start, must_replace = (0, False) if found is None else found.next_start(topic_id, LOG_END)
    if start >= end and not must_replace:
        return None
    return start, max(start, end), topic_id


def adjoins(ranges: Sequence[tuple[int, int]]) -> bool:
    expected = 0
    for start, end in ranges:
        if start != expected:
            return False
        expected = end
    return True


# -- one report after the other


def test_reports_that_adjoin_are_one_chain() -> None:
    found = progress((0, 10, OURS), (10, 12, OURS))
    assert found == StoredProgress(OURS, 12, [0, 10])
    assert found is not None
    assert found.next_start(OURS, 20) == (12, False)


def test_a_late_report_that_began_at_an_earlier_end_shortens_the_chain() -> None:
    found = progress((0, 10, OURS), (10, 50, OURS), (50, 60, OURS), (10, 20, OURS))
    assert found == StoredProgress(OURS, 20, [0, 10])


def test_a_gap_is_closed() -> None:
    found = progress((0, 10, OURS), (10, 50, OURS), (10, 20, OURS), (50, 60, OURS))
    assert found is not None
    assert found.next_start(OURS, 100) == (20, True)
    found.add(20, 100, OURS)
    assert found == StoredProgress(OURS, 100, [0, 10, 20])


def test_a_report_that_begins_inside_another_is_replaced_together_with_it() -> None:
    found = progress((0, 10, OURS), (10, 50, OURS), (20, 30, OURS))
    assert found is not None
    assert found.next_start(OURS, 50) == (10, True)


def test_a_report_from_zero_replaces_everything() -> None:
    assert progress((0, 10, OURS), (10, 50, OURS), (0, 5, OURS)) == StoredProgress(OURS, 5, [0])


def test_a_topic_that_was_created_again_is_counted_from_zero() -> None:
    found = progress((0, 10, THEIRS), (10, 50, THEIRS))
    assert found is not None
    assert found.next_start(OURS, 5) == (0, True)
    found.add(0, 5, OURS)
    assert found == StoredProgress(OURS, 5, [0])


def test_a_late_report_of_the_topic_before_is_replaced_although_it_adjoins() -> None:
    found = progress((0, 10, OURS), (10, 20, THEIRS))
    assert found is not None
    assert found.next_start(OURS, 10) == (10, True)


def test_reports_of_an_older_version_have_no_topic_id() -> None:
    found = progress((0, 10, None), (10, 20, OURS))
    assert found == StoredProgress(OURS, 20, [0, 10])


def test_a_log_that_lost_its_end_is_counted_from_a_start_that_it_still_holds() -> None:
    found = progress((0, 10, OURS), (10, 20, OURS), (20, 30, OURS))
    assert found is not None
    assert found.next_start(OURS, 25) == (20, True)
    assert found.next_start(OURS, 19) == (10, True)


def test_of_a_long_chain_only_the_last_starts_are_remembered() -> None:
    count = REMEMBERED_STARTS + 5
    found = progress(*((number, number + 1, OURS) for number in range(count)))
    assert found is not None
    assert found.starts == list(range(5, count))
    assert found.next_start(OURS, 3) == (0, True)
    found.add(2, 3, OURS)  # a start that is not remembered, of a report that was late by 18 others
    assert found.next_start(OURS, count) == (0, True)


def test_a_chain_whose_beginning_was_deleted_goes_on() -> None:
    found = progress((500, 600, OURS), (600, 700, OURS))
    assert found == StoredProgress(OURS, 700, [500, 600])


# -- any reports, in any order


@st.composite
def histories(draw: st.DrawFn) -> list[Range]:
    """Reports of leaders, each of which knew only some of those before it; and some that nobody would send."""
    reports: list[Range] = []
    for _ in range(draw(st.integers(0, 40))):
        end = draw(st.integers(0, LOG_END))
        topic_id = draw(st.sampled_from([OURS, OURS, OURS, THEIRS]))
        if not reports or draw(st.integers(0, 9)):
            known = draw(st.integers(max(len(reports) - 20, 0), len(reports)))
            report = next_report(reports[:known], end, topic_id)
        else:
            report = (draw(st.integers(0, end)), end, topic_id)
        if report is not None:
            reports.append(report)
    return reports


@given(histories())
def test_the_leader_makes_any_chain_whole(reports: list[Range]) -> None:
    for _ in range(3):
        report = next_report(reports, LOG_END)
        if report is None:
            break
        reports.append(report)
    else:
        pytest.fail("the leader never ends to report")
    ranges = in_force(reports)
    assert adjoins(ranges)
    assert ranges[-1][1] == LOG_END
    assert reports[-1][2] == OURS or all(topic_id == OURS for *_, topic_id in reports[-len(ranges) :])


@given(histories())
def test_what_a_leader_that_knows_everything_adds_never_leaves_a_gap_or_an_overlap(reports: list[Range]) -> None:
    end = LOG_END // 2
    report = next_report(reports, end)
    if report is not None:
        ranges = in_force([*reports, report])
        assert adjoins(ranges)
        assert ranges[-1][1] == report[1]
