"""ListGroups (key 16), versions 0-5: the groups that this broker coordinates.

Version 1 added the throttle time, 3 the compact encoding, 4 the state and a filter by it (KIP-518), 5 the type and a
filter by it (KIP-848). 2 equals 1.
"""

from __future__ import annotations

from skylog.protocol.schema import Int16, Int32, Message, field, message, struct


@message(api_key=16, versions="0-5", flexible="3+")
class ListGroupsRequest(Message):
    """An empty filter matches everything."""

    states_filter: list[str] = field("4+", default_factory=list)
    types_filter: list[str] = field("5+", default_factory=list)


@struct
class ListedGroup:
    group_id: str = field("0+")
    protocol_type: str = field("0+")
    group_state: str = field("4+", default="")
    group_type: str = field("5+", default="")


@message(api_key=16, versions="0-5", flexible="3+")
class ListGroupsResponse(Message):
    throttle_time_ms: Int32 = field("1+", default=0)
    error_code: Int16 = field("0+", default=0)
    groups: list[ListedGroup] = field("0+", default_factory=list)
