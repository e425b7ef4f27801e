"""Consumer groups and committed offsets as pure state machines: events in, effects out, time handed in."""

from skylog.groups.config import GroupConfig
from skylog.groups.effects import Effect, JoinAnswer, StoreGroup, SyncAnswer
from skylog.groups.group import Group
from skylog.groups.groups import CommittedOffset, Groups, StoredRecord
from skylog.groups.member import JoinRequest
from skylog.groups.state import GroupState
from skylog.groups.timers import GroupTimers

__all__ = [
    "CommittedOffset",
    "Effect",
    "Group",
    "GroupConfig",
    "GroupState",
    "GroupTimers",
    "Groups",
    "JoinAnswer",
    "JoinRequest",
    "StoreGroup",
    "StoredRecord",
    "SyncAnswer",
]
