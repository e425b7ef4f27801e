"""Consumer groups and committed offsets as pure state machines: events and the time go in, effects come out."""

from skylog.groups.config import GroupConfig
from skylog.groups.consumer.config import ConsumerGroupConfig
from skylog.groups.consumer.group import ConsumerGroup
from skylog.groups.effects import Effect, JoinResponse, StoreGroup, SyncResponse
from skylog.groups.group import Group
from skylog.groups.groups import AnyGroup, CommittedOffset, Groups, StoredRecord
from skylog.groups.late_commits import LateCommits
from skylog.groups.member import JoinRequest
from skylog.groups.pending_offsets import PendingOffsets
from skylog.groups.state import GroupState
from skylog.groups.timers import GroupTimers

__all__ = [
    "AnyGroup",
    "CommittedOffset",
    "ConsumerGroup",
    "ConsumerGroupConfig",
    "Effect",
    "Group",
    "GroupConfig",
    "GroupState",
    "GroupTimers",
    "Groups",
    "JoinRequest",
    "JoinResponse",
    "LateCommits",
    "PendingOffsets",
    "StoreGroup",
    "StoredRecord",
    "SyncResponse",
]
