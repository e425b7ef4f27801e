"""The verdicts of the books: complete, late, lost or duplicated, and what is not judged."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skylog.audit.books import Books
from skylog.audit.report import Count, Report, ReportError, Tier
from skylog.audit.verdict import Balance, Sizes, Verdict

MINUTE_MS = 60_000
LATER_MS = 1000 * MINUTE_MS
TOPIC = "orders"


def count(window: int, messages: int, *, last: int | None = None, uncertain: int = 0) -> Count:
    end = window if last is None else last
    return Count(window * MINUTE_MS, (end + 1) * MINUTE_MS, messages, messages * 100, uncertain)


def produced(*counts: Count, source: str = "shop", report_id: str = "") -> Report:
    return Report(Tier.PRODUCED, source, TOPIC, counts, 0, **({"id": report_id} if report_id else {}))  # type: ignore[arg-type]  # an id or none


def stored(start: int, end: int, *counts: Count, partition: int = 0) -> Report:
    return Report(Tier.STORED, "broker-1", TOPIC, counts, 0, partition, start, end)


def consumed(start: int, end: int, *counts: Count, group: str = "billing", partition: int = 0) -> Report:
    return Report(Tier.CONSUMED, group, TOPIC, counts, 0, partition, start, end)


def landed(start: int, end: int, *counts: Count) -> Report:
    return Report(Tier.LANDED, "orders_table", TOPIC, counts, 0, 0, start, end)


def balance(*reports: Report, groups: Sequence[str] | None = None, required: Sequence[Tier] = ()) -> list[Balance]:
    books = Books()
    for report in reports:
        books.add(report)
    return books.balance(LATER_MS, 0, topics=None if groups is None else [TOPIC], groups=groups, required=required)


def verdicts(*reports: Report, required: Sequence[Tier] = ()) -> list[str]:
    return [str(each) for each in balance(*reports, required=required)]


# -- verdicts


def test_tiers_that_agree_are_complete() -> None:
    [row] = balance(produced(count(7, 10)), stored(0, 10, count(7, 10)), consumed(0, 10, count(7, 10)))
    assert (row.topic, row.window_start_ms, row.window_end_ms) == (TOPIC, 7 * MINUTE_MS, 8 * MINUTE_MS)
    assert (row.produced, row.stored, row.consumed, row.landed) == (10, 10, {"billing": 10}, {})
    assert row.verdict is Verdict.COMPLETE
    assert row.is_balanced


def test_what_a_broker_lacks_is_lost() -> None:
    assert verdicts(produced(count(0, 10)), stored(0, 7, count(0, 7))) == ["lost 3 (stored)"]


def test_what_a_broker_has_too_many_of_is_duplicated() -> None:
    assert verdicts(produced(count(0, 10)), stored(0, 12, count(0, 12))) == ["duplicated 2 (stored)"]


def test_what_a_group_lacks_although_it_read_to_the_end_is_lost() -> None:
    reports = stored(0, 10, count(0, 10)), consumed(0, 10, count(0, 5)), consumed(0, 10, count(0, 10), group="search")
    assert verdicts(*reports) == ["lost 5 (group billing)"]


def test_what_a_group_reads_again_is_duplicated() -> None:
    reports = stored(0, 10, count(0, 10)), consumed(0, 10, count(0, 10)), consumed(8, 10, count(0, 2))
    assert verdicts(*reports) == ["duplicated 2 (group billing)"]


def test_what_has_not_landed_is_lost() -> None:
    [row] = balance(stored(0, 10, count(0, 10)), landed(0, 10, count(0, 9)))
    assert row.landed == {"orders_table": 9}
    assert str(row) == "lost 1 (landed in orders_table)"


def test_findings_are_complete_and_sorted_by_severity() -> None:
    reports = [
        produced(count(0, 8)),
        stored(0, 10, count(0, 10)),
        consumed(0, 10, count(0, 9)),
        consumed(0, 4, count(0, 4), group="slow"),
    ]
    [row] = balance(*reports)
    assert row.verdict is Verdict.LOST
    assert str(row) == "lost 1 (group billing), duplicated 2 (stored), late 6 (group slow)"


def test_all_producers_are_one_tier() -> None:
    reports = produced(count(0, 4)), produced(count(0, 6), source="till"), stored(0, 10, count(0, 10))
    assert verdicts(*reports) == ["complete"]


def test_what_a_producer_is_uncertain_of_may_be_stored_or_not() -> None:
    made = produced(count(0, 10, uncertain=3))
    assert verdicts(made, stored(0, 10, count(0, 10))) == ["complete"]
    assert verdicts(made, stored(0, 13, count(0, 13))) == ["complete"]
    assert verdicts(made, stored(0, 14, count(0, 14))) == ["duplicated 1 (stored)"]
    assert verdicts(made, stored(0, 9, count(0, 9))) == ["lost 1 (stored)"]
    assert verdicts(made, stored(0, 11, count(0, 10), count(1, 1))) == ["complete", "duplicated 1 (stored)"]


# -- bytes


def sized(window: int, messages: int, size_bytes: int, *, last: int | None = None) -> Count:
    return Count(window * MINUTE_MS, ((last or window) + 1) * MINUTE_MS, messages, size_bytes)


def test_bytes_are_reported_and_not_judged() -> None:
    [row] = balance(
        produced(sized(0, 3, 300)),
        stored(0, 2, sized(0, 2, 70)),
        stored(2, 3, sized(0, 1, 50)),
        consumed(0, 3, sized(0, 3, 310)),
        consumed(0, 3, sized(0, 3, 0), group="search"),
        landed(0, 3, sized(0, 3, 9)),
    )
    assert row.sizes == Sizes(300, 120, {"billing": 310, "search": 0}, {"orders_table": 9})
    assert row.verdict is Verdict.COMPLETE


def test_a_tier_that_does_not_count_has_no_bytes() -> None:
    before, after = balance(produced(sized(1, 1, 10)), stored(0, 3, sized(0, 2, 30), sized(1, 1, 20)))
    assert (before.sizes, after.sizes) == (Sizes(None, 30, {}, {}), Sizes(10, 20, {}, {}))
    [alone] = balance(produced(sized(0, 1, 10)))
    assert alone.sizes == Sizes(10, None, {}, {})


def test_bytes_go_where_the_messages_of_a_batch_went() -> None:
    rows = balance(
        produced(sized(0, 10, 0), sized(1, 10, 0)), stored(0, 20, sized(0, 7, 70), sized(0, 13, 131, last=1))
    )
    assert [row.sizes.stored for row in rows] == [70 + 30, 101]


# -- tiers that are required


def test_a_required_tier_that_never_reported_is_late() -> None:
    made, kept = produced(count(0, 5)), stored(0, 5, count(0, 5))
    assert verdicts(made, kept, required=[Tier.PRODUCED, Tier.STORED]) == ["complete"]
    assert verdicts(made, kept, required=[Tier.CONSUMED]) == ["late 5 (consumed)"]
    assert verdicts(made, kept, required=[Tier.LANDED, Tier.CONSUMED]) == ["late 5 (consumed), late 5 (landed)"]
    assert verdicts(kept, consumed(0, 5, count(0, 5)), required=[Tier.PRODUCED]) == ["late 5 (produced)"]


def test_a_lone_tier_is_judged_if_another_is_required() -> None:
    assert verdicts(produced(count(0, 5)), required=[Tier.STORED]) == ["late 5 (stored)"]
    assert verdicts(produced(count(0, 5)), required=[Tier.PRODUCED]) == ["unjudged"]


def test_a_required_tier_is_late_in_each_window_that_it_has_counted_nothing_in() -> None:
    log = stored(0, 12, count(0, 7), count(1, 5))
    assert verdicts(produced(count(1, 5)), log, required=[Tier.PRODUCED]) == ["late 7 (produced)", "complete"]
    read = consumed(7, 12, count(1, 5))
    assert verdicts(produced(count(0, 7), count(1, 5)), log, read) == ["complete", "complete"]
    assert verdicts(log, read, required=[Tier.CONSUMED])[0] == "late 7 (consumed)"


def test_a_finding_of_a_required_tier_is_reported_once() -> None:
    made = produced(count(0, 5), count(1, 5))
    assert verdicts(made, stored(0, 5, count(0, 5)), required=[Tier.STORED]) == ["complete", "lost 5 (stored)"]


def test_a_window_in_which_a_required_tier_is_absent_is_open_first() -> None:
    books = Books()
    books.add(produced(count(0, 5)))
    [row] = books.balance(MINUTE_MS, 1000, required=[Tier.STORED])
    assert row.verdict is Verdict.OPEN
    assert not row.is_balanced


# -- late


def test_what_a_group_has_not_reached_is_late() -> None:
    reports = stored(0, 10, count(0, 10)), stored(10, 20, count(1, 10)), consumed(0, 10, count(0, 10))
    assert verdicts(*reports) == ["complete", "late 10 (group billing)"]


def test_a_group_that_lost_some_and_is_behind_elsewhere_has_lost_them() -> None:
    reports = stored(0, 10, count(0, 10)), stored(10, 20, count(1, 10)), consumed(0, 10, count(0, 7))
    assert verdicts(*reports) == ["lost 3 (group billing)", "late 10 (group billing)"]


def test_a_group_that_went_back_has_still_been_at_the_end() -> None:
    reports = stored(0, 10, count(0, 5), count(1, 5)), consumed(0, 10, count(0, 5)), consumed(0, 2, count(0, 2))
    assert verdicts(*reports) == ["duplicated 2 (group billing)", "lost 5 (group billing)"]


def test_a_partition_that_a_group_has_not_begun_is_late() -> None:
    reports = stored(0, 5, count(0, 5)), stored(0, 5, count(0, 5), partition=1), consumed(0, 5, count(0, 5))
    assert verdicts(*reports) == ["late 5 (group billing)"]


def test_a_requested_group_without_reports_is_late_and_others_are_ignored() -> None:
    reports = stored(0, 5, count(0, 5)), consumed(0, 5, count(0, 1), group="search")
    assert [str(row) for row in balance(*reports, groups=["billing"])] == ["late 5 (group billing)"]


# -- which tiers are judged


def test_a_lone_tier_is_not_judged() -> None:
    for report in (produced(count(0, 1)), stored(0, 1, count(0, 1)), consumed(0, 1, count(0, 1))):
        [row] = balance(report)
        assert row.verdict is Verdict.UNJUDGED
        assert not row.is_balanced


def test_a_tier_that_never_reported_is_not_missed() -> None:
    [row] = balance(stored(0, 5, count(0, 5)), consumed(0, 5, count(0, 5)))
    assert row.produced is None
    assert row.verdict is Verdict.COMPLETE


def test_groups_are_compared_with_producers_where_no_broker_reports() -> None:
    made = produced(count(0, 5, uncertain=1))
    assert verdicts(made, consumed(0, 5, count(0, 5))) == ["complete"]
    assert verdicts(made, consumed(0, 6, count(0, 6))) == ["complete"]
    assert verdicts(made, consumed(0, 3, count(0, 3))) == ["lost 2 (group billing)"]
    [row] = balance(made, consumed(0, 5, count(0, 5)))
    assert (row.produced, row.stored) == (5, None)


def test_windows_before_the_first_that_a_producer_counted_have_no_produced() -> None:
    rows = balance(produced(count(1, 5)), stored(0, 12, count(0, 7), count(1, 5)))
    assert [(row.produced, row.verdict) for row in rows] == [(None, Verdict.UNJUDGED), (5, Verdict.COMPLETE)]


def test_a_group_from_the_middle_of_the_log_is_judged_from_its_second_window() -> None:
    log = stored(0, 30, count(0, 10), count(1, 10), count(2, 10))
    assert verdicts(log, consumed(15, 30, count(1, 5), count(2, 10))) == ["unjudged", "unjudged", "complete"]
    assert verdicts(log, consumed(15, 30, count(1, 5), count(2, 9)))[2] == "lost 1 (group billing)"
    assert verdicts(log, consumed(0, 30, count(1, 5), count(2, 10)))[1] == "lost 5 (group billing)"


def test_partitions_without_broker_reports_do_not_define_where_a_group_started() -> None:
    reports = stored(0, 5, count(0, 5)), consumed(0, 5, count(0, 4)), consumed(7, 8, count(0, 0), partition=1)
    assert verdicts(*reports) == ["lost 1 (group billing)"]


def test_a_window_is_open_until_its_grace_has_passed() -> None:
    books = Books()
    books.add(produced(count(0, 5)))
    books.add(stored(0, 4, count(0, 4)))
    [row] = books.balance(MINUTE_MS + 999, 1000)
    assert row.verdict is Verdict.OPEN
    assert str(row) == "open"
    assert not row.is_balanced
    [row] = books.balance(MINUTE_MS + 1000, 1000)
    assert row.verdict is Verdict.LOST


def test_rows_are_sorted_by_topic_and_window() -> None:
    other = Report(Tier.PRODUCED, "shop", "baskets", [count(5, 1)], 0)
    rows = balance(produced(count(3, 1), count(1, 1)), other)
    assert [(row.topic, row.window_start_ms // MINUTE_MS) for row in rows] == [("baskets", 5), (TOPIC, 1), (TOPIC, 3)]


# -- reports


def test_a_report_counts_once() -> None:
    report = produced(count(0, 5), report_id="first")
    assert verdicts(report, report, stored(0, 5, count(0, 5))) == ["complete"]


def test_a_broker_that_counts_again_replaces_what_it_counted_from_there_on() -> None:
    reports = [
        produced(count(0, 30)),
        stored(0, 10, count(0, 10)),
        stored(10, 20, count(0, 10)),
        stored(20, 25, count(0, 5)),
        stored(0, 9, count(5, 0), partition=1),
        stored(10, 30, count(0, 20)),
    ]
    assert verdicts(*reports) == ["complete"]


@pytest.mark.parametrize(
    "report",
    [
        produced(count(0, -1)),
        produced(Count(MINUTE_MS, MINUTE_MS, 1, 1)),
        produced(count(0, 1, uncertain=-1)),
        produced(Count(0, MINUTE_MS, 1, -1)),
        Report(Tier.STORED, "broker-1", TOPIC, [count(0, 1)], 0),
    ],
)
def test_an_inconsistent_report_is_refused_and_changes_nothing(report: Report) -> None:
    books = Books()
    with pytest.raises(ReportError, match=report.id):
        books.add(report)
    assert books.balance(LATER_MS) == []


# -- windows


def test_finer_counts_add_up_to_the_windows_of_the_books() -> None:
    seconds = [Count(second * 1000, (second + 1) * 1000, 1, 1) for second in range(60)]
    assert verdicts(produced(*seconds), stored(0, 60, count(0, 60))) == ["complete"]


def test_a_batch_across_the_edge_of_a_window_goes_where_the_producer_counted_it() -> None:
    rows = balance(produced(count(0, 10), count(1, 10)), stored(0, 20, count(0, 7), count(1, 4), count(0, 9, last=1)))
    assert [(row.stored, str(row)) for row in rows] == [(10, "complete"), (10, "complete")]


def test_a_loss_stands_out_among_batches_that_cross_every_edge() -> None:
    """The producer's and the group's counts leave only one possible window for it."""
    batches = [count(number, 40, last=number + 1) for number in range(9)]
    rest = [count(number, 100 - 20 * (number > 0) - 20 * (number < 9) - 3 * (number == 4)) for number in range(10)]
    read = [count(number, 100 - 3 * (number == 4)) for number in range(10)]
    made = produced(*(count(number, 100) for number in range(10)))
    found = verdicts(made, stored(0, 997, *rest, *batches), consumed(0, 997, *read))
    assert found == ["complete"] * 4 + ["lost 3 (stored)"] + ["complete"] * 5


def test_a_window_without_messages_is_not_listed() -> None:
    [row] = balance(produced(count(1, 5)), stored(0, 5, count(0, 5, last=1)))
    assert (row.window_start_ms, row.verdict) == (MINUTE_MS, Verdict.COMPLETE)


def test_one_group_that_reads_twice_does_not_move_the_messages_of_another() -> None:
    twice = consumed(0, 20, count(0, 15), count(1, 10))
    lump = consumed(0, 20, count(0, 20, last=1), group="search")
    log = stored(0, 20, count(0, 10), count(1, 10))
    assert verdicts(log, twice, lump) == ["duplicated 5 (group billing)", "complete"]


def test_what_was_stored_before_producers_counted_is_no_duplicate() -> None:
    reports = produced(count(1, 5)), stored(0, 12, count(0, 12, last=1))
    assert [(row.stored, str(row)) for row in balance(*reports)] == [(7, "unjudged"), (5, "complete")]


Views = tuple[list[int], list[list[Count]]]


@st.composite
def views(draw: st.DrawFn, tiers: int = 4) -> Views:
    """Messages per window, and the counts of each tier: some windows exact, others merged into spans."""
    truth = draw(st.lists(st.integers(0, 9), min_size=1, max_size=6))
    reported = []
    for _ in range(tiers):
        counts = []
        for window, messages in enumerate(truth):
            hidden = draw(st.integers(0, messages))
            first, last = draw(st.integers(0, window)), draw(st.integers(window, len(truth) - 1))
            counts += [count(window, messages - hidden), count(first, hidden, last=last)]
        reported.append(counts)
    return truth, reported


@given(views())
def test_tiers_that_counted_the_same_are_complete_whatever_spans_hide(seen: Views) -> None:
    truth, (made, kept, read, again) = seen
    total = sum(truth)
    rows = balance(
        produced(count(0, 0, uncertain=1), *made),
        stored(0, total, *kept),
        consumed(0, total, *read),
        consumed(0, total, *again, group="search"),
    )
    assert {row.verdict for row in rows} <= {Verdict.COMPLETE}
    assert sum(row.stored or 0 for row in rows) == total
    assert sum(row.sizes.stored or 0 for row in rows) == total * 100
    assert sum(row.sizes.consumed["search"] for row in rows) == total * 100


@given(views(tiers=2), st.data())
def test_a_loss_has_its_number_whatever_spans_hide(seen: Views, data: st.DataObject) -> None:
    truth, (kept, read) = seen
    lost, left = 0, []
    for each in read:
        gone = data.draw(st.integers(0, each.messages))
        lost += gone
        left.append(Count(each.start_ms, each.end_ms, each.messages - gone, 0))
    total = sum(truth)
    for reports in ([stored(0, total, *kept), consumed(0, total, *left)], [produced(*kept), stored(0, total, *left)]):
        findings = [finding for row in balance(*reports) for finding in row.findings]
        assert sum(finding.messages for finding in findings) == lost
        assert {finding.verdict for finding in findings} <= {Verdict.LOST}


def test_a_million_counts_take_seconds() -> None:
    books = Books()
    windows, reports = 2_000, 100
    for number in range(reports):
        exact = [count(window, 1) for window in range(windows)]
        books.add(produced(*exact, *exact))
        across = [count(window, 1, last=min(window + 1, windows - 1)) for window in range(windows)]
        books.add(stored(number * windows, (number + 1) * windows, *exact, *across))
        books.add(consumed(number * windows, (number + 1) * windows, *exact))
    started = time.process_time()
    rows = books.balance(LATER_MS * 1000, 0)
    assert time.process_time() - started < 20
    assert len(rows) == windows
