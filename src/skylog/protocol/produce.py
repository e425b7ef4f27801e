"""Produce (key 0), versions 3-11: append record batches to partitions.

Version 3 added the transactional id and the v2 batch format, 5 the log start offset in the response, 8 errors per
record (KIP-467), 9 the compact encoding, 10 the new leader in the response (KIP-951). 4, 6, 7 and 11 only allow more:
storage errors, throttling before the response, zstd, TRANSACTION_ABORTABLE.

Versions 0-2 are advertised, because older clients conclude from them whether the broker supports compression. Requests
in these versions are refused: they use the message formats before v2.
"""

from __future__ import annotations

from skylog.protocol.schema import Int16, Int32, Int64, Message, Records, field, message, struct


@struct
class PartitionProduceData:
    index: Int32 = field("0+")
    records: Records | None = field("0+", nullable="0+")


@struct
class TopicProduceData:
    name: str = field("0+")
    partition_data: list[PartitionProduceData] = field("0+")


@message(api_key=0, versions="3-11", flexible="9+")
class ProduceRequest(Message):
    """`acks` is 0 (no response at all), 1 (the leader) or -1 (all in-sync replicas)."""

    transactional_id: str | None = field("3+", nullable="3+", default=None)
    acks: Int16 = field("0+")
    timeout_ms: Int32 = field("0+")
    topic_data: list[TopicProduceData] = field("0+")


@struct
class BatchIndexAndErrorMessage:
    batch_index: Int32 = field("8+")
    batch_index_error_message: str | None = field("8+", nullable="8+", default=None)


@struct
class LeaderIdAndEpoch:
    leader_id: Int32 = field("10+", default=-1)
    leader_epoch: Int32 = field("10+", default=-1)


@struct
class PartitionProduceResponse:
    """`log_append_time_ms` is -1 where the topic keeps the producer's time."""

    index: Int32 = field("0+")
    error_code: Int16 = field("0+", default=0)
    base_offset: Int64 = field("0+")
    log_append_time_ms: Int64 = field("2+", default=-1)
    log_start_offset: Int64 = field("5+", default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = field("8+", default_factory=list)
    error_message: str | None = field("8+", nullable="8+", default=None)
    current_leader: LeaderIdAndEpoch | None = field("10+", tag=0, default=None)


@struct
class TopicProduceResponse:
    name: str = field("0+")
    partition_responses: list[PartitionProduceResponse] = field("0+")


@struct
class NodeEndpoint:
    node_id: Int32 = field("10+")
    host: str = field("10+")
    port: Int32 = field("10+")
    rack: str | None = field("10+", nullable="10+", default=None)


@message(api_key=0, versions="3-11", flexible="9+")
class ProduceResponse(Message):
    """`node_endpoints` has the addresses of the leaders in `current_leader`."""

    responses: list[TopicProduceResponse] = field("0+")
    throttle_time_ms: Int32 = field("1+", default=0)
    node_endpoints: list[NodeEndpoint] = field("10+", tag=0, default_factory=list)
