"""The rules for transactions, copies and replicas find what they are there to find, and nothing where all is well."""

from __future__ import annotations

from skylog.simulation.checks import copied_once, differing_replicas, precommitted_reads, torn_transactions
from skylog.simulation.history import History, Message, Outcome, Transaction, Value

A, B, C = (Value(1, number) for number in range(3))


def history_of(outcome: Outcome, asked_at: int = 5) -> History:
    """A transaction of two values in two partitions."""
    history = History()
    history.transactions.append(Transaction("copier/1", [(0, A), (1, B)], outcome, asked_at))
    return history


def test_a_committed_transaction_is_visible_as_a_whole() -> None:
    history = history_of(Outcome.COMMITTED)
    assert torn_transactions(history, {0: {0: A}, 1: {4: B}}) == []
    assert torn_transactions(history, {0: {0: A}, 1: {}})[0].startswith("lost write")


def test_an_aborted_transaction_is_not_visible() -> None:
    for outcome in (Outcome.ABORTED, Outcome.OPEN):
        assert torn_transactions(history_of(outcome), {0: {}, 1: {}}) == []
        assert torn_transactions(history_of(outcome), {0: {0: A}, 1: {}})[0].startswith("aborted read (G1a)")


def test_a_transaction_of_unknown_outcome_is_visible_as_a_whole_or_not_at_all() -> None:
    history = history_of(Outcome.UNKNOWN)
    assert torn_transactions(history, {0: {0: A}, 1: {0: B}}) == []
    assert torn_transactions(history, {0: {}, 1: {}}) == []
    assert torn_transactions(history, {0: {0: A}, 1: {}})[0].startswith("torn transaction")


def test_a_violation_names_a_few_values_of_a_large_transaction() -> None:
    history = history_of(Outcome.ABORTED)
    history.transactions[0].values = [(0, Value(7, number)) for number in range(400)]
    (found,) = torn_transactions(history, {0: dict(enumerate(Value(7, number) for number in range(400)))})
    assert found.startswith("aborted read (G1a): 0: 7/0; 0: 7/1; 0: 7/2; 0: 7/3; 0: 7/4 and 395 more of ")


def test_nothing_is_read_before_its_producer_asks_to_commit_it() -> None:
    history = history_of(Outcome.COMMITTED, asked_at=5)
    reader = history.assign("reader", 0, read_committed=True)
    reader.messages.append(Message(0, 0, A))
    reader.times.append(6)
    assert precommitted_reads(history) == []
    reader.times[0] = 4
    assert precommitted_reads(history)[0].startswith("precommitted read")
    history.transactions[0].commit_asked_at = 0
    assert precommitted_reads(history)[0].startswith("precommitted read")


def test_a_read_uncommitted_reader_may_read_early() -> None:
    history = history_of(Outcome.OPEN)
    reader = history.assign("reader", 0)
    reader.messages.append(Message(0, 0, A))
    assert precommitted_reads(history) == []


def test_each_value_is_copied_once() -> None:
    assert copied_once([A, B], {0: {0: A}, 1: {0: B}}) == []
    assert copied_once([A], {0: {0: A}, 1: {3: A}})[0].startswith("copied twice")
    assert copied_once([A, B], {0: {0: A}})[0].startswith("never copied")
    assert copied_once([A], {0: {0: A, 1: C}})[0].startswith("copied from nowhere")


def test_replicas_are_identical_below_the_high_watermark() -> None:
    first, second = {0: b"a", 1: b"b", 2: b"c"}, {0: b"a", 1: b"b"}
    assert differing_replicas("t-0", {1: first, 2: second}, 2) == []
    assert differing_replicas("t-0", {1: first, 2: second}, 3)
    assert differing_replicas("t-0", {1: first, 2: {0: b"a", 1: b"x"}}, 2)


def test_replicas_are_compared_from_the_highest_start_on() -> None:
    assert differing_replicas("t-0", {1: {0: b"a", 1: b"b"}, 2: {1: b"b"}}, 2) == []
