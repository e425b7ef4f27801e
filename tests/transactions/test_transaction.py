"""One transactional id: what each event does in each state."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from skylog.errors import ErrorCode, KafkaError
from skylog.model import TopicPartition
from skylog.transactions import Moment, Producer, Transaction, TransactionEntry, TransactionState
from skylog.transactions.entry import LAST_EPOCH
from skylog.transactions.state import TRANSITIONS

A, B = TopicPartition("a", 0), TopicPartition("b", 3)
TIMEOUT_MS = 60_000


def at(ms: int) -> Moment:
    """A moment whose clocks differ, as real ones do."""
    return Moment(1_000_000 + ms, ms)


def raises(code: ErrorCode, action: Callable[[], object]) -> None:
    with pytest.raises(KafkaError) as caught:
        action()
    assert caught.value.code is code


def started(producer_id: int = 7) -> Transaction:
    transaction = Transaction("t")
    transaction.init(TIMEOUT_MS, None, producer_id, at(0))
    transaction.stored()
    return transaction


def entry_of(transaction: Transaction) -> TransactionEntry:
    assert transaction.entry is not None
    return transaction.entry


def ongoing(*names: TopicPartition) -> Transaction:
    transaction = started()
    transaction.add(Producer(7, 0), names or (A,), at(10))
    transaction.stored()
    return transaction


def ended(commits: bool) -> Transaction:
    transaction = ongoing()
    transaction.end(Producer(7, 0), commits, at(20))
    transaction.stored()
    return transaction


def completed(commits: bool) -> Transaction:
    transaction = ended(commits)
    transaction.markers_written(at(30))
    transaction.stored()
    return transaction


class TestStarting:
    def test_the_first_producer_gets_epoch_0_of_a_new_id(self) -> None:
        entry = entry_of(started())
        assert (entry.producer, entry.state, entry.timeout_ms) == (Producer(7, 0), TransactionState.EMPTY, TIMEOUT_MS)
        assert entry.update_ms == at(0).wall_ms

    def test_every_start_raises_the_epoch(self) -> None:
        transaction = started()
        assert transaction.init(5000, None, None, at(1)).producer == Producer(7, 1)
        transaction.stored()
        assert entry_of(transaction).timeout_ms == 5000
        raises(ErrorCode.PRODUCER_FENCED, lambda: transaction.add(Producer(7, 0), [A], at(2)))

    def test_a_first_entry_that_cannot_be_stored_leaves_nothing(self) -> None:
        """KAFKA-14880: the failed write left the id with epoch -1, and no producer could start again."""
        transaction = Transaction("t")
        transaction.init(TIMEOUT_MS, None, 7, at(0))
        transaction.storing_failed()
        assert transaction.entry is None
        assert transaction.needs_producer_id
        assert transaction.init(TIMEOUT_MS, None, 8, at(1)).producer == Producer(8, 0)

    def test_an_open_transaction_is_aborted_and_its_producer_fenced(self) -> None:
        transaction = ongoing(A, B)
        entry = transaction.init(TIMEOUT_MS, None, None, at(20))
        assert (entry.state, entry.producer) == (TransactionState.PREPARE_ABORT, Producer(7, 1))
        assert entry.partitions == {A, B}
        transaction.stored()
        raises(ErrorCode.PRODUCER_FENCED, lambda: transaction.end(Producer(7, 0), True, at(21)))
        raises(ErrorCode.CONCURRENT_TRANSACTIONS, lambda: transaction.init(TIMEOUT_MS, None, None, at(21)))
        transaction.markers_written(at(22))
        transaction.stored()
        assert transaction.init(TIMEOUT_MS, None, None, at(23)).producer == Producer(7, 2)

    def test_aborting_again_after_a_failed_write_raises_the_epoch_once(self) -> None:
        """KAFKA-19367: each attempt to fence raised the epoch again, until it overflowed."""
        transaction = ongoing()
        for _ in range(3):
            assert transaction.init(TIMEOUT_MS, None, None, at(20)).producer == Producer(7, 1)
            transaction.storing_failed()
            assert entry_of(transaction).producer == Producer(7, 0)

    @pytest.mark.parametrize("commits", [True, False])
    def test_a_decided_transaction_is_waited_for(self, commits: bool) -> None:
        raises(ErrorCode.CONCURRENT_TRANSACTIONS, lambda: ended(commits).init(TIMEOUT_MS, None, None, at(21)))

    def test_the_epoch_after_the_last_is_that_of_another_producer_id(self) -> None:
        transaction = Transaction("t", TransactionEntry(Producer(7, LAST_EPOCH - 1), TIMEOUT_MS))
        assert not transaction.needs_producer_id
        assert transaction.init(TIMEOUT_MS, None, None, at(0)).producer == Producer(7, LAST_EPOCH)
        transaction.stored()
        assert transaction.needs_producer_id
        assert transaction.init(TIMEOUT_MS, None, 9, at(1)).producer == Producer(9, 0)

    def test_the_epoch_never_overflows_if_the_last_producer_is_fenced(self) -> None:
        """KAFKA-18660: fencing the producer with the last epoch must not pass 32767, the largest one there is."""
        entry = TransactionEntry(Producer(7, LAST_EPOCH), TIMEOUT_MS, TransactionState.ONGOING, frozenset({A}))
        transaction = Transaction("t", entry)
        assert transaction.init(TIMEOUT_MS, None, 9, at(0)).producer == Producer(7, 32767)
        transaction.stored()
        transaction.markers_written(at(1))
        transaction.stored()
        assert transaction.needs_producer_id
        assert transaction.init(TIMEOUT_MS, None, 9, at(2)).producer == Producer(9, 0)


class TestGoingOn:
    """KIP-360: a producer that names its present id and epoch."""

    def test_the_current_producer_gets_the_next_epoch(self) -> None:
        transaction = started()
        assert transaction.init(TIMEOUT_MS, Producer(7, 0), None, at(1)).producer == Producer(7, 1)

    def test_the_same_request_again_gets_the_same_answer(self) -> None:
        transaction = started()
        for _ in range(2):
            assert transaction.init(TIMEOUT_MS, Producer(7, 0), None, at(1)).producer == Producer(7, 1)
            transaction.stored()

    def test_also_if_the_producer_id_has_changed(self) -> None:
        transaction = Transaction("t", TransactionEntry(Producer(7, LAST_EPOCH), TIMEOUT_MS))
        for producer_id in (9, 10):
            found = transaction.init(TIMEOUT_MS, Producer(7, LAST_EPOCH), producer_id, at(1)).producer
            assert found == Producer(9, 0)
            transaction.stored()

    def test_a_request_that_is_repeated_late_does_not_disturb_the_next_transaction(self) -> None:
        transaction = started()
        transaction.init(TIMEOUT_MS, Producer(7, 0), None, at(1))
        transaction.stored()
        transaction.add(Producer(7, 1), [A], at(2))
        transaction.stored()
        raises(ErrorCode.PRODUCER_FENCED, lambda: transaction.init(TIMEOUT_MS, Producer(7, 0), None, at(3)))
        assert entry_of(transaction).state is TransactionState.ONGOING

    @pytest.mark.parametrize("expected", [Producer(7, 1), Producer(8, 0)])
    def test_any_other_producer_is_fenced(self, expected: Producer) -> None:
        raises(ErrorCode.PRODUCER_FENCED, lambda: started().init(TIMEOUT_MS, expected, None, at(1)))

    def test_a_producer_that_was_replaced_by_another_start_is_fenced(self) -> None:
        transaction = started()
        transaction.init(TIMEOUT_MS, None, None, at(1))
        transaction.stored()
        raises(ErrorCode.PRODUCER_FENCED, lambda: transaction.init(TIMEOUT_MS, Producer(7, 0), None, at(2)))


class TestAdding:
    def test_the_first_partition_begins_the_transaction(self) -> None:
        entry = entry_of(ongoing(A))
        assert (entry.state, entry.start_ms) == (TransactionState.ONGOING, at(10).wall_ms)
        assert entry.partitions == {A}

    def test_further_partitions_join_it_and_known_ones_need_no_write(self) -> None:
        transaction = ongoing(A)
        added = transaction.add(Producer(7, 0), [A, B], at(11))
        assert added is not None
        assert added.partitions == {A, B}
        assert added.start_ms == at(10).wall_ms
        transaction.stored()
        assert transaction.add(Producer(7, 0), [B], at(12)) is None

    def test_another_producer_id_is_unknown_and_another_epoch_fenced(self) -> None:
        transaction = started()
        raises(ErrorCode.INVALID_PRODUCER_ID_MAPPING, lambda: transaction.add(Producer(8, 0), [A], at(1)))
        raises(ErrorCode.PRODUCER_FENCED, lambda: transaction.add(Producer(7, 1), [A], at(1)))

    def test_while_an_entry_is_being_stored_others_try_again(self) -> None:
        transaction = started()
        transaction.add(Producer(7, 0), [A], at(1))
        raises(ErrorCode.CONCURRENT_TRANSACTIONS, lambda: transaction.add(Producer(7, 0), [B], at(1)))
        raises(ErrorCode.CONCURRENT_TRANSACTIONS, lambda: transaction.end(Producer(7, 0), True, at(1)))
        raises(ErrorCode.CONCURRENT_TRANSACTIONS, lambda: transaction.init(TIMEOUT_MS, None, None, at(1)))
        assert transaction.time_out(at(10 * TIMEOUT_MS)) is None

    @pytest.mark.parametrize("commits", [True, False])
    def test_the_next_transaction_waits_for_the_markers_of_the_last(self, commits: bool) -> None:
        raises(ErrorCode.CONCURRENT_TRANSACTIONS, lambda: ended(commits).add(Producer(7, 0), [A], at(21)))
        added = completed(commits).add(Producer(7, 0), [B], at(31))
        assert added is not None
        assert (added.partitions, added.start_ms) == (frozenset({B}), at(31).wall_ms)


class TestEnding:
    @pytest.mark.parametrize(
        ("commits", "prepared", "complete"),
        [
            (True, TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT),
            (False, TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT),
        ],
    )
    def test_the_decision_is_stored_then_the_markers_are_written_then_the_end_is_stored(
        self, commits: bool, prepared: TransactionState, complete: TransactionState
    ) -> None:
        transaction = ongoing(A, B)
        entry = transaction.end(Producer(7, 0), commits, at(20))
        assert entry is not None
        assert (entry.state, entry.partitions) == (prepared, frozenset({A, B}))
        transaction.stored()
        entry = transaction.markers_written(at(30))
        assert (entry.state, entry.partitions, entry.producer) == (complete, frozenset(), Producer(7, 0))

    @pytest.mark.parametrize("commits", [True, False])
    def test_the_same_end_again_succeeds_and_the_other_one_does_not(self, commits: bool) -> None:
        decided, done = ended(commits), completed(commits)
        raises(ErrorCode.CONCURRENT_TRANSACTIONS, lambda: decided.end(Producer(7, 0), commits, at(21)))
        raises(ErrorCode.INVALID_TXN_STATE, lambda: decided.end(Producer(7, 0), not commits, at(21)))
        assert done.end(Producer(7, 0), commits, at(31)) is None
        raises(ErrorCode.INVALID_TXN_STATE, lambda: done.end(Producer(7, 0), not commits, at(31)))

    def test_there_is_nothing_to_end_before_the_first_partition(self) -> None:
        raises(ErrorCode.INVALID_TXN_STATE, lambda: started().end(Producer(7, 0), True, at(1)))

    def test_a_late_request_on_an_older_connection_does_not_decide_the_next_transaction(self) -> None:
        """KAFKA-17754: the producer repeated the request on another connection, and went on."""
        transaction = started()
        for connection in (1, 2):
            transaction.add(Producer(7, 0), [A], at(10), connection)
            transaction.stored()
            if connection == 1:
                transaction.end(Producer(7, 0), True, at(20), 2)
                transaction.stored()
                transaction.markers_written(at(30))
                transaction.stored()
        raises(ErrorCode.CONCURRENT_TRANSACTIONS, lambda: transaction.end(Producer(7, 0), True, at(40), 1))
        assert entry_of(transaction).state is TransactionState.ONGOING
        assert transaction.end(Producer(7, 0), False, at(41), 3) is not None


class TestTime:
    def test_a_transaction_that_is_open_for_too_long_is_aborted_and_its_producer_fenced(self) -> None:
        transaction = ongoing()
        assert transaction.time_out(at(10 + TIMEOUT_MS - 1)) is None
        entry = transaction.time_out(at(10 + TIMEOUT_MS))
        assert entry is not None
        assert (entry.state, entry.producer) == (TransactionState.PREPARE_ABORT, Producer(7, 1))
        transaction.stored()
        assert transaction.time_out(at(10 * TIMEOUT_MS)) is None

    def test_a_jump_of_the_wall_clock_aborts_nothing(self) -> None:
        transaction = ongoing()
        assert transaction.time_out(Moment(10**15, 11)) is None

    @pytest.mark.parametrize(("open_ms", "left_ms"), [(40_000, 20_000), (90_000, 0), (-5000, 60_000)])
    def test_after_loading_the_rest_of_the_timeout_is_left_but_never_more_than_all_of_it(
        self, open_ms: int, left_ms: int
    ) -> None:
        loaded = Transaction("t", entry_of(ongoing()))
        now = Moment(at(10).wall_ms + open_ms, 500)
        loaded.restored(now)
        if left_ms:
            assert loaded.time_out(Moment(0, 500 + left_ms - 1)) is None
        assert loaded.time_out(Moment(0, 500 + left_ms)) is not None

    def test_only_an_id_without_a_transaction_expires(self) -> None:
        late = at(30).wall_ms + 1000
        assert completed(True).is_expired(late, 1000)
        assert not completed(True).is_expired(late - 1, 1000)
        assert not ongoing().is_expired(late + 10**9, 1000)
        assert not ended(True).is_expired(late + 10**9, 1000)

    def test_while_its_removal_is_stored_an_id_cannot_be_used(self) -> None:
        transaction = completed(True)
        transaction.begin_removal(at(40))
        raises(ErrorCode.CONCURRENT_TRANSACTIONS, lambda: transaction.init(TIMEOUT_MS, None, None, at(41)))
        transaction.storing_failed()
        assert transaction.init(TIMEOUT_MS, None, None, at(42)).producer == Producer(7, 1)


class TestVerification:
    def test_only_partitions_of_the_open_transaction_are_part_of_it(self) -> None:
        assert ongoing(A, B).check_contains(Producer(7, 0)) == {A, B}
        assert not started().check_contains(Producer(7, 0))
        assert not ended(True).check_contains(Producer(7, 0))
        raises(ErrorCode.PRODUCER_FENCED, lambda: ongoing().check_contains(Producer(7, 1)))
        raises(ErrorCode.INVALID_PRODUCER_ID_MAPPING, lambda: ongoing().check_contains(Producer(8, 0)))


def test_a_transition_outside_of_the_table_is_an_error_of_the_program() -> None:
    with pytest.raises(AssertionError, match="cannot go"):
        ongoing().begin_removal(at(11))


def test_every_state_is_in_the_table() -> None:
    assert set(TRANSITIONS) == set(TransactionState)
