"""A transaction of the sink, from the driver.

A transactional id belongs to one query, or to one batch write. `begin` fences whatever still sends under it, such as
the process of a driver that was killed, and aborts what that has left open. So a transaction is committed by the
attempt that began it, or never.

The number of the micro-batch is committed in the same transaction, as an offset: the group of the query has the next
number as its position in the topic `_skylog_batches`, which stays empty. An attempt that does not know how the one
before it ended asks for this position, after `begin`: nothing can change it any more.

Requests are those of the first form of transactions (KIP-98), which Apache Kafka serves as well.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from typing import Final, TypeVar

from skylog.errors import ErrorCode, KafkaError, SkylogError
from skylog.model import TopicPartition
from skylog.protocol.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from skylog.protocol.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from skylog.protocol.end_txn import EndTxnRequest, EndTxnResponse
from skylog.protocol.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from skylog.protocol.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from skylog.protocol.schema import Message
from skylog.protocol.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from skylog.spark.leaders import CoordinatorKind, Leaders, ProducerId, check
from skylog.spark.wire import ConnectionLostError
from skylog.spark.writing.target_topics import TargetTopics
from skylog.spark.writing.write_options import WriteOptions

logger = logging.getLogger(__name__)

ID_PREFIX: Final = "skylog-spark-"
BATCHES_TOPIC: Final = "_skylog_batches"
_VERSION: Final = 3  # of the requests of a transaction: the last one before other rules apply
_OFFSET_FETCH_VERSION: Final = 7  # the last one with one group
_LOST: Final = (
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.PRODUCER_FENCED,
)

R = TypeVar("R", bound=Message)


class TransactionLostError(SkylogError):
    """The transaction was aborted by a broker, or by another driver."""

    def __init__(self, transactional_id: str, timeout_ms: int, error: KafkaError) -> None:
        super().__init__(
            f"the transaction of '{transactional_id}' was aborted: it took longer than "
            f"kafka.transaction.timeout.ms={timeout_ms}, or another driver runs the same query ({error})"
        )


class Transaction:
    """One transaction. Its methods are called in the order in which they stand here. For one thread."""

    def __init__(self, options: WriteOptions, leaders: Leaders, transactional_id: str) -> None:
        """The name of the group is `transactional_id`, too."""
        self._options = options
        self._leaders = leaders
        self.transactional_id = transactional_id
        self.producer = ProducerId(-1, -1)

    def begin(self) -> None:
        """Get a producer. Aborts an open transaction of the same id, and waits until one that is decided is over."""
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=self._options.transaction_timeout_ms
        )
        response = self._ask(request, InitProducerIdResponse, lambda found: found.error_code)
        self.producer = ProducerId(response.producer_id, response.producer_epoch)

    def next_batch(self) -> int:
        """Return the number after that of the last micro-batch that was committed; 0 if there is none."""
        TargetTopics(self._leaders, replace(self._options, topic_partitions=1)).partition_count(BATCHES_TOPIC)
        request = OffsetFetchRequest(
            group_id=self.transactional_id,
            topics=[OffsetFetchRequestTopic(name=BATCHES_TOPIC, partition_indexes=[0])],
            require_stable=True,
        )
        response = self._ask(request, OffsetFetchResponse, _offset_fetch_error, CoordinatorKind.GROUP)
        return max(response.topics[0].partitions[0].committed_offset, 0)

    def add_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Name the partitions that get records."""
        by_topic = groupby(sorted(partitions), key=lambda partition: partition.topic)
        topics = [AddPartitionsToTxnTopic(name=name, partitions=[each.partition for each in g]) for name, g in by_topic]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer.producer_id,
            v3_and_below_producer_epoch=self.producer.epoch,
            v3_and_below_topics=topics,
        )
        self._ask(request, AddPartitionsToTxnResponse, _add_partitions_error)

    def add_batch(self, batch_id: int) -> None:
        """Add the number of the micro-batch."""
        group_id, (producer_id, epoch) = self.transactional_id, self.producer
        added = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id, producer_id=producer_id, producer_epoch=epoch, group_id=group_id
        )
        self._ask(added, AddOffsetsToTxnResponse, lambda found: found.error_code)
        row = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=batch_id + 1)
        commit = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            topics=[TxnOffsetCommitRequestTopic(name=BATCHES_TOPIC, partitions=[row])],
        )
        self._ask(commit, TxnOffsetCommitResponse, _offset_commit_error, CoordinatorKind.GROUP)

    def commit(self) -> None:
        """Commit. A retry after a lost response succeeds if the first request has."""
        self._end(commits=True)

    @contextmanager
    def ended_on_error(self) -> Iterator[None]:
        """Abort if the block fails, so that readers need not wait for the timeout."""
        try:
            yield
        except SkylogError as error:
            try:
                self._end(commits=False)
            except SkylogError as failure:
                logger.info("the transaction of '%s' is left to its timeout: %s", self.transactional_id, failure)
            if isinstance(error, KafkaError) and error.code in _LOST:
                timeout_ms = self._options.transaction_timeout_ms
                raise TransactionLostError(self.transactional_id, timeout_ms, error) from error
            raise

    def _end(self, *, commits: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            committed=commits,
        )
        self._ask(request, EndTxnResponse, lambda found: found.error_code)

    def _ask(
        self,
        request: Message,
        kind: type[R],
        error_of: Callable[[R], int],
        coordinator: CoordinatorKind = CoordinatorKind.TRANSACTION,
    ) -> R:
        """Ask a coordinator, again after errors that pass. Every request of this module may be repeated."""
        preferred = _OFFSET_FETCH_VERSION if isinstance(request, OffsetFetchRequest) else _VERSION
        deadline = time.monotonic() + self._options.delivery_timeout_s
        while True:
            try:
                connection = self._leaders.coordinator(coordinator, self.transactional_id)
                response = connection.ask(request, connection.version(type(request), preferred), kind)
                check(error_of(response), f"the transaction of '{self.transactional_id}' failed")
                return response
            except (ConnectionLostError, KafkaError) as error:
                self._leaders.back_off(error, deadline)


def _offset_fetch_error(response: OffsetFetchResponse) -> int:
    return response.error_code or response.topics[0].partitions[0].error_code


def _add_partitions_error(response: AddPartitionsToTxnResponse) -> int:
    rows = (row for topic in response.results_by_topic_v3_and_below for row in topic.results_by_partition)
    codes = [row.partition_error_code for row in rows if row.partition_error_code]
    # One partition that cannot be added fails all others with this code. The cause is the other one.
    return next((code for code in codes if code != ErrorCode.OPERATION_NOT_ATTEMPTED), codes[0] if codes else 0)


def _offset_commit_error(response: TxnOffsetCommitResponse) -> int:
    return response.topics[0].partitions[0].error_code
