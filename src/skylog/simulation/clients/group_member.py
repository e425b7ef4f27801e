"""Members of a consumer group, of both protocols: they read what is assigned to them, and commit how far they are.

A member whose commit gets no answer leaves its generation before it commits again, because the late request could
overwrite a newer one. So a committed offset that goes back is a mistake of the group coordinator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from random import Random
from struct import pack, unpack_from
from typing import Any, Final
from uuid import UUID

from skylog.errors import ErrorCode
from skylog.net.peer import PeerError
from skylog.protocol.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatAssignment,
    OwnedTopicPartitions,
)
from skylog.protocol.heartbeat import HeartbeatRequest
from skylog.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from skylog.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from skylog.protocol.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponsePartitions,
)
from skylog.protocol.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from skylog.simulation.clients.connections import Connections
from skylog.simulation.clients.reader import PartitionReader
from skylog.simulation.history import Answer, Assignment, Commit, History, metadata_of
from skylog.simulation.trace import Trace

SESSION_MS: Final = 6000
HEARTBEAT_S: Final = 0.5
_STILL_MEMBER: Final = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR})
_NO_MEMBER: Final = frozenset(
    {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.FENCED_INSTANCE_ID}
)


class RejoinError(Exception):
    """The member must join again."""


class Owned:
    """A partition in the hands of a member."""

    def __init__(self, reader: PartitionReader, assignment: Assignment, offset: int) -> None:
        self.reader = reader
        self.assignment = assignment
        self.committed = offset


class Member:
    """What members of both protocols do: read, commit, give up."""

    commits_metadata = False
    """Whether commits have metadata (`history.metadata_of`)."""
    instance_id: str | None = None
    """What a static member is known by."""

    def __init__(
        self,
        number: int,
        group: str,
        topic: str,
        partitions: int,
        hosts: Sequence[tuple[str, int]],
        rng: Random,
        history: History,
        trace: Trace,
    ) -> None:
        self.name = f"member-{number}"
        self._group = group
        self._topic = topic
        self._partitions = partitions
        self._hosts = hosts
        self._rng = rng
        self._history = history
        self._trace = trace
        self._connections = Connections(self.name, hosts, rng)
        self._fetches = Connections(self.name, hosts, rng)  # a parked fetch would hold up heartbeats
        self._coordinator: int | None = None
        self._owned: dict[int, Owned] = {}
        self._member_id = ""
        self._generation = -1
        self.is_stopping = False

    async def run(self) -> None:
        while True:
            try:
                await self._take_part()
            except PeerError:
                self._coordinator = None
            except RejoinError as reason:
                self._trace.add(self.name, f"joins again: {reason}")
            self._owned.clear()
            await self._connections.pause(0.3)

    async def _take_part(self) -> None:
        """Join, and work until the membership ends. Raises RejoinError and PeerError."""
        raise NotImplementedError

    async def _ask_coordinator(self, request: Any, version: int | None = None) -> Any:
        if self._coordinator is None:
            self._coordinator = await self._connections.coordinator(self._group, 0)
        try:
            return await self._connections.ask(self._coordinator, request, version)
        except PeerError:
            self._coordinator = None
            raise

    def _check(self, code: int) -> None:
        """Raise RejoinError after an error of the coordinator."""
        if code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self._coordinator = None
        if code in _NO_MEMBER:
            self._forget_membership()
        if code:
            raise RejoinError(ErrorCode(code).name)

    def _forget_membership(self) -> None:
        self._member_id, self._generation = "", -1

    # -- partitions

    async def _take(self, partitions: Iterable[int]) -> None:
        """Begin to read partitions, where the group has committed them."""
        wanted = [each for each in partitions if each not in self._owned]
        if not wanted:
            return
        assignments = {each: self._history.assign(f"{self.name} in {self._generation}", each) for each in wanted}
        offsets = await self._committed(wanted)
        for partition, assignment in assignments.items():
            offset = max(offsets[partition].offset, 0)
            reader = PartitionReader(self._fetches, self._topic, partition, offset)
            self._owned[partition] = Owned(reader, assignment, offset)
            self._trace.add(self.name, f"reads {self._topic}-{partition} from {offset} in {self._generation}")

    async def _committed(self, partitions: list[int]) -> dict[int, Answer]:
        group = OffsetFetchRequestGroup(
            group_id=self._group,
            topics=[OffsetFetchRequestTopics(name=self._topic, partition_indexes=partitions)],
        )
        while True:
            response = await self._ask_coordinator(OffsetFetchRequest(groups=[group], require_stable=True), 8)
            (found,) = response.groups
            if found.error_code not in _STILL_MEMBER:
                self._check(found.error_code)
                rows = found.topics[0].partitions
                if not any(row.error_code for row in rows):
                    return {row.partition_index: self._answer(row) for row in rows}
            elif found.error_code == ErrorCode.NOT_COORDINATOR:
                self._coordinator = None
            await self._connections.pause()

    def _answer(self, row: OffsetFetchResponsePartitions) -> Answer:
        metadata = row.metadata or "" if self.commits_metadata else None
        return Answer(row.partition_index, row.committed_offset, metadata)

    async def _read_some(self) -> None:
        """Fetch each partition once."""
        for partition, owned in list(self._owned.items()):
            try:
                found = await owned.reader.poll()
            except PeerError:
                self._fetches.forget_leader(self._topic, partition)
                continue
            if self._owned.get(partition) is owned:
                owned.assignment.messages += found or ()

    async def _commit(self, partitions: Iterable[int]) -> None:
        """Commit the positions of partitions. Raises RejoinError and PeerError."""
        offsets = {
            each: self._owned[each].reader.offset
            for each in partitions
            if each in self._owned and self._owned[each].reader.offset > self._owned[each].committed
        }
        rows = [
            OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=offset,
                committed_metadata=metadata_of(offset) if self.commits_metadata else "",
            )
            for partition, offset in offsets.items()
        ]
        if not rows:
            return
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=self._generation,
            member_id=self._member_id,
            group_instance_id=self.instance_id,
            topics=[OffsetCommitRequestTopic(name=self._topic, partitions=rows)],
        )
        response = await self._ask_coordinator(request, 9)
        for row, answer in zip(rows, response.topics[0].partitions, strict=True):
            self._check(answer.error_code)
            self._owned[row.partition_index].committed = row.committed_offset
            self._history.commits.append(Commit(row.partition_index, row.committed_offset, self._history.tick()))


class ClassicMember(Member):
    """A member of the classic protocol, with an eager range assignor."""

    async def _take_part(self) -> None:
        joined = await self._join()
        assigned = await self._sync(joined)
        await self._take(assigned)
        beating = asyncio.create_task(self._heartbeat())
        try:
            while not beating.done():
                await self._read_some()
                if self._rng.random() < 0.3:
                    await self._commit(self._owned)
                await self._connections.pause(0.05)
            code = beating.result()
            if code == ErrorCode.REBALANCE_IN_PROGRESS:
                await self._commit(self._owned)
            self._check(code)
        finally:
            beating.cancel()

    async def _join(self) -> JoinGroupResponse:
        metadata = pack(">hih", 0, 1, len(self._topic)) + self._topic.encode() + pack(">i", -1)
        while True:
            request = JoinGroupRequest(
                group_id=self._group,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=SESSION_MS // 2,
                member_id=self._member_id,
                group_instance_id=self.instance_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
            )
            response: JoinGroupResponse = await self._ask_coordinator(request)
            if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self._member_id = response.member_id
                continue
            self._check(response.error_code)
            self._member_id, self._generation = response.member_id, response.generation_id
            return response

    async def _sync(self, joined: JoinGroupResponse) -> list[int]:
        assignments = []
        if joined.leader == self._member_id:
            members = sorted(each.member_id for each in joined.members)
            for index, member in enumerate(members):
                own = list(range(index, self._partitions, len(members)))
                assignments.append(SyncGroupRequestAssignment(member_id=member, assignment=self._encode(own)))
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=assignments,
        )
        response = await self._ask_coordinator(request)
        self._check(response.error_code)
        return self._decode(response.assignment)

    def _encode(self, partitions: list[int]) -> bytes:
        name = self._topic.encode()
        head = pack(">hih", 0, 1, len(name)) + name + pack(">i", len(partitions))
        return head + pack(f">{len(partitions)}i", *partitions) + pack(">i", -1)

    def _decode(self, data: bytes) -> list[int]:
        if not data:
            return []
        at = 8 + len(self._topic)
        (count,) = unpack_from(">i", data, at)
        return list(unpack_from(f">{count}i", data, at + 4))

    async def _heartbeat(self) -> int:
        """Send heartbeats until the coordinator ends the generation. Return its error."""
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            request = HeartbeatRequest(
                group_id=self._group,
                generation_id=self._generation,
                member_id=self._member_id,
                group_instance_id=self.instance_id,
            )
            try:
                response = await self._ask_coordinator(request)
            except PeerError:
                continue
            if response.error_code:
                return int(response.error_code)


class ConsumerMember(Member):
    """A member of the consumer protocol (KIP-848)."""

    pattern: str | None = None
    """A regular expression of the topics that it subscribes to, in place of the name of one."""
    _topic_id: UUID | None = None

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.others: list[OwnedTopicPartitions] = []
        """The partitions of other topics that it has. It does not read them."""

    async def _take_part(self) -> None:
        self._generation = 0
        self.others = []
        if not self._member_id:
            self._member_id = str(UUID(int=self._rng.getrandbits(128), version=4))
        assigned: list[int] = []
        while True:
            response = await self._beat(sorted(self._owned) if self._generation else [])
            self._generation = response.member_epoch
            if response.assignment is not None:
                assigned = self._take_assignment(response.assignment)
            leaving = self._owned.keys() - set(assigned)
            if leaving:
                await self._commit(sorted(leaving))
                for partition in sorted(leaving):
                    del self._owned[partition]
                continue  # the coordinator hears at once that they are free
            await self._take(assigned)
            await self._read_some()
            if self._rng.random() < 0.3:
                await self._commit(list(self._owned))
            await self._connections.pause(HEARTBEAT_S)

    def _take_assignment(self, assignment: HeartbeatAssignment) -> list[int]:
        """Return the partitions to read, and note those of other topics."""
        rows = assignment.topic_partitions
        self.others = [
            OwnedTopicPartitions(topic_id=row.topic_id, partitions=row.partitions)
            for row in rows
            if row.topic_id != self._topic_id
        ]
        return sorted(index for row in rows if row.topic_id == self._topic_id for index in row.partitions)

    async def _beat(self, owned: list[int]) -> Any:
        if self._topic_id is None:
            self._topic_id = (await self._connections.leader(self._topic, 0)).topic_id
        is_joining = self._generation == 0
        held = [OwnedTopicPartitions(topic_id=self._topic_id, partitions=owned)] if owned else []
        held += self.others
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self._member_id,
            member_epoch=self._generation,
            instance_id=self.instance_id,
            rebalance_timeout_ms=SESSION_MS if is_joining else -1,
            subscribed_topic_names=[self._topic] if is_joining and self.pattern is None else None,
            subscribed_topic_regex=self.pattern if is_joining else None,
            topic_partitions=held,
        )
        response = await self._ask_coordinator(request)
        if response.error_code == ErrorCode.UNRELEASED_INSTANCE_ID:
            raise RejoinError("unreleased")
        self._check(response.error_code)
        return response


class CommittedWatch:
    """Asks for the committed offsets of a group again and again."""

    def __init__(self, member: Member, history: History) -> None:
        self._member = member
        self._history = history

    async def run(self) -> None:
        partitions = list(range(self._member._partitions))
        while True:
            try:
                found = await self._member._committed(partitions)
            except (PeerError, RejoinError):
                await self._member._connections.pause(0.5)
                continue
            self._history.committed += [found[each] for each in sorted(found) if found[each].offset >= 0]
            await self._member._connections.pause(0.5)
