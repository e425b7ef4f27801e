"""The transactions that hold back the last stable offset."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from skylog.storage.open_transactions import OpenTransactions


def test_the_first_one_without_a_replicated_marker_counts() -> None:
    transactions = OpenTransactions()
    assert transactions.first_unstable(100) is None
    for offset in (1, 5, 9):
        transactions.begin(offset)
    transactions.end(5, 12)
    assert transactions.first_unstable(100) == 1
    transactions.end(1, 13)
    assert transactions.first_unstable(13) == 1
    assert transactions.first_unstable(14) == 9
    assert transactions.first_undecided() == 9
    transactions.end(9, 14)
    assert transactions.first_undecided() is None
    assert transactions.first_unstable(15) is None


def test_a_watermark_that_stands_still_costs_no_search_of_all_transactions_each_time() -> None:
    transactions = OpenTransactions()
    for number in range(5000):
        transactions.begin(number * 2)
        transactions.end(number * 2, number * 2 + 1)
        assert transactions.first_unstable(0) == 0
    assert len(transactions.ended) == 5000
    assert transactions.first_unstable(9000) == 9000
    assert len(transactions.ended) == 500


@given(st.lists(st.sampled_from(["begin", "end first", "end last", "replicate"]), max_size=40))
def test_it_is_the_same_as_a_search_of_all_transactions(steps: list[str]) -> None:
    transactions = OpenTransactions()
    open_offsets: list[int] = []
    ended: list[tuple[int, int]] = []
    high_watermark = 0
    for offset, step in enumerate(steps):
        if step == "begin":
            transactions.begin(offset)
            open_offsets.append(offset)
        elif step == "replicate":
            high_watermark = offset
        elif open_offsets:
            first = open_offsets.pop(0 if step == "end first" else -1)
            transactions.end(first, offset)
            ended.append((first, offset))
        unstable = [*open_offsets, *(first for first, marker in ended if marker >= high_watermark)]
        assert transactions.first_unstable(high_watermark) == min(unstable, default=None)
        restored = OpenTransactions(open_offsets, transactions.ended)
        assert restored.first_unstable(high_watermark) == min(unstable, default=None)
