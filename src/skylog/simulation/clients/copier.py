"""Consume, transform, produce: copies a partition into another topic, exactly once, by transactions.

A copy is numbered by its transaction, so that a copy of an aborted transaction is not taken for that of a later one.
After an error that a retry does not mend, the copier starts its producer again, as an application that crashes would.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

from skylog.clock import Clock
from skylog.errors import ErrorCode
from skylog.net.peer import PeerError
from skylog.protocol.add_offsets_to_txn import AddOffsetsToTxnRequest
from skylog.protocol.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from skylog.protocol.end_txn import EndTxnRequest
from skylog.protocol.init_producer_id import InitProducerIdRequest
from skylog.protocol.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from skylog.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from skylog.protocol.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from skylog.records import Record, build_batch
from skylog.simulation.clients.connections import REQUEST_S, Connections
from skylog.simulation.clients.reader import PartitionReader
from skylog.simulation.history import History, Message, Outcome, Transaction, Value
from skylog.simulation.trace import Trace

GROUP: Final = "copiers"
TIMEOUT_MS: Final = 10_000
ATTEMPTS: Final = 30
FLEETING: Final = "fleeting"
"""A topic that is deleted and created again."""
FLEETING_SHARE: Final = 0.5
_COORDINATOR_AWAY: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)


class GaveUpError(Exception):
    """There was no answer to a batch in time. It may still arrive."""


class RestartError(Exception):
    """The producer must start again, which ends its transaction."""


def source_of(data: bytes) -> Value:
    """Return the value that a copy was made of."""
    return Value(*map(int, data.split()[2:4]))


class Copier:
    """Copies one partition of `source` to the partitions of `target`. `history` is that of the target."""

    def __init__(
        self,
        partition: int,
        source: str,
        target: str,
        partitions: int,
        hosts: Sequence[tuple[str, int]],
        rng: Random,
        clock: Clock,
        history: History,
        trace: Trace,
        numbers: itertools.count[int],
        patience_s: float = REQUEST_S,
    ) -> None:
        self.name = f"copier-{partition}"
        self._partition = partition
        self._source = source
        self._target = target
        self._partitions = partitions
        self._rng = rng
        self._clock = clock
        self._history = history
        self._trace = trace
        self._numbers = numbers
        self._gives_up = patience_s < REQUEST_S
        self._connections = Connections(self.name, hosts, rng, patience_s)
        self._fetches = Connections(self.name, hosts, rng)
        self._coordinators: dict[int, int] = {}
        self._producer_id = self._producer_epoch = -1
        self._sequences: defaultdict[tuple[str, int], int] = defaultdict(int)
        self.position = 0
        """The source offset that is copied for certain."""

    async def run(self) -> None:
        while True:
            try:
                await self._init()
                reader = PartitionReader(self._fetches, self._source, self._partition, await self._committed())
                while True:
                    await self._copy_some(reader)
            except (PeerError, RestartError) as reason:
                self._trace.add(self.name, f"starts again: {reason}")
                await self._connections.pause()

    async def _init(self) -> None:
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=TIMEOUT_MS)
        response = await self._retry(lambda: self._ask(1, self.name, request), lambda answer: answer.error_code)
        self._producer_id, self._producer_epoch = response.producer_id, response.producer_epoch
        self._sequences.clear()

    async def _committed(self) -> int:
        topics = [OffsetFetchRequestTopics(name=self._source, partition_indexes=[self._partition])]
        group = OffsetFetchRequestGroup(group_id=GROUP, topics=topics)
        request = OffsetFetchRequest(groups=[group], require_stable=True)
        response = await self._retry(
            lambda: self._ask(0, GROUP, request, 8),
            lambda answer: answer.groups[0].error_code or answer.groups[0].topics[0].partitions[0].error_code,
        )
        self.position = max(response.groups[0].topics[0].partitions[0].committed_offset, 0)
        return self.position

    # -- one transaction

    async def _copy_some(self, reader: PartitionReader) -> None:
        try:
            found = await reader.poll()
        except PeerError:
            found = None
        if not found:
            self._fetches.forget_leader(self._source, self._partition)
            await self._connections.pause()
            return
        number = next(self._numbers)
        transaction = Transaction(f"{self.name}/{number}")
        self._history.transactions.append(transaction)
        try:
            try:
                await self._produce(number, transaction, found)
            except GaveUpError:
                await self._abandon(transaction)
            await self._end(transaction, reader, commits=self._rng.random() < 0.8)
        finally:
            self._trace.add(self.name, f"{transaction.name} of {len(found)} is {transaction.outcome.value}")
        if transaction.outcome is Outcome.ABORTED:
            reader.offset = self.position
        self.position = reader.offset

    async def _produce(self, number: int, transaction: Transaction, found: list[Message]) -> None:
        by_target: defaultdict[int, list[tuple[Value, Value]]] = defaultdict(list)
        for index, message in enumerate(found):
            copy = Value(number, index)
            target = self._rng.randrange(self._partitions)
            by_target[target].append((copy, message.value))
            transaction.values.append((target, copy))
        await self._add_partitions(self._target, sorted(by_target))
        for target, rows in sorted(by_target.items()):
            await self._produce_to(self._target, target, rows)
            await self._connections.pause(self._rng.choice([0.0, 0.05, 1.0]))

    async def _add_partitions(self, topic: str, targets: list[int]) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=targets)],
        )
        await self._retry(
            lambda: self._ask(1, self.name, request, 3),
            lambda answer: max(
                row.partition_error_code
                for topic in answer.results_by_topic_v3_and_below
                for row in topic.results_by_partition
            ),
        )

    async def _produce_to(self, topic: str, target: int, rows: list[tuple[Value, Value]]) -> None:
        now_ms = self._clock.now_ms()
        records = [Record(copy.encode(b"%d %d" % source), self._key(source), now_ms) for copy, source in rows]
        data = build_batch(
            records,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=self._sequences[topic, target],
            transactional=True,
        )
        request = ProduceRequest(
            transactional_id=self.name,
            acks=-1,
            timeout_ms=3000,
            topic_data=[
                TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=target, records=bytes(data))])
            ],
        )

        async def send() -> Any:
            try:
                leader = await self._connections.leader(topic, target)
                return await self._connections.ask(leader.node_id, request)
            except PeerError as error:
                self._connections.forget_leader(topic, target)
                if self._gives_up:
                    raise GaveUpError(str(error)) from error
                raise

        def code_of(answer: Any) -> int:
            code: int = answer.responses[0].partition_responses[0].error_code
            if code:
                self._connections.forget_leader(topic, target)
            return 0 if code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER else code

        await self._retry(send, code_of)
        self._sequences[topic, target] += len(rows)

    def _key(self, source: Value) -> bytes:
        return b"%d" % source.number

    async def _abandon(self, transaction: Transaction) -> None:
        """Abort, as Java's producer does after a timeout. Raises RestartError: another epoch must follow."""
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            committed=False,
        )
        await self._retry(lambda: self._ask(1, self.name, request, 3), lambda answer: answer.error_code)
        transaction.outcome = Outcome.ABORTED
        await self._connections.pause(2.0)
        raise RestartError("a batch was not answered in time")

    async def _end(self, transaction: Transaction, reader: PartitionReader, *, commits: bool) -> None:
        await self._commit_offset(reader.offset)
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            committed=commits,
        )
        if commits:
            transaction.outcome = Outcome.UNKNOWN
            transaction.commit_asked_at = self._history.tick()
        await self._retry(lambda: self._ask(1, self.name, request, 3), lambda answer: answer.error_code)
        transaction.outcome = Outcome.COMMITTED if commits else Outcome.ABORTED

    async def _commit_offset(self, offset: int) -> None:
        add = AddOffsetsToTxnRequest(
            transactional_id=self.name,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            group_id=GROUP,
        )
        await self._retry(lambda: self._ask(1, self.name, add, 3), lambda answer: answer.error_code)
        row = TxnOffsetCommitRequestPartition(partition_index=self._partition, committed_offset=offset)
        commit = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=GROUP,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            topics=[TxnOffsetCommitRequestTopic(name=self._source, partitions=[row])],
        )
        await self._retry(
            lambda: self._ask(0, GROUP, commit, 3), lambda answer: answer.topics[0].partitions[0].error_code
        )

    # -- requests

    async def _ask(self, key_type: int, key: str, request: Any, version: int | None = None) -> Any:
        """Ask the coordinator of a group or of this transactional id. Raises PeerError."""
        if key_type not in self._coordinators:
            self._coordinators[key_type] = await self._connections.coordinator(key, key_type)
        try:
            return await self._connections.ask(self._coordinators[key_type], request, version)
        except PeerError:
            self._coordinators.pop(key_type, None)
            raise

    async def _retry(self, ask: Callable[[], Any], code_of: Callable[[Any], int]) -> Any:
        """Repeat a request until it is done. Raises RestartError after an error that stays."""
        reason = ""
        for _ in range(ATTEMPTS):
            try:
                answer = await ask()
            except PeerError as error:
                reason = str(error)
            else:
                code = ErrorCode(code_of(answer))
                if code is ErrorCode.NONE:
                    return answer
                if code in _COORDINATOR_AWAY:
                    self._coordinators.clear()
                elif not code.retriable:
                    raise RestartError(code.name)
                reason = code.name
            await asyncio.sleep(0.05 + self._rng.random() * 0.2)
        raise RestartError(reason)


class KeyedCopier(Copier):
    """Gives each source a key of its own, so that compaction removes the copies of aborted transactions only."""

    def _key(self, source: Value) -> bytes:
        return b"%d-%d" % source


class FleetingCopier(Copier):
    """Writes to a topic as well that is deleted and created again while its transactions are open."""

    async def _produce(self, number: int, transaction: Transaction, found: list[Message]) -> None:
        if self._rng.random() < FLEETING_SHARE:
            await self._add_partitions(FLEETING, [0])
            await self._produce_to(FLEETING, 0, [(Value(number, 0), found[0].value)])
        await super()._produce(number, transaction, found)
