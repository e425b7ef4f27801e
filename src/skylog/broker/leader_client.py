"""Appends to and reads from partitions of the cluster, whichever broker leads them.

For what runs beside a broker: the audit and the metrics topic. A partition that this broker leads is used directly.
For others, a connection to the leader is opened and kept.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from skylog.cluster.image import NO_LEADER
from skylog.errors import ErrorCode, KafkaError
from skylog.model import TopicPartition
from skylog.net.peer import Peer, PeerError
from skylog.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from skylog.protocol.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from skylog.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from skylog.protocol.schema import Message

if TYPE_CHECKING:
    from skylog.broker.broker import Broker

TIMEOUT_S: Final = 10.0
_ALL: Final = -1
_FETCH_BY_NAME: Final = 12  # the last version with names of topics


class PartitionRead(NamedTuple):
    """Whole batches from the one that holds the requested offset on, none if there are none below the high watermark.

    `is_out_of_range`: the log does not hold the offset any more, or not yet.
    """

    records: bytes
    high_watermark: int
    log_start_offset: int
    is_out_of_range: bool = False


class LeaderClient:
    """A client of the leaders of partitions. Use it on the broker's event loop.

    Methods raise KafkaError with the leader's code, LEADER_NOT_AVAILABLE if there is no leader, and NETWORK_EXCEPTION
    if it cannot be reached. After the latter it is unknown whether an append was stored.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._peers: dict[tuple[str, int], Peer] = {}
        self._connecting: defaultdict[tuple[str, int], asyncio.Lock] = defaultdict(asyncio.Lock)

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close()

    async def append(self, name: TopicPartition, batch: bytearray) -> None:
        """Append a batch, and wait until all replicas in sync have it."""
        leader = self._leader(name)
        if leader == self._broker.identity.node_id:
            partition = self._broker.replicas.leader(*name)
            waiting = self._broker.commits.append_own(partition, memoryview(batch), self._broker.clock.now_ms())
            if waiting is not None:
                await waiting
            return
        data = PartitionProduceData(index=name.partition, records=bytes(batch))
        topic = TopicProduceData(name=name.topic, partition_data=[data])
        request = ProduceRequest(acks=_ALL, timeout_ms=int(TIMEOUT_S * 1000), topic_data=[topic])
        response = await self.ask(leader, request)
        (row,) = response.responses[0].partition_responses
        if row.error_code:
            raise KafkaError(ErrorCode(row.error_code), row.error_message or f"broker {leader} refuses {name}")

    async def read(self, name: TopicPartition, offset: int, max_bytes: int) -> PartitionRead:
        """Read committed batches."""
        leader = self._leader(name)
        if leader == self._broker.identity.node_id:
            return await self._read_own(name, offset, max_bytes)
        row = FetchPartition(partition=name.partition, fetch_offset=offset, partition_max_bytes=max_bytes)
        topic = FetchTopic(topic=name.topic, partitions=[row])
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=max_bytes, topics=[topic])
        response = await self.ask(leader, request, _FETCH_BY_NAME)
        if not response.responses:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"broker {leader} limits the fetches of this broker")
        (found,) = response.responses[0].partitions
        if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return PartitionRead(b"", found.high_watermark, found.log_start_offset, is_out_of_range=True)
        if found.error_code:
            raise KafkaError(ErrorCode(found.error_code), f"broker {leader} cannot read {name}")
        return PartitionRead(bytes(found.records or b""), found.high_watermark, found.log_start_offset)

    async def holds(self, name: TopicPartition, offset: int, leader_epoch: int) -> bool:
        """Whether the log continues one that ends at `offset` with a batch of this epoch (KIP-320)."""
        leader = self._leader(name)
        if leader == self._broker.identity.node_id:
            partition = self._broker.replicas.leader(*name)
            log = partition.log
            epoch, end_offset = log.epochs.end_offset_for(leader_epoch, log.log_end_offset, partition.leader_epoch)
        else:
            row = OffsetForLeaderPartition(partition=name.partition, leader_epoch=leader_epoch)
            topic = OffsetForLeaderTopic(topic=name.topic, partitions=[row])
            response = await self.ask(leader, OffsetForLeaderEpochRequest(topics=[topic]))
            (found,) = response.topics[0].partitions
            if found.error_code:
                raise KafkaError(ErrorCode(found.error_code), f"broker {leader} does not know the epochs of {name}")
            epoch, end_offset = found.leader_epoch, found.end_offset
        return epoch == leader_epoch and end_offset >= offset

    async def _read_own(self, name: TopicPartition, offset: int, max_bytes: int) -> PartitionRead:
        partition = self._broker.replicas.leader(*name)
        log, high_watermark = partition.log, partition.high_watermark
        try:
            found = await self._broker.checks.read(log, offset, max_bytes, high_watermark)
        except KafkaError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            return PartitionRead(b"", high_watermark, log.log_start_offset, is_out_of_range=True)
        records = b""
        if found is not None:
            records = await asyncio.get_running_loop().run_in_executor(self._broker.executor, found.read)
        return PartitionRead(records, high_watermark, log.log_start_offset)

    def _leader(self, name: TopicPartition) -> int:
        leader = self._broker.topics.partition(*name).leader
        if leader == NO_LEADER:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{name} has no leader now")
        return leader

    async def ask(self, node_id: int, request: Message, version: int | None = None) -> Any:
        """Send a request to another broker and return its response, by default in the newest common version."""
        try:
            return await (await self._connect(node_id)).ask(request, version)
        except PeerError as error:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error)) from error

    async def _connect(self, node_id: int) -> Peer:
        """Return the connection to a broker. Concurrent requests share one."""
        broker = self._broker.metadata.image.brokers.get(node_id)
        if broker is None:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"broker {node_id} is not part of the cluster now")
        address = broker.host, broker.port
        async with self._connecting[address]:
            peer = self._peers.get(address)
            if peer is None or not peer.is_open:
                name = f"broker-{self._broker.identity.node_id}"
                peer = self._peers[address] = await Peer.connect(
                    *address, client_id=name, timeout_s=TIMEOUT_S, security=self._broker.endpoints.peer_security
                )
            return peer
