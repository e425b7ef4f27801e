"""Fetch (key 1), versions 4-17: read record batches from partitions, for consumers and followers.

Version 4 added read_committed (KIP-98), 5 the log start offset, 7 fetch sessions (KIP-227), 9 the leader epoch that the
reader knows (KIP-320), 11 reading from a follower (KIP-392), 12 the compact encoding and the detection of diverging
logs (KIP-595), 13 topic ids in place of names (KIP-516), 15 the follower's identity in a tagged field (KIP-903), 16 the
new leaders' addresses (KIP-951), 17 the directory id of a follower's log (KIP-853).
"""

from __future__ import annotations

from uuid import UUID

from skylog.protocol.schema import ZERO_UUID, Int8, Int16, Int32, Int64, Message, Records, field, message, struct


@struct
class FetchPartition:
    partition: Int32 = field("0+")
    current_leader_epoch: Int32 = field("9+", default=-1)
    fetch_offset: Int64 = field("0+")
    last_fetched_epoch: Int32 = field("12+", default=-1)
    log_start_offset: Int64 = field("5+", default=-1)
    partition_max_bytes: Int32 = field("0+")
    replica_directory_id: UUID = field("17+", tag=0, default=ZERO_UUID)


@struct
class FetchTopic:
    """Named by `topic` up to version 12, by `topic_id` from 13 on."""

    topic: str = field("0-12", default="")
    topic_id: UUID = field("13+", default=ZERO_UUID)
    partitions: list[FetchPartition] = field("0+")


@struct
class ForgottenTopic:
    topic: str = field("7-12", default="")
    topic_id: UUID = field("13+", default=ZERO_UUID)
    partitions: list[Int32] = field("7+")


@struct
class ReplicaState:
    replica_id: Int32 = field("15+", default=-1)
    replica_epoch: Int64 = field("15+", default=-1)


@message(api_key=1, versions="4-17", flexible="12+")
class FetchRequest(Message):
    """`replica_id` (from 15 on in `replica_state`) is -1 for a consumer, the broker id for a follower."""

    cluster_id: str | None = field("12+", nullable="12+", tag=0, default=None)
    replica_id: Int32 = field("0-14", default=-1)
    replica_state: ReplicaState | None = field("15+", tag=1, default=None)
    max_wait_ms: Int32 = field("0+")
    min_bytes: Int32 = field("0+")
    max_bytes: Int32 = field("3+", default=0x7FFFFFFF)
    isolation_level: Int8 = field("4+", default=0)
    session_id: Int32 = field("7+", default=0)
    session_epoch: Int32 = field("7+", default=-1)
    topics: list[FetchTopic] = field("0+")
    forgotten_topics_data: list[ForgottenTopic] = field("7+", default_factory=list)
    rack_id: str = field("11+", default="")


@struct
class EpochEndOffset:
    epoch: Int32 = field("12+", default=-1)
    end_offset: Int64 = field("12+", default=-1)


@struct
class LeaderIdAndEpoch:
    leader_id: Int32 = field("12+", default=-1)
    leader_epoch: Int32 = field("12+", default=-1)


@struct
class SnapshotId:
    end_offset: Int64 = field("0+", default=-1)
    epoch: Int32 = field("0+", default=-1)


@struct
class AbortedTransaction:
    producer_id: Int64 = field("4+")
    first_offset: Int64 = field("4+")


@struct
class PartitionData:
    """`records` may be null on the wire, but clients expect empty bytes where there is nothing."""

    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+", default=0)
    high_watermark: Int64 = field("0+")
    last_stable_offset: Int64 = field("4+", default=-1)
    log_start_offset: Int64 = field("5+", default=-1)
    diverging_epoch: EpochEndOffset | None = field("12+", tag=0, default=None)
    current_leader: LeaderIdAndEpoch | None = field("12+", tag=1, default=None)
    snapshot_id: SnapshotId | None = field("12+", tag=2, default=None)
    aborted_transactions: list[AbortedTransaction] | None = field("4+", nullable="4+", default=None)
    preferred_read_replica: Int32 = field("11+", default=-1)
    records: Records | None = field("0+", nullable="0+", default=b"")


@struct
class FetchableTopicResponse:
    """Named by `topic` up to version 12, by `topic_id` from 13 on."""

    topic: str = field("0-12", default="")
    topic_id: UUID = field("13+", default=ZERO_UUID)
    partitions: list[PartitionData] = field("0+")


@struct
class NodeEndpoint:
    node_id: Int32 = field("16+")
    host: str = field("16+")
    port: Int32 = field("16+")
    rack: str | None = field("16+", nullable="16+", default=None)


@message(api_key=1, versions="4-17", flexible="12+")
class FetchResponse(Message):
    """`node_endpoints` has the addresses of the leaders in `current_leader`."""

    throttle_time_ms: Int32 = field("1+", default=0)
    error_code: Int16 = field("7+", default=0)
    session_id: Int32 = field("7+", default=0)
    responses: list[FetchableTopicResponse] = field("0+")
    node_endpoints: list[NodeEndpoint] = field("16+", tag=0, default_factory=list)
