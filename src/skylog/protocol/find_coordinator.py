"""FindCoordinator (key 10), versions 0-5: the broker that coordinates a consumer group or a transactional id.

Version 1 added transactional ids and an error message, 3 the compact encoding, 4 several keys in one request (KIP-699),
with other fields in request and response. 2 equals 1; 5 only allows TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from skylog.protocol.schema import Int8, Int16, Int32, Message, field, message, struct


@message(api_key=10, versions="0-5", flexible="3+")
class FindCoordinatorRequest(Message):
    """`key` up to version 3, `coordinator_keys` from 4 on; `key_type` is 0 for a group, 1 for a transaction."""

    key: str = field("0-3", default="")
    key_type: Int8 = field("1+", default=0)
    coordinator_keys: list[str] = field("4+", default_factory=list)


@struct
class Coordinator:
    key: str = field("4+")
    node_id: Int32 = field("4+")
    host: str = field("4+")
    port: Int32 = field("4+")
    error_code: Int16 = field("4+", default=0)
    error_message: str | None = field("4+", nullable="4+", default=None)


@message(api_key=10, versions="0-5", flexible="3+")
class FindCoordinatorResponse(Message):
    """One answer in the fields themselves up to version 3, a list of `coordinators` from 4 on."""

    throttle_time_ms: Int32 = field("1+", default=0)
    error_code: Int16 = field("0-3", default=0)
    error_message: str | None = field("1-3", nullable="1-3", default=None)
    node_id: Int32 = field("0-3", default=-1)
    host: str = field("0-3", default="")
    port: Int32 = field("0-3", default=-1)
    coordinators: list[Coordinator] = field("4+", default_factory=list)
