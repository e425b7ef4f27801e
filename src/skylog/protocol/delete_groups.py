"""DeleteGroups (key 42), versions 0-2: remove empty consumer groups with their offsets.

Version 2 added the compact encoding; 1 equals 0.
"""

from __future__ import annotations

from skylog.protocol.schema import Int16, Int32, Message, field, message, struct


@message(api_key=42, versions="0-2", flexible="2+")
class DeleteGroupsRequest(Message):
    groups_names: list[str] = field("0+")


@struct
class DeletableGroupResult:
    group_id: str = field("0+")
    error_code: Int16 = field("0+", default=0)


@message(api_key=42, versions="0-2", flexible="2+")
class DeleteGroupsResponse(Message):
    throttle_time_ms: Int32 = field("0+", default=0)
    results: list[DeletableGroupResult] = field("0+")
