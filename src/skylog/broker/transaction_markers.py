"""Writes the decision about a transaction into its partitions, on this broker and on others.

A coordinator sends the markers of a transaction to the leaders of its partitions until each of them has confirmed it.
A leader appends the marker and confirms when the replicas in sync have it. A marker that is sent twice does no harm.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from skylog.broker.leader_client import LeaderClient
from skylog.broker.peer_batches import PeerBatches
from skylog.cluster.image import NO_LEADER
from skylog.errors import ErrorCode, KafkaError
from skylog.limited_logger import LimitedLogger
from skylog.model import CONSUMER_OFFSETS_TOPIC, TopicPartition
from skylog.protocol.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from skylog.transactions import Producer

if TYPE_CHECKING:
    from skylog.broker.broker import Broker

limited_logger = LimitedLogger(logging.getLogger(__name__))

FIRST_RETRY_S: Final = 0.02
LAST_RETRY_S: Final = 2.0


class Decision(NamedTuple):
    """The decision about a transaction. `coordinator_epoch` is the leader epoch of the coordinator's partition."""

    producer: Producer
    commits: bool
    coordinator_epoch: int


Errand = tuple[Decision, Sequence[TopicPartition]]
Results = dict[TopicPartition, ErrorCode]


class TransactionMarkers:
    """Sends and writes markers. Use it on the event loop only."""

    def __init__(self, broker: Broker, peers: LeaderClient) -> None:
        self._broker = broker
        self._peers = peers
        self._batches = PeerBatches(self._send)

    async def stop(self) -> None:
        await self._batches.stop()

    # -- as the leader of a partition

    async def write(self, name: TopicPartition, decision: Decision) -> None:
        """Append a marker to a partition that this broker leads, and wait until it is committed. Raises KafkaError."""
        broker = self._broker
        partition = broker.replicas.leader(*name)
        producer_id, epoch = decision.producer
        appended = partition.append_marker(
            producer_id,
            epoch,
            commits=decision.commits,
            coordinator_epoch=decision.coordinator_epoch,
            now_ms=broker.clock.now_ms(),
        )
        waiting = broker.commits.committed(partition, appended)
        if waiting is not None:
            await waiting
        if name.topic == CONSUMER_OFFSETS_TOPIC:
            await broker.coordinator.transaction_ended(name.partition, producer_id, decision.commits)

    async def write_all(self, names: Collection[TopicPartition], decision: Decision) -> Results:
        """Append a marker to several partitions at once. Return the errors."""
        outcomes = await asyncio.gather(*(self.write(name, decision) for name in names), return_exceptions=True)
        results: Results = {}
        for name, outcome in zip(names, outcomes, strict=True):
            if isinstance(outcome, KafkaError):
                results[name] = outcome.code
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                results[name] = ErrorCode.NONE
        return results

    # -- as the coordinator of a transaction

    async def send(
        self,
        transactional_id: str,
        names: Collection[TopicPartition],
        decision: Callable[[], Decision],
        is_over: Callable[[], bool],
    ) -> bool:
        """Send markers until every partition has one, for as long as it takes. Return False if `is_over` first.

        Partitions of deleted topics need none.
        """
        left = set(names)
        delay_s = FIRST_RETRY_S
        while not is_over():
            by_leader = self._by_leader(left)
            left = {name for group in by_leader.values() for name in group}
            if not left:
                return True
            known = [(node, group) for node, group in by_leader.items() if node != NO_LEADER]
            outcomes = await asyncio.gather(*(self._send_to(node, (decision(), group)) for node, group in known))
            failed = {name: code for results in outcomes for name, code in results.items() if code}
            left = {*failed, *by_leader.get(NO_LEADER, ())}
            if not left:
                return True
            if delay_s >= LAST_RETRY_S:
                name = min(left)
                code = failed.get(name, ErrorCode.LEADER_NOT_AVAILABLE)
                limited_logger.warning(
                    "the transaction of %s waits for %d partitions: %s: %s",
                    transactional_id,
                    len(left),
                    name,
                    code.name,
                )
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, LAST_RETRY_S)
        return False

    def _by_leader(self, names: Collection[TopicPartition]) -> dict[int, list[TopicPartition]]:
        topics = self._broker.metadata.image.topics
        groups: dict[int, list[TopicPartition]] = {}
        for name in sorted(names):  # an order that does not depend on hashes: a simulation repeats it
            topic = topics.get(name.topic)
            if topic is not None and name.partition < len(topic.partitions):
                groups.setdefault(topic.partitions[name.partition].leader, []).append(name)
        return groups

    async def _send_to(self, node_id: int, errand: Errand) -> Results:
        decision, names = errand
        if node_id == self._broker.identity.node_id:
            return await self.write_all(names, decision)
        try:
            return await self._batches.ask(node_id, errand)
        except KafkaError as error:
            return dict.fromkeys(names, error.code)

    async def _send(self, node_id: int, errands: Sequence[Errand]) -> list[Results]:
        request = WriteTxnMarkersRequest(markers=[_row(*errand) for errand in errands])
        response: WriteTxnMarkersResponse = await self._peers.ask(node_id, request)
        return [
            {
                TopicPartition(topic.name, row.partition_index): ErrorCode(row.error_code)
                for topic in result.topics
                for row in topic.partitions
            }
            for result in response.markers
        ]


def _row(decision: Decision, names: Sequence[TopicPartition]) -> WritableTxnMarker:
    by_topic: dict[str, list[int]] = {}
    for name in names:
        by_topic.setdefault(name.topic, []).append(name.partition)
    return WritableTxnMarker(
        producer_id=decision.producer.producer_id,
        producer_epoch=decision.producer.epoch,
        transaction_result=decision.commits,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=indexes) for topic, indexes in by_topic.items()],
        coordinator_epoch=decision.coordinator_epoch,
    )
