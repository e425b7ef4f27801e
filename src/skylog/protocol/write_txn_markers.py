"""WriteTxnMarkers (key 27), versions 0-1: write the decision about transactions into partitions.

A transaction coordinator sends it to the leaders of the partitions. Version 1 added the compact encoding.
"""

from __future__ import annotations

from skylog.protocol.schema import Int16, Int32, Int64, Message, field, message, struct


@struct
class WritableTxnMarkerTopic:
    name: str = field("0+")
    partition_indexes: list[Int32] = field("0+")


@struct
class WritableTxnMarker:
    """`transaction_result` is True for a commit, False for an abort."""

    producer_id: Int64 = field("0+")
    producer_epoch: Int16 = field("0+")
    transaction_result: bool = field("0+")
    topics: list[WritableTxnMarkerTopic] = field("0+")
    coordinator_epoch: Int32 = field("0+")


@message(api_key=27, versions="0-1", flexible="1+")
class WriteTxnMarkersRequest(Message):
    markers: list[WritableTxnMarker] = field("0+")


@struct
class WritableTxnMarkerPartitionResult:
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+", default=0)


@struct
class WritableTxnMarkerTopicResult:
    name: str = field("0+")
    partitions: list[WritableTxnMarkerPartitionResult] = field("0+")


@struct
class WritableTxnMarkerResult:
    producer_id: Int64 = field("0+")
    topics: list[WritableTxnMarkerTopicResult] = field("0+")


@message(api_key=27, versions="0-1", flexible="1+")
class WriteTxnMarkersResponse(Message):
    markers: list[WritableTxnMarkerResult] = field("0+")
