"""A raw client that knows the requests of a group's life."""

from __future__ import annotations

from typing import Any

from skylog.errors import ErrorCode
from skylog.protocol.delete_groups import DeleteGroupsRequest
from skylog.protocol.find_coordinator import FindCoordinatorRequest
from skylog.protocol.heartbeat import HeartbeatRequest
from skylog.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from skylog.protocol.leave_group import LeaveGroupRequest, MemberIdentity
from skylog.protocol.list_groups import ListGroupsRequest
from skylog.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from skylog.protocol.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from skylog.protocol.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.broker.process import until
from tests.broker.raw import RawClient
from tests.patience import patience

from .driver import subscription


class GroupClient(RawClient):
    """Requests of the group `g` where none is named."""

    def find(self, group: str = "g") -> None:
        (found,) = self.ask(FindCoordinatorRequest(coordinator_keys=[group]), 4).coordinators
        assert found.error_code == 0

    def enter(self, group: str = "g", session_ms: int = 6000) -> tuple[str, int]:
        """Join and sync as the only member; member id and generation."""
        protocols = [JoinGroupRequestProtocol(name="range", metadata=subscription("t"))]
        member_id = ""
        for _ in range(2):
            request = JoinGroupRequest(
                group_id=group,
                member_id=member_id,
                session_timeout_ms=session_ms,
                rebalance_timeout_ms=60_000,
                protocol_type="consumer",
                protocols=protocols,
            )
            joined = self.ask(request, 7)
            member_id = joined.member_id
        assert joined.error_code == 0
        assignments = [SyncGroupRequestAssignment(member_id=member_id, assignment=b"mine")]
        sync = SyncGroupRequest(
            group_id=group, generation_id=joined.generation_id, member_id=member_id, assignments=assignments
        )
        synced = self.ask(sync, 4)
        assert (synced.error_code, synced.assignment) == (0, b"mine")
        return member_id, joined.generation_id

    def heartbeat(self, member_id: str, generation: int, group: str = "g") -> int:
        request = HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id)
        code: int = self.ask(request, 4).error_code
        return code

    def leave(self, member_id: str, group: str = "g") -> None:
        request = LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=member_id)])
        assert self.ask(request, 5).members[0].error_code == 0

    def commit(
        self, offset: int, member_id: str = "", generation: int = -1, group: str = "g", topic: str = "t", note: str = ""
    ) -> int:
        row = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata=note)
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=[row])],
        )
        code: int = self.ask(request, 8).topics[0].partitions[0].error_code
        return code

    def committed(self, group: str = "g") -> dict[tuple[str, int], tuple[int, str]]:
        """Everything that the group has committed, once its coordinator has read it back."""

        def ask() -> Any:
            (answer,) = self.ask(
                OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)]), 8
            ).groups
            return None if answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else answer

        answer = until(ask, "the group to be loaded", patience(20))
        assert answer.error_code == 0
        return {
            (topic.name, row.partition_index): (row.committed_offset, row.metadata)
            for topic in answer.topics
            for row in topic.partitions
        }

    def groups(self) -> set[str]:
        def ask() -> Any:
            answer = self.ask(ListGroupsRequest(), 4)
            return None if answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else answer

        return {each.group_id for each in until(ask, "all groups to be loaded").groups}

    def delete(self, group: str = "g") -> int:
        code: int = self.ask(DeleteGroupsRequest(groups_names=[group]), 2).results[0].error_code
        return code
