"""One transaction of a producer, with the offsets of the consumers whose messages it processes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from confluent_kafka import KafkaError as LibraryError
from confluent_kafka import KafkaException

from skylog.client.engine import Engine
from skylog.client.errors import ProducerFencedError, TransactionAbortedError, TransactionUnknownError
from skylog.client.offset_tracker import Bookmark
from skylog.errors import ErrorCode, SkylogError

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition as LibraryPartition

    from skylog.client.consumer import Consumer

logger = logging.getLogger(__name__)

TIMEOUT_S: Final = 60.0
_ATTEMPT_S: Final = 10.0
_PAUSE_S: Final = 0.1
_FENCED: Final = frozenset(
    {
        LibraryError._FENCED,
        int(ErrorCode.PRODUCER_FENCED),
        int(ErrorCode.INVALID_PRODUCER_EPOCH),
        int(ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    }
)


class _Input(NamedTuple):
    """A consumer, with its generation and its positions when the transaction was created."""

    consumer: Consumer[Any]
    metadata: object
    bookmark: Bookmark


class Transaction:
    """A transaction. `Producer.transaction` creates it, and calls `begin`, then `commit` or `abort`.

    The consumers' positions of the time when it was created are remembered: unless it is committed, they go back to
    them, so that the same messages are delivered again.

    librdkafka finishes a commit or abort that has timed out when the same call is repeated, and refuses all others
    until then. So a transaction without a result stays in the engine, and the next one finishes it before it begins.
    """

    def __init__(self, transactional_id: str, consumers: Sequence[Consumer[Any]]) -> None:
        self._id = transactional_id
        self._engine: Engine
        self._inputs = [_Input(each, each.group_metadata(), each.bookmark()) for each in consumers]
        self._ends: list[list[LibraryPartition]] = []  # the offsets to commit, for each input
        self._commit_was_sent = self._is_aborted = False

    def begin(self, start: Callable[[], Engine]) -> None:
        """Begin in the engine that `start` returns. Raises SkylogError; then the consumers go back.

        TransactionAbortedError may also mean the transaction before this one, whose result was unknown. Then its
        consumers go back to where that one began.
        """
        former = None
        try:
            self._engine = start()
            former = self._engine.unfinished
            if former is not None:
                former._finish()
            self._engine.client.begin_transaction()
        except BaseException as error:
            self._go_back()
            if former is not None and former._is_aborted:
                former._go_back()
            if isinstance(error, KafkaException):
                raise explain(error.args[0], self._id) from error
            raise

    def commit(self) -> None:
        """Commit the messages, and the positions of the consumers. Raises SkylogError if that fails.

        The transaction is aborted then, unless the error is TransactionUnknownError.
        """
        try:
            self._engine.flush(None)
            self._send_offsets()
        except KafkaException as error:
            raise self._failed(error) from error
        except BaseException:
            self.abort()
            raise
        self._engine.unfinished = self
        self._finish_commit()

    def abort(self) -> None:
        """Abort, and let the consumers go back.

        A failure is logged: the next transaction finishes the abort, or the broker does it in the end.
        """
        self._is_aborted = True
        self._engine.unfinished = self
        try:
            self._finish_abort()
        except KafkaException as error:
            logger.warning("cannot abort the transaction of '%s': %s", self._id, error.args[0].str())
        finally:
            self._go_back()

    def _send_offsets(self) -> None:
        for consumer, metadata, bookmark in self._inputs:
            if consumer.has_lost_partitions_since(bookmark):
                raise TransactionAbortedError(self._id, "partitions were taken from its consumer while it was open")
            ends = consumer.finish_returned()
            self._ends.append(ends)
            if ends:
                self._retry(lambda: self._engine.client.send_offsets_to_transaction(ends, metadata, _ATTEMPT_S))  # noqa: B023

    def _finish(self) -> None:
        """Finish a commit or an abort without a result. Raises SkylogError or KafkaException."""
        if not self._is_aborted:
            self._finish_commit()
            return
        try:
            self._finish_abort()
        except KafkaException as error:
            if error.args[0].code() != LibraryError._STATE:  # with it, there is nothing to abort any more
                raise

    def _finish_commit(self) -> None:
        self._commit_was_sent = True
        try:
            self._retry(lambda: self._engine.client.commit_transaction(_ATTEMPT_S))
        except KafkaException as error:
            if error.args[0].retriable():
                raise TransactionUnknownError(self._id, error.args[0].str()) from error
            raise self._failed(error) from error
        self._engine.unfinished = None
        for each, ends in zip(self._inputs, self._ends, strict=True):
            each.consumer.committed(ends)

    def _finish_abort(self) -> None:
        self._retry(lambda: self._engine.client.abort_transaction(_ATTEMPT_S))
        self._engine.unfinished = None

    def _failed(self, error: KafkaException) -> SkylogError:
        """Abort, unless the cluster has done so for the producer that fenced this one. Return the error to raise."""
        failure = explain(error.args[0], self._id)
        if isinstance(failure, ProducerFencedError):
            self._is_aborted = True
            self._engine.unfinished = None
            self._go_back()
        else:
            self.abort()
        return failure

    def _go_back(self) -> None:
        """Let the consumers continue where the transaction began.

        A commit that was sent may have been stored although it failed, so the group's offsets are read then.
        """
        for each in self._inputs:
            each.consumer.go_back(each.bookmark, check_committed=self._commit_was_sent)

    def _retry(self, action: Callable[[], object]) -> None:
        """Repeat what librdkafka allows to be repeated, for a while. Raises KafkaException."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                action()
                return
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE_S)


def start_transactions(engine: Engine, transactional_id: str) -> None:
    """Register the producer with the coordinator of its transactional id. This fences the producer before it."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            engine.client.init_transactions(_ATTEMPT_S)
            return
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise explain(error.args[0], transactional_id) from error


def explain(error: Any, transactional_id: str) -> SkylogError:
    if error.code() in _FENCED:
        return ProducerFencedError(transactional_id)
    if error.fatal():
        return SkylogError(f"the producer with the transactional id '{transactional_id}' failed: {error.str()}")
    return TransactionAbortedError(transactional_id, error.str())
