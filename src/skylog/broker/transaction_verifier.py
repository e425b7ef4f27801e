"""Checks that a transaction is open before a batch begins it in a partition (KIP-890).

A batch that is delayed in the network can arrive after its transaction has ended. It would begin the transaction again,
which nobody would ever end, and read_committed consumers would wait for ever. So the leader of a partition asks the
coordinator, unless the transaction is already open in the partition. If the marker arrives while the coordinator is
being asked, the batch is late all the same: the stamp that was taken before is outdated, and the append fails.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from skylog.broker.leader_client import LeaderClient
from skylog.broker.peer_batches import PeerBatches
from skylog.cluster.image import NO_LEADER
from skylog.errors import ErrorCode, KafkaError
from skylog.model import TopicPartition
from skylog.protocol.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from skylog.protocol.produce_hot import ProduceCall
from skylog.records import HEADER_BYTES, BatchHeader
from skylog.transactions import Producer

if TYPE_CHECKING:
    from skylog.broker.broker import Broker
    from skylog.broker.partition import Partition

_VERIFY_VERSION: Final = 4

_PASSING: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Errors of the coordinator that pass. Producers retry on NOT_ENOUGH_REPLICAS, but not all know the others."""


class Question(NamedTuple):
    """Whether partitions are part of the open transaction of a producer."""

    transactional_id: str
    producer: Producer
    names: Collection[TopicPartition]


Answers = dict[TopicPartition, ErrorCode]


class TransactionVerifier:
    """Asks the coordinators of transactional ids. Use it on the event loop only."""

    def __init__(self, broker: Broker, peers: LeaderClient) -> None:
        self._broker = broker
        self._peers = peers
        self._batches = PeerBatches(self._ask_all)

    async def stop(self) -> None:
        await self._batches.stop()

    async def verify(
        self, transactional_id: str, producer: Producer, partitions: Collection[Partition]
    ) -> dict[TopicPartition, int | KafkaError]:
        """Ask the coordinator whether partitions are part of the producer's open transaction.

        Return a stamp for `Partition.append`, or the error for the producer.
        """
        stamps = {each.name: each.verification_stamp(producer.producer_id) for each in partitions}
        if not self._broker.config.transactions.partition_verification_enable:
            return dict(stamps)
        answers: Answers
        try:
            answers = await self._ask(Question(transactional_id, producer, list(stamps)))
        except KafkaError as error:
            answers = dict.fromkeys(stamps, error.code)
        return {name: stamp if not answers[name] else _refusal(name, answers[name]) for name, stamp in stamps.items()}

    async def _ask(self, question: Question) -> Answers:
        coordinator = self._broker.transactions
        node_id = coordinator.find(question.transactional_id)
        if node_id == NO_LEADER:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if node_id == self._broker.identity.node_id:
            shard = coordinator.shard(question.transactional_id)
            return shard.verify(question.transactional_id, question.producer, question.names)
        return await self._batches.ask(node_id, question)

    async def _ask_all(self, node_id: int, questions: Sequence[Question]) -> list[Answers]:
        """Ask another broker. A transactional id is asked about once in a request; the response has it as the key."""
        answers: list[Answers] = []
        left = list(questions)
        while left:
            now: dict[str, Question] = {}
            while left and left[0].transactional_id not in now:
                question = left.pop(0)
                now[question.transactional_id] = question
            request = AddPartitionsToTxnRequest(transactions=[_row(each) for each in now.values()])
            response = await self._peers.ask(node_id, request, _VERIFY_VERSION)
            if response.error_code:
                raise KafkaError(ErrorCode(response.error_code))
            found = {row.transactional_id: row.topic_results for row in response.results_by_transaction}
            answers += [
                {
                    TopicPartition(topic.name, row.partition_index): ErrorCode(row.partition_error_code)
                    for topic in found[transactional_id]
                    for row in topic.results_by_partition
                }
                for transactional_id in now
            ]
        return answers


def first_batches(broker: Broker, call: ProduceCall) -> dict[Producer, list[Partition]]:
    """Return the partitions in which batches of a request would begin a transaction, by producer."""
    first: dict[Producer, list[Partition]] = {}
    for topic, rows in call.topics:
        for index, records in rows:
            if records is None or len(records) < HEADER_BYTES:
                continue  # the append raises the error
            header = BatchHeader.read(records)
            partition = broker.replicas.find(TopicPartition(topic, index))
            if not header.is_transactional or partition is None or not partition.is_leader:
                continue
            producer = Producer(header.producer_id, header.producer_epoch)
            if not partition.has_open_transaction(*producer):
                first.setdefault(producer, []).append(partition)
    return first


def _refusal(name: TopicPartition, code: ErrorCode) -> KafkaError:
    if code in _PASSING:
        return KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS, f"cannot verify that {name} is part of the transaction yet: {code.name}"
        )
    if code is ErrorCode.PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return KafkaError(code, f"{name} is not part of an open transaction of this producer")


def _row(question: Question) -> AddPartitionsToTxnTransaction:
    by_topic: dict[str, list[int]] = {}
    for name in question.names:
        by_topic.setdefault(name.topic, []).append(name.partition)
    return AddPartitionsToTxnTransaction(
        transactional_id=question.transactional_id,
        producer_id=question.producer.producer_id,
        producer_epoch=question.producer.epoch,
        verify_only=True,
        topics=[AddPartitionsToTxnTopic(name=topic, partitions=indexes) for topic, indexes in by_topic.items()],
    )
