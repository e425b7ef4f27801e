"""A consumer without a group: reads every partition of a topic from its start, and notes what it sees."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Final

from skylog.errors import ErrorCode
from skylog.net.peer import PeerError
from skylog.protocol.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from skylog.protocol.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from skylog.records import InvalidBatchError, check_batch, iterate_batches, read_marker, read_records
from skylog.simulation.clients.connections import Connections, Leader
from skylog.simulation.history import Answer, Assignment, History, Message, Value

READ_COMMITTED: Final = 1
EARLIEST: Final = -2
LATEST: Final = -1
MAX_WAIT_MS: Final = 500
WATCH_SHARE: Final = 0.2


class PartitionReader:
    """The position of a consumer in one partition. Damaged batches are not passed on, and fetched again."""

    def __init__(
        self,
        connections: Connections,
        topic: str,
        partition: int,
        offset: int,
        *,
        read_committed: bool = False,
        decode: Callable[[bytes], Value] = Value.decode,
    ) -> None:
        self.offset = offset
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.damaged = 0
        self.begins_at = 0
        """Where the partition began when the position was found to be deleted."""
        self.on_denied: Callable[[int], object] = lambda offset: None
        """Called with an offset that the leader says it does not have, although the partition begins before."""
        self._connections = connections
        self._topic = topic
        self._partition = partition
        self._read_committed = read_committed
        self._decode = decode

    async def poll(self) -> list[Message] | None:
        """Fetch once. Return the new messages, or None after an error. Raises PeerError."""
        leader = await self._connections.leader(self._topic, self._partition)
        request = FetchRequest(
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            isolation_level=READ_COMMITTED if self._read_committed else 0,
            topics=[FetchTopic(topic=self._topic, partitions=[self.row(leader)])],
        )
        response = await self._connections.ask(leader.node_id, request, 12)
        if response.error_code or not response.responses:
            return None
        return await self.take(response.responses[0].partitions[0])

    def row(self, leader: Leader) -> FetchPartition:
        """Return what to ask for, as a row of a request."""
        return FetchPartition(
            partition=self._partition,
            current_leader_epoch=leader.epoch,
            fetch_offset=self.offset,
            partition_max_bytes=1 << 16,
        )

    async def take(self, data: PartitionData) -> list[Message] | None:
        """Return the new messages in an answer, or None if it is an error. Raises PeerError."""
        if data.error_code:
            await self._failed(ErrorCode(data.error_code))
            return None
        self.high_watermark = data.high_watermark
        self.last_stable_offset = data.last_stable_offset
        return list(self._messages(data))

    async def _failed(self, code: ErrorCode) -> None:
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            start_offset = await self.list_offset(EARLIEST)
            if start_offset > self.offset:
                self.offset = self.begins_at = start_offset
            elif start_offset >= 0:
                self.on_denied(self.offset)
        self._connections.forget_leader(self._topic, self._partition)

    async def list_offset(self, timestamp: int) -> int:
        """Return the offset of the start or the end; -1 if the leader does not know. Raises PeerError."""
        leader = await self._connections.leader(self._topic, self._partition)
        row = ListOffsetsPartition(
            partition_index=self._partition, timestamp=timestamp, current_leader_epoch=leader.epoch
        )
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=self._topic, partitions=[row])])
        found = (await self._connections.ask(leader.node_id, request, 7)).topics[0].partitions[0]
        return int(found.offset) if not found.error_code else -1

    def _messages(self, data: PartitionData) -> Iterator[Message]:
        """Yield the messages from the position on, without those of aborted transactions, and move the position."""
        records = bytes(data.records or b"")
        aborted = sorted((row.first_offset, row.producer_id) for row in data.aborted_transactions or ())
        ending: set[int] = set()
        for position, header in iterate_batches(records):
            batch = records[position : position + header.size_bytes]
            try:
                check_batch(batch)
            except InvalidBatchError:
                self.damaged += 1
                return
            while aborted and aborted[0][0] <= header.base_offset:
                ending.add(aborted.pop(0)[1])
            if header.is_control:
                marker = read_marker(batch)
                if marker is not None and not marker.commits:
                    ending.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in ending):
                for record in read_records(batch):
                    if record.offset >= self.offset and record.value is not None:
                        yield Message(self._partition, record.offset, self._decode(record.value))
            self.offset = max(self.offset, header.end_offset)


class Reader:
    """Reads all partitions until it is killed. `positions` are the offsets of the next messages."""

    def __init__(
        self,
        number: int,
        topic: str,
        partitions: int,
        hosts: Sequence[tuple[str, int]],
        rng: Random,
        history: History,
        *,
        read_committed: bool = False,
        watches_ends: bool = False,
    ) -> None:
        self.name = f"reader-{number}"
        self._topic = topic
        self._partitions = partitions
        self._hosts = hosts
        self._rng = rng
        self._history = history
        self._read_committed = read_committed
        self._watches_ends = watches_ends
        self.positions = dict.fromkeys(range(partitions), 0)
        self.denied: list[str] = []
        """Positions that were out of range for a leader, one line for each."""

    def has_read(self, ends: Mapping[int, int]) -> bool:
        return all(self.positions[partition] >= end for partition, end in ends.items())

    async def run(self) -> None:
        await asyncio.gather(*(self._read(partition) for partition in range(self._partitions)))

    async def _read(self, partition: int) -> None:
        connections = Connections(self.name, self._hosts, self._rng)
        assignment = self._history.assign(self.name, partition, read_committed=self._read_committed)
        reader = self._new_reader(connections, partition)
        while True:
            try:
                found = await reader.poll()
            except PeerError:
                connections.forget_leader(self._topic, partition)
                found = None
            if found is None:
                await connections.pause()
                continue
            self._note(assignment, reader, found)
            if self._watches_ends and self._rng.random() < WATCH_SHARE:
                await self._watch(reader, partition)

    def _new_reader(self, connections: Connections, partition: int) -> PartitionReader:
        reader = PartitionReader(connections, self._topic, partition, 0, read_committed=self._read_committed)
        line = f"denied: {self.name} has read {self._topic}-{partition} up to {{}}, which is out of range"
        reader.on_denied = lambda offset: self.denied.append(line.format(offset))
        return reader

    def _note(self, assignment: Assignment, reader: PartitionReader, found: list[Message]) -> None:
        assignment.messages += found
        assignment.times += [self._history.tick()] * len(found)
        self.positions[assignment.partition] = reader.offset

    async def _watch(self, reader: PartitionReader, partition: int) -> None:
        """Ask for the end of the partition. Only one reader of a topic does, so that the answers are in order."""
        with suppress(PeerError):
            end_offset = await reader.list_offset(LATEST)
            if end_offset >= 0:
                self._history.watermarks.append(Answer(partition, end_offset))
