"""JoinGroup (key 11), versions 0-9: join a consumer group, and wait for the rebalance.

Version 1 added the rebalance timeout, 2 the throttle time, 4 MEMBER_ID_REQUIRED for new members (KIP-394), 5 static
members (KIP-345), 6 the compact encoding, 7 the protocol type in the response (KIP-559), 8 the reason for joining
(KIP-800), 9 a leader that skips the assignment (KIP-814). 3 equals 2.
"""

from __future__ import annotations

from skylog.protocol.schema import Int16, Int32, Message, field, message, struct


@struct
class JoinGroupRequestProtocol:
    """`metadata` belongs to the assignor `name` and is passed through unchanged."""

    name: str = field("0+")
    metadata: bytes = field("0+")


@message(api_key=11, versions="0-9", flexible="6+")
class JoinGroupRequest(Message):
    """In version 0 the session timeout is the rebalance timeout too."""

    group_id: str = field("0+")
    session_timeout_ms: Int32 = field("0+")
    rebalance_timeout_ms: Int32 = field("1+", default=-1)
    member_id: str = field("0+")
    group_instance_id: str | None = field("5+", nullable="5+", default=None)
    protocol_type: str = field("0+")
    protocols: list[JoinGroupRequestProtocol] = field("0+")
    reason: str | None = field("8+", nullable="8+", default=None)


@struct
class JoinGroupResponseMember:
    member_id: str = field("0+")
    group_instance_id: str | None = field("5+", nullable="5+", default=None)
    metadata: bytes = field("0+")


@message(api_key=11, versions="0-9", flexible="6+")
class JoinGroupResponse(Message):
    """`members` is filled for the leader only. Before version 7 `protocol_name` must not be null."""

    throttle_time_ms: Int32 = field("2+", default=0)
    error_code: Int16 = field("0+", default=0)
    generation_id: Int32 = field("0+", default=-1)
    protocol_type: str | None = field("7+", nullable="7+", default=None)
    protocol_name: str | None = field("0+", nullable="7+", default="")
    leader: str = field("0+", default="")
    skip_assignment: bool = field("9+", default=False)
    member_id: str = field("0+", default="")
    members: list[JoinGroupResponseMember] = field("0+", default_factory=list)
