"""A consumer without a group that reads as Java's does: with fetch sessions (KIP-227), from its rack (KIP-392).

It has one session with each broker. Now and then it pauses a partition, or opens a session anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Final
from uuid import UUID

from skylog.errors import ErrorCode
from skylog.net.peer import PeerError
from skylog.protocol.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from skylog.simulation.clients.connections import Connections
from skylog.simulation.clients.reader import MAX_WAIT_MS, READ_COMMITTED, PartitionReader, Reader
from skylog.simulation.history import Assignment, History

VERSION: Final = 17
LISTED_S: Final = 5.0
"""How long a follower is read from before the leader is asked again."""
PAUSE_SHARE: Final = 0.05
ANEW_SHARE: Final = 0.01
FEW_BYTES: Final = 200
MANY_BYTES: Final = 1 << 16

Key = tuple[UUID, int]
Rows = Mapping[Key, FetchPartition]


class Session:
    """The client's side of a session: what the broker knows, and the epoch of the next request."""

    def __init__(self) -> None:
        self.rows: dict[Key, FetchPartition] = {}
        self._id = 0
        self._epoch = 0

    def start_anew(self) -> None:
        """List everything in the next request, which closes the session on the broker."""
        self._epoch = 0
        self.rows = {}

    def request(self, rows: Rows, rack: str, max_bytes: int, *, read_committed: bool) -> FetchRequest:
        """Return the next request. `rows` is all that is to be read."""
        changed = [(key, row) for key, row in rows.items() if self.rows.get(key) != row]
        gone = [key for key in self.rows if key not in rows]
        self.rows = dict(rows)
        return FetchRequest(
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=max_bytes,
            isolation_level=READ_COMMITTED if read_committed else 0,
            session_id=self._id,
            session_epoch=self._epoch,
            topics=[FetchTopic(topic_id=topic, partitions=[row]) for (topic, _), row in changed],
            forgotten_topics_data=[ForgottenTopic(topic_id=topic, partitions=[index]) for topic, index in gone],
            rack_id=rack,
        )

    def take(self, response: FetchResponse) -> Iterator[tuple[FetchPartition, PartitionData]]:
        """Yield what was asked for with its answer. Raises AssertionError if the response does not fit the session."""
        if response.error_code:
            if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._id = 0
            self.start_anew()
            return
        answers = {
            (topic.topic_id, row.partition_index): row for topic in response.responses for row in topic.partitions
        }
        assert answers.keys() <= self.rows.keys(), f"{answers.keys() - self.rows.keys()} is not part of the session"
        if not self._epoch:
            assert answers.keys() == self.rows.keys(), f"{self.rows.keys() - answers.keys()} is not in a full response"
        else:
            assert response.session_id == self._id, f"session {response.session_id} in place of {self._id}"
        asked = dict(self.rows)
        self._id = response.session_id
        self._epoch = self._epoch + 1 if self._id else 0
        for key, row in answers.items():
            yield asked[key], row


class Position:
    """A partition of the reader, and the follower that it reads from, if it does."""

    def __init__(self, reader: PartitionReader, assignment: Assignment) -> None:
        self.reader = reader
        self.assignment = assignment
        self.follower: int | None = None
        self.until_s = 0.0


class SessionReader(Reader):
    """Reads all partitions until it is killed. `rack` is its own."""

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
    ) -> None:
        super().__init__(number, topic, partitions, hosts, rng, history, read_committed=read_committed)
        self._rack = f"rack-{rng.randrange(3)}"
        self._leaders = Connections(self.name, hosts, rng)
        self._all: dict[int, Position] = {}

    def has_read(self, ends: Mapping[int, int]) -> bool:
        """Return whether everything is read, and the reader knows that: its lag is shown by the high watermark."""
        return super().has_read(ends) and all(
            self._all[each].reader.high_watermark >= end for each, end in ends.items()
        )

    async def run(self) -> None:
        for partition in range(self._partitions):
            assignment = self._history.assign(self.name, partition, read_committed=self._read_committed)
            self._all[partition] = Position(self._new_reader(self._leaders, partition), assignment)
        await asyncio.gather(*(self._read_from(node_id) for node_id in range(1, len(self._hosts) + 1)))

    async def _read_from(self, node_id: int) -> None:
        session, connections = Session(), Connections(self.name, self._hosts, self._rng)
        while True:
            try:
                rows = await self._rows(node_id)
                if not rows and not session.rows:
                    await connections.pause(0.3)
                    continue
                max_bytes = self._rng.choice([FEW_BYTES, MANY_BYTES])
                request = session.request(rows, self._rack, max_bytes, read_committed=self._read_committed)
                peer = await connections.peer(self._hosts[node_id - 1])
                for row, data in session.take(await peer.ask(request, VERSION)):
                    await self._take(row, data)
            except PeerError:
                session.start_anew()
                self._forget(node_id)
                await connections.pause()
            if self._rng.random() < ANEW_SHARE:
                session.start_anew()

    async def _rows(self, node_id: int) -> Rows:
        """Return what to read from a broker. Raises PeerError."""
        found = {}
        for partition, position in self._all.items():
            leader = await self._leaders.leader(self._topic, partition)
            if position.follower is not None and asyncio.get_running_loop().time() > position.until_s:
                position.follower = None
            source = leader.node_id if position.follower is None else position.follower
            if source == node_id and self._rng.random() > PAUSE_SHARE:
                found[leader.topic_id, partition] = position.reader.row(leader)
        return found

    async def _take(self, row: FetchPartition, data: PartitionData) -> None:
        """Take an answer, if it is still asked for. Raises PeerError."""
        position = self._all[row.partition]
        reader = position.reader
        if row.fetch_offset != reader.offset:
            return
        if data.preferred_read_replica >= 0:
            position.follower = data.preferred_read_replica
            position.until_s = asyncio.get_running_loop().time() + LISTED_S
        elif data.error_code and position.follower is not None:
            position.follower = None
            self._leaders.forget_leader(self._topic, row.partition)
        else:
            self._note(position.assignment, reader, await reader.take(data) or [])

    def _forget(self, node_id: int) -> None:
        """Look for the leaders again of what was read from a broker."""
        for partition, position in self._all.items():
            if position.follower == node_id:
                position.follower = None
            self._leaders.forget_leader(self._topic, partition)
