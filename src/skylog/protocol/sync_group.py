"""SyncGroup (key 14), versions 0-5: the leader sends the assignment, every member receives its part.

Version 1 added the throttle time, 3 static members (KIP-345), 4 the compact encoding, 5 the protocol in request and
response (KIP-559). 2 equals 1.
"""

from __future__ import annotations

from skylog.protocol.schema import Int16, Int32, Message, field, message, struct


@struct
class SyncGroupRequestAssignment:
    member_id: str = field("0+")
    assignment: bytes = field("0+")


@message(api_key=14, versions="0-5", flexible="4+")
class SyncGroupRequest(Message):
    """`assignments` is filled by the leader only."""

    group_id: str = field("0+")
    generation_id: Int32 = field("0+")
    member_id: str = field("0+")
    group_instance_id: str | None = field("3+", nullable="3+", default=None)
    protocol_type: str | None = field("5+", nullable="5+", default=None)
    protocol_name: str | None = field("5+", nullable="5+", default=None)
    assignments: list[SyncGroupRequestAssignment] = field("0+", default_factory=list)


@message(api_key=14, versions="0-5", flexible="4+")
class SyncGroupResponse(Message):
    throttle_time_ms: Int32 = field("1+", default=0)
    error_code: Int16 = field("0+", default=0)
    protocol_type: str | None = field("5+", nullable="5+", default=None)
    protocol_name: str | None = field("5+", nullable="5+", default=None)
    assignment: bytes = field("0+", default=b"")
