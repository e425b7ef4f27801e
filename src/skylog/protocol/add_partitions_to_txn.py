"""AddPartitionsToTxn (key 24), versions 0-5: add partitions to a transaction.

Version 3 added the compact encoding. 1 equals 0; 2 only allows PRODUCER_FENCED. Version 4 has several transactions, and
can ask whether partitions are part of one without adding them (KIP-890). Only brokers send it. 5 only allows
TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from skylog.protocol.schema import Int16, Int32, Int64, Message, field, message, struct


@struct
class AddPartitionsToTxnTopic:
    name: str = field("0+")
    partitions: list[Int32] = field("0+")


@struct
class AddPartitionsToTxnTransaction:
    transactional_id: str = field("4+")
    producer_id: Int64 = field("4+")
    producer_epoch: Int16 = field("4+")
    verify_only: bool = field("4+", default=False)
    topics: list[AddPartitionsToTxnTopic] = field("4+")


@message(api_key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnRequest(Message):
    """One transaction in the fields themselves up to version 3, a list of `transactions` from 4 on."""

    transactions: list[AddPartitionsToTxnTransaction] = field("4+", default_factory=list)
    v3_and_below_transactional_id: str = field("0-3", default="")
    v3_and_below_producer_id: Int64 = field("0-3", default=-1)
    v3_and_below_producer_epoch: Int16 = field("0-3", default=-1)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field("0-3", default_factory=list)


@struct
class AddPartitionsToTxnPartitionResult:
    partition_index: Int32 = field("0+")
    partition_error_code: Int16 = field("0+", default=0)


@struct
class AddPartitionsToTxnTopicResult:
    name: str = field("0+")
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = field("0+")


@struct
class AddPartitionsToTxnResult:
    transactional_id: str = field("4+")
    topic_results: list[AddPartitionsToTxnTopicResult] = field("4+")


@message(api_key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnResponse(Message):
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("4+", default=0)
    results_by_transaction: list[AddPartitionsToTxnResult] = field("4+", default_factory=list)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field("0-3", default_factory=list)
