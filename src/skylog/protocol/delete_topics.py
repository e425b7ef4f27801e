"""DeleteTopics (key 20), versions 1-6: remove topics, by name or, in version 6, also by id.

Version 4 added the compact encoding, 5 error messages (KIP-599), 6 topic ids (KIP-516), with another list in the
request. 2 equals 1; 3 only allows TOPIC_DELETION_DISABLED.
"""

from __future__ import annotations

from uuid import UUID

from skylog.protocol.schema import ZERO_UUID, Int16, Int32, Message, field, message, struct


@struct
class DeleteTopicState:
    """A topic by name, or by id with a null name."""

    name: str | None = field("6+", nullable="6+", default=None)
    topic_id: UUID = field("6+", default=ZERO_UUID)


@message(api_key=20, versions="1-6", flexible="4+")
class DeleteTopicsRequest(Message):
    """`topic_names` up to version 5, `topics` from 6 on."""

    topics: list[DeleteTopicState] = field("6+", default_factory=list)
    topic_names: list[str] = field("0-5", default_factory=list)
    timeout_ms: Int32 = field("0+")


@struct
class DeletableTopicResult:
    name: str | None = field("0+", nullable="6+")
    topic_id: UUID = field("6+", default=ZERO_UUID)
    error_code: Int16 = field("0+", default=0)
    error_message: str | None = field("5+", nullable="5+", default=None)


@message(api_key=20, versions="1-6", flexible="4+")
class DeleteTopicsResponse(Message):
    throttle_time_ms: Int32 = field("1+", default=0)
    responses: list[DeletableTopicResult] = field("0+")
