"""DescribeGroups (key 15), versions 0-6: state, members and assignments of consumer groups.

Version 1 added the throttle time, 3 authorized operations (KIP-430), 4 static members (KIP-345), 5 the compact
encoding, 6 an error message and GROUP_ID_NOT_FOUND for unknown groups (KIP-1043). 2 equals 1.
"""

from __future__ import annotations

from skylog.protocol.schema import Int16, Int32, Message, field, message, struct


@message(api_key=15, versions="0-6", flexible="5+")
class DescribeGroupsRequest(Message):
    groups: list[str] = field("0+")
    include_authorized_operations: bool = field("3+", default=False)


@struct
class DescribedGroupMember:
    """`member_metadata` and `member_assignment` belong to the assignor and are passed through unchanged."""

    member_id: str = field("0+")
    group_instance_id: str | None = field("4+", nullable="4+", default=None)
    client_id: str = field("0+")
    client_host: str = field("0+")
    member_metadata: bytes = field("0+", default=b"")
    member_assignment: bytes = field("0+", default=b"")


@struct
class DescribedGroup:
    """`protocol_data` is the name of the assignor that the group has agreed on."""

    error_code: Int16 = field("0+", default=0)
    error_message: str | None = field("6+", nullable="6+", default=None)
    group_id: str = field("0+")
    group_state: str = field("0+", default="")
    protocol_type: str = field("0+", default="")
    protocol_data: str = field("0+", default="")
    members: list[DescribedGroupMember] = field("0+", default_factory=list)
    authorized_operations: Int32 = field("3+", default=-(2**31))


@message(api_key=15, versions="0-6", flexible="5+")
class DescribeGroupsResponse(Message):
    throttle_time_ms: Int32 = field("1+", default=0)
    groups: list[DescribedGroup] = field("0+")
