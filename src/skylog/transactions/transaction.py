"""One transactional id, as a pure state machine.

Events and the time go in. What comes out is the entry that must be stored before it takes effect; nothing here waits,
writes or sends. States (`state.TRANSITIONS` has the whole table)::

    EMPTY ──add──▶ ONGOING ──end──▶ PREPARE_COMMIT, PREPARE_ABORT ──markers written──▶ COMPLETE_COMMIT, COMPLETE_ABORT
      ▲              ▲                                                                         │
      │              └──────────────────────────────────add────────────────────────────────────┤
      └─────────────────────────────────────────────────init───────────────────────────────────┘

The decision is final as soon as PREPARE is stored. From then on markers are sent to every partition until each has one.

Rules that clients rely on:

* A producer that starts (`init`) gets a higher epoch than any before it, and so fences the others. If one of them has
  left a transaction open, that is aborted first, and the new producer has to try again.
* A producer that names its present id and epoch in `init` has lost track of its sequence numbers (KIP-360). It gets the
  next epoch if no other producer has started meanwhile. The same request again gets the same answer, until the producer
  begins a transaction.
* Epochs end at 32767, which is never given to a client: it fences the last one. After that the id gets another
  producer id.
* While an entry is being stored, and while markers are written, everybody else gets CONCURRENT_TRANSACTIONS, and tries
  again.
* `end` may be repeated after its transaction has ended.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final, NamedTuple

from skylog.errors import ErrorCode, KafkaError
from skylog.model import NO_TIMESTAMP, TopicPartition
from skylog.transactions.entry import LAST_EPOCH, Producer, TransactionEntry
from skylog.transactions.state import TRANSITIONS, TransactionState

_NOBODY: Final = -1


class Moment(NamedTuple):
    """The time of an event: of the wall clock, which is stored, and of a steady clock, which timeouts use."""

    wall_ms: int
    steady_ms: int


class Transaction:
    """A transactional id. The coordinator calls it from one thread.

    An event returns the entry to be stored. The coordinator then calls `stored` or `storing_failed`, and until then
    every event raises CONCURRENT_TRANSACTIONS. `entry` is the last one that was stored, None if there is none yet.
    """

    def __init__(self, transactional_id: str, entry: TransactionEntry | None = None) -> None:
        self.transactional_id = transactional_id
        self.entry = entry
        self._storing: TransactionEntry | None = None
        self._times_out_ms = 0  # by the steady clock, while the transaction is open
        self._began_on = _NOBODY

    @property
    def is_storing(self) -> bool:
        return self._storing is not None

    @property
    def needs_producer_id(self) -> bool:
        """Whether the next producer that starts needs another producer id."""
        return self.entry is None or self.entry.producer.epoch >= LAST_EPOCH

    # -- storing

    def _store(self, entry: TransactionEntry, moment: Moment) -> TransactionEntry:
        if self.entry is not None and entry.state not in TRANSITIONS[self.entry.state]:
            raise AssertionError(
                f"{self.transactional_id} cannot go from {self.entry.state.value} to {entry.state.value}"
            )
        self._storing = replace(entry, update_ms=moment.wall_ms)
        return self._storing

    def stored(self) -> None:
        """Apply the entry that was being stored."""
        assert self._storing is not None
        self.entry, self._storing = self._storing, None

    def storing_failed(self) -> None:
        """Stay as before. The entry may be in the log all the same; the next one that is stored replaces it."""
        self._storing = None

    # -- events

    def init(
        self, timeout_ms: int, expected: Producer | None, producer_id: int | None, moment: Moment
    ) -> TransactionEntry:
        """A producer starts, or goes on from the producer that it names as `expected`.

        `producer_id` is a fresh id, required if `needs_producer_id`. If the entry to store is a decided transaction,
        the producer must try again.
        """
        self._check_not_storing()
        entry = self.entry
        if entry is None:
            assert producer_id is not None
            return self._store(TransactionEntry(Producer(producer_id, 0), timeout_ms), moment)
        if expected is not None and expected not in (entry.producer, entry.previous):
            raise fenced(entry.producer)
        if entry.state.is_decided:
            raise _concurrent()
        if entry.state is TransactionState.ONGOING:
            return self._abort_as_coordinator(entry, moment)
        if expected is not None and expected == entry.previous:
            return self._store(_initialized(entry, timeout_ms, entry.producer, entry.previous), moment)
        if entry.producer.epoch >= LAST_EPOCH:
            assert producer_id is not None
            following = Producer(producer_id, 0)
        else:
            following = Producer(entry.producer.producer_id, entry.producer.epoch + 1)
        return self._store(_initialized(entry, timeout_ms, following, expected), moment)

    def add(
        self, producer: Producer, partitions: Collection[TopicPartition], moment: Moment, connection: int = _NOBODY
    ) -> TransactionEntry | None:
        """Add partitions, and begin a transaction if none is open. Returns None if all were added before.

        `connection` is the number of the connection that the request came on; later ones have higher numbers.
        """
        entry = self._checked(producer)
        self._check_not_storing()
        if entry.state.is_decided:
            raise _concurrent()
        if entry.state is TransactionState.ONGOING:
            if entry.partitions.issuperset(partitions):
                return None
            return self._store(replace(entry, partitions=entry.partitions.union(partitions)), moment)
        self._times_out_ms = moment.steady_ms + entry.timeout_ms
        self._began_on = connection
        return self._store(
            replace(
                entry,
                state=TransactionState.ONGOING,
                partitions=frozenset(partitions),
                start_ms=moment.wall_ms,
                previous=None,
            ),
            moment,
        )

    def end(
        self, producer: Producer, commits: bool, moment: Moment, connection: int = _NOBODY
    ) -> TransactionEntry | None:
        """Commit or abort. Returns None if the transaction has already ended like that.

        A request from an older connection than the one that began the transaction was meant for the transaction before:
        the producer has given up that connection, and repeated the request on the next one. Deciding this transaction
        with it would commit half of it.
        """
        entry = self._checked(producer)
        self._check_not_storing()
        if entry.state is not TransactionState.ONGOING:
            self._check_ended(entry, commits)
            return None
        if connection < self._began_on:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "a late request to end an earlier transaction")
        state = TransactionState.PREPARE_COMMIT if commits else TransactionState.PREPARE_ABORT
        return self._store(replace(entry, state=state), moment)

    def _check_ended(self, entry: TransactionEntry, commits: bool) -> None:
        """Raise KafkaError unless the transaction has ended like that."""
        prepared, completed = (
            (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
            if commits
            else (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT)
        )
        if entry.state is completed:
            return
        if entry.state is prepared:
            raise _concurrent()
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"'{self.transactional_id}' cannot {'commit' if commits else 'abort'}: it is {entry.state.value}",
        )

    def check_contains(self, producer: Producer) -> frozenset[TopicPartition]:
        """Return the partitions of the open transaction of a producer: none if no transaction is open."""
        entry = self._checked(producer)
        return entry.partitions if entry.state is TransactionState.ONGOING else frozenset()

    def time_out(self, moment: Moment) -> TransactionEntry | None:
        """Abort the transaction if it has been open for too long. Its producer is fenced."""
        entry = self.entry
        if entry is None or entry.state is not TransactionState.ONGOING or self.is_storing:
            return None
        if moment.steady_ms < self._times_out_ms:
            return None
        return self._abort_as_coordinator(entry, moment)

    def markers_written(self, moment: Moment) -> TransactionEntry:
        """Every partition has its marker: the transaction is complete."""
        entry = self.entry
        assert entry is not None
        assert not self.is_storing
        is_commit = entry.state is TransactionState.PREPARE_COMMIT
        state = TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
        return self._store(replace(entry, state=state, partitions=frozenset()), moment)

    def is_expired(self, wall_ms: int, expiration_ms: int) -> bool:
        """Whether the id has not been used for long, and nothing is open."""
        entry = self.entry
        if entry is None or self.is_storing:
            return False
        return entry.state.is_idle and entry.update_ms <= wall_ms - expiration_ms

    def begin_removal(self, moment: Moment) -> None:
        """Mark an expired id as dead, while its removal is being stored."""
        assert self.entry is not None
        self._store(replace(self.entry, state=TransactionState.DEAD), moment)

    def restored(self, moment: Moment) -> None:
        """Resume after loading. The clock may have been changed, so no transaction gets more than its timeout."""
        entry = self.entry
        if entry is not None and entry.state is TransactionState.ONGOING:
            open_ms = max(0, moment.wall_ms - entry.start_ms)
            self._times_out_ms = moment.steady_ms + max(0, entry.timeout_ms - open_ms)

    def _abort_as_coordinator(self, entry: TransactionEntry, moment: Moment) -> TransactionEntry:
        """Abort without the producer, which is fenced by the epoch of the markers."""
        fencing = Producer(entry.producer.producer_id, entry.producer.epoch + 1)
        return self._store(
            replace(entry, state=TransactionState.PREPARE_ABORT, producer=fencing, previous=None), moment
        )

    # -- checks

    def _checked(self, producer: Producer) -> TransactionEntry:
        """Return the entry if `producer` is the current one."""
        entry = self.entry
        if entry is None or entry.producer.producer_id != producer.producer_id:
            raise unknown_producer(self.transactional_id)
        if entry.producer.epoch != producer.epoch:
            raise fenced(entry.producer)
        return entry

    def _check_not_storing(self) -> None:
        if self._storing is not None:
            raise _concurrent()


def _initialized(
    entry: TransactionEntry, timeout_ms: int, producer: Producer, previous: Producer | None
) -> TransactionEntry:
    return replace(
        entry,
        producer=producer,
        previous=previous,
        timeout_ms=timeout_ms,
        state=TransactionState.EMPTY,
        partitions=frozenset(),
        start_ms=NO_TIMESTAMP,
    )


def _concurrent() -> KafkaError:
    return KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "the transactional id is being changed; try again")


def fenced(current: Producer) -> KafkaError:
    return KafkaError(
        ErrorCode.PRODUCER_FENCED,
        f"another producer has started with this transactional id, or its transaction has timed out: producer "
        f"{current.producer_id} is in epoch {current.epoch} now",
    )


def unknown_producer(transactional_id: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"'{transactional_id}' does not have this producer id")
