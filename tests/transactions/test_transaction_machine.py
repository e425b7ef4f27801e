"""Random lives of a transactional id, with several producers, failed writes and changes of the coordinator."""

from __future__ import annotations

from dataclasses import dataclass, field

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from skylog.errors import ErrorCode, KafkaError
from skylog.model import TopicPartition
from skylog.transactions import (
    Moment,
    Producer,
    StoredRecord,
    TransactionEntry,
    Transactions,
    TransactionState,
)
from skylog.transactions.entry import LAST_EPOCH
from tests.proof import proof

ID = "t"
TIMEOUT_MS = 100
PARTITIONS = [TopicPartition("a", index) for index in range(3)]
CLIENTS = st.integers(0, 2)


@dataclass
class Client:
    """A producer as it knows itself: its id and epoch, and the partitions of its transaction."""

    producer: Producer | None = None
    added: set[TopicPartition] = field(default_factory=set)


class TransactionMachine(RuleBasedStateMachine):
    """Clients, and a coordinator that stores its entries in a log. What a write left in the log is replayed."""

    def __init__(self) -> None:
        super().__init__()
        self.transactions = Transactions()
        self.log: list[StoredRecord] = []
        self.clients = [Client(), Client(), Client()]
        self.given: list[Producer] = []
        self.decided: tuple[bool, frozenset[TopicPartition], Producer] | None = None
        self.now_ms = 0
        self.next_id = 100

    @initialize(epoch=st.sampled_from([0, LAST_EPOCH - 2, LAST_EPOCH]))
    def begin(self, epoch: int) -> None:
        entry = TransactionEntry(Producer(99, epoch), TIMEOUT_MS)
        self.log.append(self.transactions.record(ID, entry))
        self.given.append(entry.producer)
        self.reload()

    def moment(self) -> Moment:
        return Moment(self.now_ms + 10**6, self.now_ms)

    def store(self, entry: TransactionEntry, is_stored: bool, is_acknowledged: bool) -> bool:
        """Store an entry. A write that fails may be in the log all the same."""
        transaction = self.transactions.find(ID)
        assert transaction is not None
        if is_stored:
            self.log.append(self.transactions.record(ID, entry))
        if not (is_stored and is_acknowledged):
            transaction.storing_failed()
            self.transactions.changed(transaction)
            return False
        transaction.stored()
        self.transactions.changed(transaction)
        if entry.state.is_decided:
            self.decided = (entry.state is TransactionState.PREPARE_COMMIT, entry.partitions, entry.producer)
        return True

    @property
    def entry(self) -> TransactionEntry:
        transaction = self.transactions.find(ID)
        assert transaction is not None
        assert transaction.entry is not None
        return transaction.entry

    @rule(ms=st.integers(1, 80))
    def wait(self, ms: int) -> None:
        self.now_ms += ms

    @rule(who=CLIENTS, goes_on=st.booleans(), is_stored=st.booleans(), is_acknowledged=st.booleans())
    def init(self, who: int, goes_on: bool, is_stored: bool, is_acknowledged: bool) -> None:
        client = self.clients[who]
        expected = client.producer if goes_on else None
        transaction = self.transactions.get_or_create(ID)
        producer_id = None
        if transaction.needs_producer_id:
            self.next_id += 1
            producer_id = self.next_id
        is_last = self.given[-1] == expected
        try:
            entry = transaction.init(TIMEOUT_MS, expected, producer_id, self.moment())
        except KafkaError as error:
            self.check_refused(client, error)
            return
        assert expected is None or is_last or entry.producer == self.given[-1] or not is_acknowledged
        if self.store(entry, is_stored, is_acknowledged) and not entry.state.is_decided:
            assert entry.producer.epoch <= LAST_EPOCH
            if entry.producer not in self.given:
                self.given.append(entry.producer)
            else:
                assert expected is not None
                assert entry.producer == self.given[-1]
            client.producer, client.added = entry.producer, set()

    @rule(who=CLIENTS, name=st.sampled_from(PARTITIONS), is_stored=st.booleans(), is_acknowledged=st.booleans())
    def add(self, who: int, name: TopicPartition, is_stored: bool, is_acknowledged: bool) -> None:
        client = self.clients[who]
        if client.producer is None:
            return
        transaction = self.transactions.find(ID)
        assert transaction is not None
        is_idle = self.entry.state.is_idle
        try:
            entry = transaction.add(client.producer, [name], self.moment())
        except KafkaError as error:
            self.check_refused(client, error)
            return
        self.check_current(client)
        if entry is None or self.store(entry, is_stored, is_acknowledged):
            client.added = {name} if is_idle else client.added | {name}
            assert client.added <= self.entry.partitions

    @rule(who=CLIENTS, commits=st.booleans(), is_stored=st.booleans(), is_acknowledged=st.booleans())
    def end(self, who: int, commits: bool, is_stored: bool, is_acknowledged: bool) -> None:
        client = self.clients[who]
        if client.producer is None:
            return
        transaction = self.transactions.find(ID)
        assert transaction is not None
        try:
            entry = transaction.end(client.producer, commits, self.moment())
        except KafkaError as error:
            self.check_refused(client, error)
            return
        self.check_current(client)
        if entry is None:
            assert self.decided is not None
            assert self.decided[0] == commits
        elif self.store(entry, is_stored, is_acknowledged):
            assert self.decided is not None
            assert client.added <= self.decided[1]

    def check_current(self, client: Client) -> None:
        """Only the producer that started last may do anything."""
        assert client.producer == self.given[-1] == self.entry.producer

    def check_refused(self, client: Client, error: KafkaError) -> None:
        if error.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING):
            assert client.producer != self.entry.producer
            client.producer = None
        else:
            assert error.code in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.INVALID_TXN_STATE)

    @rule(is_stored=st.booleans(), is_acknowledged=st.booleans())
    def time_out(self, is_stored: bool, is_acknowledged: bool) -> None:
        transaction = self.transactions.find(ID)
        assert transaction is not None
        entry = transaction.time_out(self.moment())
        if entry is not None:
            self.store(entry, is_stored, is_acknowledged)

    @precondition(lambda self: self.log and self.entry.state.is_decided)
    @rule(is_stored=st.booleans(), is_acknowledged=st.booleans())
    def write_markers(self, is_stored: bool, is_acknowledged: bool) -> None:
        """The markers say what was decided, for every partition that was added."""
        entry = self.entry
        assert self.decided == (entry.state is TransactionState.PREPARE_COMMIT, entry.partitions, entry.producer)
        transaction = self.transactions.find(ID)
        assert transaction is not None
        self.store(transaction.markers_written(self.moment()), is_stored, is_acknowledged)

    @rule()
    def reload(self) -> None:
        """Another broker becomes the coordinator. A write that nobody has acknowledged may count now."""
        self.transactions = Transactions()
        for key, value in self.log:
            self.transactions.replay(key, value)
        for transaction in self.transactions.all():
            transaction.restored(self.moment())
        entry = self.entry
        if entry.state.is_decided:
            self.decided = (entry.state is TransactionState.PREPARE_COMMIT, entry.partitions, entry.producer)
        if entry.state is TransactionState.EMPTY and entry.producer not in self.given:
            self.given.append(entry.producer)  # nobody knows that it was given

    @rule()
    def compact(self) -> None:
        self.log = self.log[-1:]

    @invariant()
    def open_transactions_are_indexed(self) -> None:
        if self.log:
            is_open = self.entry.state is TransactionState.ONGOING
            assert [each.transactional_id for each in self.transactions.open()] == ([ID] if is_open else [])

    @invariant()
    def no_producer_is_given_twice(self) -> None:
        assert len(set(self.given)) == len(self.given)


TransactionMachine.TestCase.settings = settings(max_examples=proof(1000, 60), stateful_step_count=40, deadline=None)
TestTransactionMachine = TransactionMachine.TestCase
