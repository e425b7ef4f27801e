"""The transactional ids of one partition of `__transaction_state`: a shell around `transactions`.

A change is stored, on all replicas in sync, before it takes effect. The order of a commit or abort is::

    the decision is stored ─▶ the producer gets its response ─▶ every partition gets its marker ─▶ the end is stored

From the first step on the transaction is decided, whatever fails later. A broker that begins to lead the partition goes
on with the markers where the last one has stopped.

A shard lives as long as one leadership (see `state_topic`). Handlers call the methods named after their APIs, which
raise KafkaError.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Final, Self

from skylog.broker.leadership import Leadership, not_coordinator
from skylog.broker.time_slice import TimeSlice, cooperatively
from skylog.broker.transaction_markers import FIRST_RETRY_S, LAST_RETRY_S, Decision
from skylog.cluster import SessionExpiredError
from skylog.errors import ErrorCode, KafkaError
from skylog.limited_logger import LimitedLogger
from skylog.model import TopicPartition
from skylog.transactions import (
    Moment,
    Producer,
    Transaction,
    TransactionConfig,
    TransactionEntry,
    Transactions,
    TransactionState,
)
from skylog.transactions.transaction import unknown_producer

if TYPE_CHECKING:
    from skylog.broker.broker import Broker

logger = logging.getLogger(__name__)
limited_logger = LimitedLogger(logger)

SETTLE_S: Final = 0.5  # how long a request waits for the markers of the transaction before it

_UNAVAILABLE: Final = frozenset(
    {
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


class TransactionShard:
    """The transactional ids of one partition. Use it on the event loop only.

    `failed` is called for each failure in the background.
    """

    def __init__(
        self, broker: Broker, config: TransactionConfig, leadership: Leadership, failed: Callable[[], None]
    ) -> None:
        self._broker = broker
        self._config = config
        self._leadership = leadership
        self._failed = failed
        self._transactions = Transactions()
        self._completing: dict[str, asyncio.Task[None]] = {}  # sending markers, by transactional id
        self._tasks: set[asyncio.Task[None]] = set()

    def _moment(self) -> Moment:
        clock = self._broker.clock
        return Moment(clock.now_ms(), int(clock.monotonic() * 1000))

    # -- requests

    async def init_producer_id(self, transactional_id: str, timeout_ms: int, expected: Producer | None) -> Producer:
        """Start a producer, and fence the one before it. A transaction that is still open is aborted first."""
        if not 0 < timeout_ms <= self._config.max_timeout_ms:
            raise KafkaError(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
                f"a transaction timeout of {timeout_ms} ms is not between 1 and "
                f"transaction.max.timeout.ms={self._config.max_timeout_ms}",
            )
        await self._settled(transactional_id)
        transaction = self._transactions.find(transactional_id)
        producer_id = None
        if transaction is None or transaction.needs_producer_id:
            producer_id = await self._new_producer_id()
            transaction = self._transactions.get_or_create(transactional_id)
        entry = transaction.init(timeout_ms, expected, producer_id, self._moment())
        await self._stored(transaction, entry)
        if entry.state.is_decided:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "the open transaction of this id is being aborted")
        return entry.producer

    async def _new_producer_id(self) -> int:
        try:
            return await self._broker.metadata.next_producer_id()
        except SessionExpiredError as error:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error

    async def add_partitions(
        self, transactional_id: str, producer: Producer, names: Collection[TopicPartition], connection: int
    ) -> None:
        """Add partitions to the open transaction, or begin one."""
        await self._settled(transactional_id)
        transaction = self._find(transactional_id)
        entry = transaction.add(producer, names, self._moment(), connection)
        if entry is not None:
            await self._stored(transaction, entry)

    async def end(self, transactional_id: str, producer: Producer, commits: bool, connection: int) -> None:
        """Commit or abort. Returns when the decision is stored; the markers follow."""
        await self._settled(transactional_id)
        transaction = self._find(transactional_id)
        entry = transaction.end(producer, commits, self._moment(), connection)
        if entry is not None:
            await self._stored(transaction, entry)

    def verify(
        self, transactional_id: str, producer: Producer, names: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Return which partitions are part of the producer's open transaction."""
        partitions = self._find(transactional_id).check_contains(producer)
        return {name: ErrorCode.NONE if name in partitions else ErrorCode.INVALID_TXN_STATE for name in names}

    def find(self, transactional_id: str) -> TransactionEntry | None:
        transaction = self._transactions.find(transactional_id)
        return transaction.entry if transaction is not None else None

    def all(self) -> list[Transaction]:
        """Return every transactional id of the partition."""
        return self._transactions.all()

    def _find(self, transactional_id: str) -> Transaction:
        transaction = self._transactions.find(transactional_id)
        if transaction is None:
            raise unknown_producer(transactional_id)
        return transaction

    async def _settled(self, transactional_id: str) -> None:
        """Wait a moment for the markers of a decided transaction.

        A producer begins its next transaction as soon as it has the response to the last one. CONCURRENT_TRANSACTIONS
        would make it wait for much longer than the markers take.
        """
        completing = self._completing.get(transactional_id)
        if completing is not None:
            await asyncio.wait([completing], timeout=SETTLE_S)
            if self._leadership.is_over:
                raise not_coordinator()

    # -- storing

    async def _stored(self, transaction: Transaction, entry: TransactionEntry) -> None:
        """Store an entry, also if the client leaves meanwhile. The end of the leadership cancels it."""
        storing = self._spawn(self._store(transaction, entry))
        try:
            await asyncio.shield(storing)
        except asyncio.CancelledError:
            if storing.cancelled() and self._leadership.is_over:
                raise not_coordinator() from None
            raise

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _store(self, transaction: Transaction, entry: TransactionEntry) -> None:
        """Store an entry and apply it. A decided transaction then gets its markers."""
        try:
            await self._append(transaction.transactional_id, entry)
        except BaseException:
            transaction.storing_failed()
            self._transactions.changed(transaction)
            raise
        transaction.stored()
        self._transactions.changed(transaction)
        if entry.state.is_decided:
            self._complete_later(transaction)

    async def _append(self, transactional_id: str, entry: TransactionEntry | None) -> None:
        try:
            waiting = self._leadership.append([self._transactions.record(transactional_id, entry)])
            if waiting is not None:
                await waiting
        except KafkaError as error:
            raise self._for_producers(error) from error

    def _for_producers(self, error: KafkaError) -> KafkaError:
        """Translate an error of the partition into one that producers handle."""
        if self._leadership.is_over or error.code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR):
            return not_coordinator()
        if error.code in _UNAVAILABLE:
            return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message)
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, error.message)

    # -- markers

    def _complete_later(self, transaction: Transaction) -> None:
        transactional_id = transaction.transactional_id
        task = self._completing[transactional_id] = self._spawn(self._complete(transaction))
        task.add_done_callback(partial(self._completed, transactional_id))

    def _completed(self, transactional_id: str, task: asyncio.Task[None]) -> None:
        if self._completing.get(transactional_id) is task:
            del self._completing[transactional_id]

    async def _complete(self, transaction: Transaction) -> None:
        """Send the markers of a decided transaction until each partition has one, then store its end.

        Whatever fails is tried again: nobody else ends the transaction while this broker leads.
        """
        delay_s = FIRST_RETRY_S
        while not self._leadership.is_over:
            try:
                if await self._send_markers(transaction):
                    await self._store_end(transaction)
                return
            except Exception as error:
                self._failed()
                limited_logger.error(
                    "cannot complete the transaction of %s", transaction.transactional_id, exc_info=error
                )
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, LAST_RETRY_S)

    async def _send_markers(self, transaction: Transaction) -> bool:
        """Return False if the leadership ends before each partition has its marker."""
        entry = transaction.entry
        assert entry is not None
        leadership, commits = self._leadership, entry.state is TransactionState.PREPARE_COMMIT
        return await self._broker.transactions.markers.send(
            transaction.transactional_id,
            entry.partitions,
            lambda: Decision(entry.producer, commits, leadership.partition.leader_epoch),
            lambda: leadership.is_over,
        )

    async def _store_end(self, transaction: Transaction) -> None:
        delay_s = FIRST_RETRY_S
        while not self._leadership.is_over:
            try:
                await self._store(transaction, transaction.markers_written(self._moment()))
                return
            except KafkaError as error:
                if self._leadership.is_over:
                    return
                self._failed()
                logger.warning("cannot store the end of the transaction of %s: %s", transaction.transactional_id, error)
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, LAST_RETRY_S)

    # -- time

    async def abort_timed_out(self, time_slice: TimeSlice) -> None:
        """Abort the transactions that have been open for too long."""
        for transaction in self._transactions.open():
            await time_slice.yield_if_over()
            if self._leadership.is_over:
                return
            entry = transaction.time_out(self._moment())
            if entry is None:
                continue
            logger.info("the transaction of %s has timed out and is aborted", transaction.transactional_id)
            try:
                await self._store(transaction, entry)
            except KafkaError as error:
                self._note(f"cannot abort the transaction of {transaction.transactional_id}", error)

    async def remove_expired(self, time_slice: TimeSlice) -> None:
        """Remove the transactional ids that have not been used for long."""
        for transaction in self._transactions.all():
            await time_slice.yield_if_over()
            if self._leadership.is_over:
                return
            if not transaction.is_expired(self._broker.clock.now_ms(), self._config.id_expiration_ms):
                continue
            transaction.begin_removal(self._moment())
            try:
                await self._append(transaction.transactional_id, None)
            except KafkaError as error:
                transaction.storing_failed()
                self._note(f"cannot remove the transactional id {transaction.transactional_id}", error)
                continue
            self._transactions.remove(transaction.transactional_id)
            logger.info("transactional id %s has expired", transaction.transactional_id)

    def _note(self, what: str, error: KafkaError) -> None:
        if not self._leadership.is_over:
            self._failed()
            logger.warning("%s: %s", what, error)

    # -- the life of the shard, called by the state topic

    def replay(self, key: bytes, value: bytes | None, producer_id: int) -> None:
        self._transactions.replay(key, value)

    def replay_marker(self, producer_id: int, commits: bool) -> None:
        """Nothing: the topic of transactions has none itself."""

    def take_over(self, failed: Self) -> None:
        """Nothing: no change waits for the end of a load."""

    async def loaded(self) -> None:
        async for transaction in cooperatively(self._transactions.all()):
            transaction.restored(self._moment())
            entry = transaction.entry
            if entry is not None and entry.state.is_decided:
                self._complete_later(transaction)

    def close(self) -> None:
        """Nothing: requests that wait fail with their append, and the sending of markers ends by itself."""

    async def free(self) -> None:
        await self.stop()
        async for _ in cooperatively(self._transactions.drop_all()):
            pass

    async def stop(self) -> None:
        """End what is under way. What is not stored yet is lost, and the next coordinator does not know of it."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
