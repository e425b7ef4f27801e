"""DescribeTransactions (key 65), version 0: state, producer and partitions of transactions (KIP-664)."""

from __future__ import annotations

from skylog.protocol.schema import Int16, Int32, Int64, Message, field, message, struct


@message(api_key=65, versions="0", flexible="0+")
class DescribeTransactionsRequest(Message):
    transactional_ids: list[str] = field("0+")


@struct
class TransactionTopic:
    topic: str = field("0+")
    partitions: list[Int32] = field("0+")


@struct
class DescribedTransaction:
    error_code: Int16 = field("0+", default=0)
    transactional_id: str = field("0+")
    transaction_state: str = field("0+", default="")
    transaction_timeout_ms: Int32 = field("0+", default=0)
    transaction_start_time_ms: Int64 = field("0+", default=0)
    producer_id: Int64 = field("0+", default=0)
    producer_epoch: Int16 = field("0+", default=0)
    topics: list[TransactionTopic] = field("0+", default_factory=list)


@message(api_key=65, versions="0", flexible="0+")
class DescribeTransactionsResponse(Message):
    throttle_time_ms: Int32 = field("0+", default=0)
    transaction_states: list[DescribedTransaction] = field("0+")
