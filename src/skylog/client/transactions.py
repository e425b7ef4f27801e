"""Administration of transactions: lists, describes and aborts them, and finds those that hang.

for each in TransactionAdmin().list_transactions():
    print(each.transactional_id, each.state)
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka.admin import AdminClient

from skylog.client.cluster import ClusterBroker
from skylog.client.cluster_requests import ClusterRequests
from skylog.client.connection import Connection
from skylog.client.peer_requests import ask, ask_all
from skylog.errors import ErrorCode, KafkaError, SkylogError
from skylog.model import TRANSACTION_STATE_TOPIC, TopicPartition
from skylog.protocol.describe_producers import DescribeProducersRequest, DescribeProducersTopic
from skylog.protocol.describe_transactions import DescribedTransaction, DescribeTransactionsRequest
from skylog.protocol.find_coordinator import FindCoordinatorRequest
from skylog.protocol.init_producer_id import InitProducerIdRequest
from skylog.protocol.list_transactions import ListTransactionsRequest
from skylog.protocol.schema import Message
from skylog.protocol.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

DEFAULT_AGE_S: Final = 900.0
"""The largest timeout of a transaction, unless the brokers are configured otherwise."""

_TRANSACTION_KEY: Final = 1
_FIND_ONE: Final = 3  # the last version of FindCoordinator with one key
_FENCE_TIMEOUT_MS: Final = 1000
_ATTEMPTS: Final = 100
_PAUSE_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class TransactionSummary:
    """A transactional id, and the state of its last transaction."""

    transactional_id: str
    state: str
    producer_id: int
    coordinator: int


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id in detail. `start_ms` is None unless a transaction is running."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction as a partition has it: records of a producer, from an offset on, without a marker."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    start_offset: int
    last_timestamp_ms: int
    coordinator_epoch: int


class TransactionAdmin:
    """Administration of transactions. Works with any Kafka cluster. Raises SkylogError."""

    def __init__(self, bootstrap: str | Connection | None = None) -> None:
        self._connection = bootstrap if isinstance(bootstrap, Connection) else Connection(bootstrap)
        client: AdminClient = self._connection.admin_client()
        self._requests = ClusterRequests(self._connection, client)

    # -- by transactional id

    def list_transactions(
        self, states: Iterable[str] = (), producer_ids: Iterable[int] = ()
    ) -> list[TransactionSummary]:
        """Return the transactional ids of the cluster, sorted."""
        request = ListTransactionsRequest(state_filters=list(states), producer_id_filters=list(producer_ids))
        brokers = self._requests.brokers()
        found = []
        for broker, response in zip(brokers, self._ask_all(brokers, request), strict=True):
            _check(response.error_code, f"broker {broker.node_id} cannot list its transactions")
            if response.unknown_state_filters:
                raise SkylogError(f"there is no state '{response.unknown_state_filters[0]}' of a transaction")
            found += [
                TransactionSummary(row.transactional_id, row.transaction_state, row.producer_id, broker.node_id)
                for row in response.transaction_states
            ]
        return sorted(found, key=lambda each: each.transactional_id)

    def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        """Describe a transactional id. Raises KafkaError if it is not known."""
        broker = self._coordinator(transactional_id)
        response = self._ask(broker, DescribeTransactionsRequest(transactional_ids=[transactional_id]))
        row: DescribedTransaction = response.transaction_states[0]
        _check(row.error_code, f"there is no transactional id '{transactional_id}'")
        return TransactionDescription(
            transactional_id,
            row.transaction_state,
            row.producer_id,
            row.producer_epoch,
            row.transaction_timeout_ms,
            row.transaction_start_time_ms if row.transaction_start_time_ms >= 0 and row.topics else None,
            tuple(TopicPartition(topic.topic, index) for topic in row.topics for index in topic.partitions),
        )

    def fence(self, transactional_id: str) -> None:
        """Abort the open transaction of an id, if there is one, and fence its producer."""
        self.describe_transaction(transactional_id)  # fencing an unknown id would create it
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=_FENCE_TIMEOUT_MS)
        for _ in range(_ATTEMPTS):
            code = self._ask(self._coordinator(transactional_id), request).error_code
            if code not in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR):
                break
            time.sleep(_PAUSE_S)
        _check(code, f"cannot fence the producer of '{transactional_id}'")

    def _coordinator(self, transactional_id: str) -> ClusterBroker:
        request = FindCoordinatorRequest(key=transactional_id, key_type=_TRANSACTION_KEY)
        brokers = self._requests.brokers()
        response = self._ask(brokers[0], request, _FIND_ONE)
        _check(response.error_code, f"'{transactional_id}' has no coordinator")
        return next(each for each in brokers if each.node_id == response.node_id)

    # -- by partition

    def open_transactions(self, partitions: Collection[TopicPartition] | None = None) -> list[OpenTransaction]:
        """Return the transactions that are open in partitions, by default in all, as their leaders have them."""
        rows = self._requests.rows()
        brokers = {each.node_id: each for each in self._requests.brokers()}
        asked: dict[int, dict[str, list[int]]] = {}
        for key in rows if partitions is None else partitions:
            if key not in rows:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {key}")
            if rows[key].leader in brokers:
                asked.setdefault(rows[key].leader, {}).setdefault(key.topic, []).append(key.partition)
        found: list[OpenTransaction] = []
        for node_id, topics in asked.items():
            request = DescribeProducersRequest(
                topics=[DescribeProducersTopic(name=name, partition_indexes=each) for name, each in topics.items()]
            )
            response = self._ask(brokers[node_id], request)
            found += [
                OpenTransaction(
                    TopicPartition(topic.name, row.partition_index),
                    producer.producer_id,
                    producer.producer_epoch,
                    producer.current_txn_start_offset,
                    producer.last_timestamp,
                    producer.coordinator_epoch,
                )
                for topic in response.topics
                for row in topic.partitions
                for producer in row.active_producers
                if producer.current_txn_start_offset >= 0
            ]
        return sorted(found, key=lambda each: (each.partition, each.start_offset))

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of a topic. Raises KafkaError if there is no such topic."""
        found = sorted(key for key in self._requests.rows() if key.topic == topic)
        if not found:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic '{topic}'")
        return found

    def find_hanging(
        self, partitions: Collection[TopicPartition] | None = None, age_s: float = DEFAULT_AGE_S
    ) -> list[OpenTransaction]:
        """Return the transactions that no coordinator will end. They hold back every read_committed consumer.

        Candidates are those without a batch for `age_s`, which should be the largest timeout of a transaction. Raises
        KafkaError if a coordinator is away or moves meanwhile: the transaction may be one of its own.
        """
        latest_ms = int((time.time() - age_s) * 1000)
        old = [each for each in self.open_transactions(partitions) if each.last_timestamp_ms <= latest_ms]
        if not old:
            return []
        coordinators = self._coordinators()
        known: dict[int, set[TopicPartition]] = {}
        for summary in self.list_transactions(producer_ids={each.producer_id for each in old}):
            described = self.describe_transaction(summary.transactional_id)
            known.setdefault(described.producer_id, set()).update(described.partitions)
        unknown = [each for each in old if each.partition not in known.get(each.producer_id, ())]
        # One that has ended meanwhile is not known to its coordinator either. An abort would hit the next transaction.
        still_open = {_place(each) for each in self.open_transactions({each.partition for each in unknown})}
        if self._coordinators() != coordinators:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "coordinators of transactions are moving; try again")
        return [each for each in unknown if _place(each) in still_open]

    def _coordinators(self) -> dict[int, int]:
        """Return the leaders of the partitions in which transactional ids are stored."""
        rows = {key: row for key, row in self._requests.rows().items() if key.topic == TRANSACTION_STATE_TOPIC}
        live = {each.node_id for each in self._requests.brokers()}
        for key, row in sorted(rows.items()):
            if row.leader not in live:
                raise KafkaError(
                    ErrorCode.COORDINATOR_NOT_AVAILABLE, f"no coordinator can be asked: {key} has no leader"
                )
        return {key.partition: row.leader for key, row in rows.items()}

    def abort(self, transaction: OpenTransaction) -> None:
        """End a hanging transaction in its partition. Its records are never delivered to read_committed consumers."""
        topic, index = transaction.partition
        marker = WritableTxnMarker(
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[index])],
            coordinator_epoch=max(transaction.coordinator_epoch, 0),
        )
        leader = self._requests.rows()[transaction.partition].leader
        broker = next(each for each in self._requests.brokers() if each.node_id == leader)
        response = self._ask(broker, WriteTxnMarkersRequest(markers=[marker]))
        code = response.markers[0].topics[0].partitions[0].error_code
        _check(code, f"cannot abort the transaction in {transaction.partition}")

    # -- requests

    def _ask(self, broker: ClusterBroker, request: Message, version: int | None = None) -> Any:
        return ask(broker, request, self._connection.timeout_s, self._connection.peer_security(), version)

    def _ask_all(self, brokers: Sequence[ClusterBroker], request: Message) -> list[Any]:
        return ask_all(brokers, request, self._connection.timeout_s, self._connection.peer_security())


def _place(transaction: OpenTransaction) -> tuple[TopicPartition, int, int]:
    return transaction.partition, transaction.producer_id, transaction.start_offset


def _check(code: int, doing: str) -> None:
    if code:
        known = ErrorCode(code) if code in ErrorCode._value2member_map_ else ErrorCode.UNKNOWN_SERVER_ERROR
        raise KafkaError(known, f"{doing}: {known.name}")
