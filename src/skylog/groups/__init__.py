"""Consumer groups and committed offsets as pure state machines: events in, effects out, time handed in."""

from skylog.groups.config import GroupConfig
from skylog.groups.effects import Effect, JoinAnswer, StoreGroup, SyncAnswer
from skylog.groups.group import Group, GroupState, JoinRequest
from skylog.groups.groups import CommittedOffset, Groups, StoredRecord

__all__ = [
    "CommittedOffset",
    "Effect",
    "Group",
    "GroupConfig",
    "GroupState",
    "Groups",
    "JoinAnswer",
    "JoinRequest",
    "StoreGroup",
    "StoredRecord",
    "SyncAnswer",
]
