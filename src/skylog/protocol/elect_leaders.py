"""ElectLeaders (key 43), versions 0-2: make the preferred or any live replica the leader of partitions.

Version 1 added the type of the election (KIP-460), 2 the compact encoding.
"""

from __future__ import annotations

from skylog.protocol.schema import Int8, Int16, Int32, Message, field, message, struct


@struct
class ElectLeadersTopic:
    topic: str = field("0+")
    partitions: list[Int32] = field("0+")


@message(api_key=43, versions="0-2", flexible="2+")
class ElectLeadersRequest(Message):
    """`election_type` is 0 for the preferred replica, 1 for an unclean election. Null requests all partitions."""

    election_type: Int8 = field("1+", default=0)
    topic_partitions: list[ElectLeadersTopic] | None = field("0+", nullable="0+")
    timeout_ms: Int32 = field("0+", default=60000)


@struct
class PartitionElectionResult:
    partition_id: Int32 = field("0+")
    error_code: Int16 = field("0+", default=0)
    error_message: str | None = field("0+", nullable="0+", default=None)


@struct
class ReplicaElectionResult:
    topic: str = field("0+")
    partition_result: list[PartitionElectionResult] = field("0+")


@message(api_key=43, versions="0-2", flexible="2+")
class ElectLeadersResponse(Message):
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("1+", default=0)
    replica_election_results: list[ReplicaElectionResult] = field("0+")
