"""AddOffsetsToTxn (key 25), versions 0-4: announce that a transaction commits offsets of a group.

Version 3 added the compact encoding. 1 equals 0; 2 only allows PRODUCER_FENCED, 4 only TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from skylog.protocol.schema import Int16, Int32, Int64, Message, field, message


@message(api_key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest(Message):
    transactional_id: str = field("0+")
    producer_id: Int64 = field("0+")
    producer_epoch: Int16 = field("0+")
    group_id: str = field("0+")


@message(api_key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse(Message):
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
