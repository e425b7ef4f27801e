"""An idempotent producer: numbers its messages, keeps several batches in flight, and sends each until it is stored.

It behaves as Java's: batches of a partition keep their order and their sequence numbers in every retry. If the first
batch without an acknowledgement is out of order, records that were acknowledged are missing, and that is a failure.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from skylog.clock import Clock
from skylog.errors import ErrorCode
from skylog.net.peer import Peer, PeerError
from skylog.protocol.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from skylog.protocol.produce import PartitionProduceData, PartitionProduceResponse, ProduceRequest, TopicProduceData
from skylog.records import Record, build_batch
from skylog.simulation.clients.connections import REQUEST_S, Connections
from skylog.simulation.history import UNKNOWN, History, Message, Value
from skylog.simulation.trace import Trace

MAX_IN_FLIGHT: Final = 5
MAX_WAITING: Final = 10
PRODUCE_TIMEOUT_MS: Final = 3000


@dataclass
class Batch:
    values: list[Value]
    sequence: int
    data: bytes


class Lane:
    """The batches of one partition that are not acknowledged yet."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.waiting: deque[Batch] = deque()
        self.next_sequence = 0
        self.has_more = asyncio.Event()


class NumberProducer:
    """Sends numbers to the partitions of a topic until `stop`, then waits until all of them are acknowledged."""

    def __init__(
        self,
        number: int,
        topic: str,
        partitions: int,
        hosts: Sequence[tuple[str, int]],
        rng: Random,
        clock: Clock,
        history: History,
        trace: Trace,
        keys: int = 0,
    ) -> None:
        self.name = f"producer-{number}"
        self._number = number
        self._topic = topic
        self._rng = rng
        self._clock = clock
        self._history = history
        self._trace = trace
        self._keys = keys
        self._hosts = hosts
        self._lanes = [Lane(partition) for partition in range(partitions)]
        self._next_number = 0
        self._is_stopping = False
        self._producer_id = self._producer_epoch = -1
        self.is_done = False
        self.pause_s = rng.choice([0.1, 0.4, 1.0])

    def stop(self) -> None:
        self._is_stopping = True

    async def run(self) -> None:
        connections = Connections(self.name, self._hosts, self._rng)
        await self._init(connections)
        senders = [asyncio.create_task(self._send_lane(lane)) for lane in self._lanes]
        while not self._is_stopping:
            lane = self._rng.choice(self._lanes)
            if len(lane.waiting) < MAX_WAITING:
                self._add(lane)
            await asyncio.sleep(self._rng.random() * self.pause_s)
        while any(lane.waiting for lane in self._lanes):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        for sender in senders:
            sender.cancel()
        self.is_done = True

    async def _init(self, connections: Connections) -> None:
        while self._producer_id < 0:
            try:
                request = InitProducerIdRequest(transaction_timeout_ms=0)
                response: InitProducerIdResponse = await connections.ask_any(request)
            except PeerError:
                await connections.pause()
                continue
            if response.error_code == 0:
                self._producer_id, self._producer_epoch = response.producer_id, response.producer_epoch
            else:
                await connections.pause()
        connections.close()

    def _add(self, lane: Lane) -> None:
        """Add a batch of one to three messages."""
        values = []
        for _ in range(self._rng.choice([1, 1, 2, 3])):
            values.append(Value(self._number, self._next_number))
            self._next_number += 1
        now_ms = self._clock.now_ms()
        records = [Record(value.encode(), self._key(value), now_ms) for value in values]
        data = build_batch(
            records,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=lane.next_sequence,
        )
        lane.waiting.append(Batch(values, lane.next_sequence, bytes(data)))
        lane.next_sequence += len(values)
        lane.has_more.set()

    def _key(self, value: Value) -> bytes:
        return b"%d" % (value.number % self._keys) if self._keys else b"%d-%d" % value

    # -- sending

    async def _send_lane(self, lane: Lane) -> None:
        connections = Connections(self.name, self._hosts, self._rng)
        while True:
            if not lane.waiting:
                lane.has_more.clear()
                await lane.has_more.wait()
            try:
                leader = await connections.leader(self._topic, lane.partition)
                peer = await connections.peer_of(leader.node_id)
            except PeerError:
                connections.forget_leader(self._topic, lane.partition)
                await connections.pause()
                continue
            if not await self._send_window(lane, peer):
                connections.forget_leader(self._topic, lane.partition)
                await connections.pause()

    async def _send_window(self, lane: Lane, peer: Peer) -> bool:
        """Send the first batches, and take the answers. Return whether all of them were stored."""
        window = list(lane.waiting)[: self._rng.randint(1, MAX_IN_FLIGHT)]
        try:
            sent = [peer.send(self._request(lane.partition, batch)) for batch in window]
        except PeerError:
            return False
        await asyncio.wait(sent, timeout=REQUEST_S)
        is_stored = True
        for batch, answer in zip(window, sent, strict=True):
            if not answer.done():
                peer.close()
                is_stored = False
            elif answer.exception() is not None:
                is_stored = False
            else:
                row: PartitionProduceResponse = answer.result().responses[0].partition_responses[0]  # type: ignore[attr-defined]
                is_stored = self._take(lane, batch, row) and is_stored
        return is_stored

    def _request(self, partition: int, batch: Batch) -> ProduceRequest:
        data = PartitionProduceData(index=partition, records=batch.data)
        return ProduceRequest(
            acks=-1,
            timeout_ms=PRODUCE_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=self._topic, partition_data=[data])],
        )

    def _take(self, lane: Lane, batch: Batch, row: PartitionProduceResponse) -> bool:
        code = ErrorCode(row.error_code)
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._acknowledge(lane, batch, row.base_offset if code is ErrorCode.NONE else UNKNOWN)
            return True
        is_first = bool(lane.waiting) and lane.waiting[0] is batch
        if not code.retriable and (code is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER or is_first):
            self._history.failed.append(
                f"{self.name}: {code.name} for {batch.values} (sequence {batch.sequence}) of partition "
                f"{lane.partition}; everything before was acknowledged: {is_first}"
            )
            lane.waiting.remove(batch)
        return False

    def _acknowledge(self, lane: Lane, batch: Batch, base_offset: int) -> None:
        lane.waiting.remove(batch)
        self._trace.add(self.name, f"acknowledged {batch.values} at {lane.partition}:{base_offset}")
        for index, value in enumerate(batch.values):
            offset = base_offset + index if base_offset != UNKNOWN else UNKNOWN
            self._history.acknowledged.append(Message(lane.partition, offset, value))
