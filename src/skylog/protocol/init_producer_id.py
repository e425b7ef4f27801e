"""InitProducerId (key 22), versions 0-5: an id and epoch for an idempotent or transactional producer.

Version 2 added the compact encoding, 3 the id and epoch that the producer holds already (KIP-360). 1 equals 0; 4 and 5
only allow PRODUCER_FENCED and TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from skylog.protocol.schema import Int16, Int32, Int64, Message, field, message


@message(api_key=22, versions="0-5", flexible="2+")
class InitProducerIdRequest(Message):
    """A null `transactional_id` requests only idempotence; `transaction_timeout_ms` is then ignored."""

    transactional_id: str | None = field("0+", nullable="0+", default=None)
    transaction_timeout_ms: Int32 = field("0+")
    producer_id: Int64 = field("3+", default=-1)
    producer_epoch: Int16 = field("3+", default=-1)


@message(api_key=22, versions="0-5", flexible="2+")
class InitProducerIdResponse(Message):
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    producer_id: Int64 = field("0+", default=-1)
    producer_epoch: Int16 = field("0+", default=0)
