"""Heartbeat (key 12), versions 0-4: a group member reports that it is alive, and learns of a rebalance.

Version 1 added the throttle time, 3 static members (KIP-345), 4 the compact encoding. 2 equals 1.
"""

from __future__ import annotations

from skylog.protocol.schema import Int16, Int32, Message, field, message


@message(api_key=12, versions="0-4", flexible="4+")
class HeartbeatRequest(Message):
    group_id: str = field("0+")
    generation_id: Int32 = field("0+")
    member_id: str = field("0+")
    group_instance_id: str | None = field("3+", nullable="3+", default=None)


@message(api_key=12, versions="0-4", flexible="4+")
class HeartbeatResponse(Message):
    throttle_time_ms: Int32 = field("1+", default=0)
    error_code: Int16 = field("0+", default=0)
