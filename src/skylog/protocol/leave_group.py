"""LeaveGroup (key 13), versions 0-5: members leave a consumer group, or are removed from it.

Version 1 added the throttle time, 3 several members at once (KIP-345), 4 the compact encoding, 5 a reason (KIP-800). 2
equals 1.
"""

from __future__ import annotations

from skylog.protocol.schema import Int16, Int32, Message, field, message, struct


@struct
class MemberIdentity:
    """A member by its id, or a static one by its instance id with an empty member id."""

    member_id: str = field("3+")
    group_instance_id: str | None = field("3+", nullable="3+", default=None)
    reason: str | None = field("5+", nullable="5+", default=None)


@message(api_key=13, versions="0-5", flexible="4+")
class LeaveGroupRequest(Message):
    """`member_id` up to version 2, `members` from 3 on."""

    group_id: str = field("0+")
    member_id: str = field("0-2", default="")
    members: list[MemberIdentity] = field("3+", default_factory=list)


@struct
class MemberResponse:
    member_id: str = field("3+")
    group_instance_id: str | None = field("3+", nullable="3+", default=None)
    error_code: Int16 = field("3+", default=0)


@message(api_key=13, versions="0-5", flexible="4+")
class LeaveGroupResponse(Message):
    throttle_time_ms: Int32 = field("1+", default=0)
    error_code: Int16 = field("0+", default=0)
    members: list[MemberResponse] = field("3+", default_factory=list)
