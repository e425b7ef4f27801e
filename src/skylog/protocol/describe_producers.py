"""DescribeProducers (key 61), version 0: the active producers of partitions (KIP-664)."""

from __future__ import annotations

from skylog.protocol.schema import Int16, Int32, Int64, Message, field, message, struct


@struct
class DescribeProducersTopic:
    name: str = field("0+")
    partition_indexes: list[Int32] = field("0+")


@message(api_key=61, versions="0", flexible="0+")
class DescribeProducersRequest(Message):
    topics: list[DescribeProducersTopic] = field("0+")


@struct
class DescribedProducer:
    """`coordinator_epoch` and `current_txn_start_offset` are -1 for a producer outside of a transaction."""

    producer_id: Int64 = field("0+")
    producer_epoch: Int32 = field("0+")
    last_sequence: Int32 = field("0+", default=-1)
    last_timestamp: Int64 = field("0+", default=-1)
    coordinator_epoch: Int32 = field("0+")
    current_txn_start_offset: Int64 = field("0+", default=-1)


@struct
class DescribeProducersPartition:
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+", default=0)
    error_message: str | None = field("0+", nullable="0+", default=None)
    active_producers: list[DescribedProducer] = field("0+", default_factory=list)


@struct
class DescribeProducersTopicResult:
    name: str = field("0+")
    partitions: list[DescribeProducersPartition] = field("0+")


@message(api_key=61, versions="0", flexible="0+")
class DescribeProducersResponse(Message):
    throttle_time_ms: Int32 = field("0+", default=0)
    topics: list[DescribeProducersTopicResult] = field("0+")
